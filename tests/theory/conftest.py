"""The golden vectors of this room: 40-digit arithmetic rounded to float64, brute force where a sum can be listed."""

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden():
    """Numbers checked outside this package; 'inf' stands for infinity."""
    return json.loads((Path(__file__).parent / "golden.json").read_text())
