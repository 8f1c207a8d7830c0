"""What this machine has: versions, devices, and which optional parts of widen work here."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--json", action="store_true", help="print JSON, as env.json of a run folder holds it")


def main(options: argparse.Namespace) -> int:
    """Print the environment."""
    from widen.run.environment import environment

    found = environment()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    table = Table(title="widen env", title_justify="left", show_header=False)
    for key, value in found.items():
        table.add_row(key, json.dumps(value) if isinstance(value, (dict, list)) else str(value))
    Console().print(table)
    return 0
