"""Writes reference/verbs.md: every verb of the command line with its own help text. Run `python docs/verbs.py` after changing a flag."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

from widen.cli.__main__ import VERBS, main

PAGE = Path(__file__).parent / "reference" / "verbs.md"
INTRO = """# Verbs

A verb is a command of widen. This page shows what `widen VERB --help` prints.

| verb | what it does |
|---|---|
"""


def help_text(verb: str) -> str:
    """What ``widen VERB --help`` prints on a terminal of 100 columns."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="100"), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([verb, "--help"])
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def page() -> str:
    """The whole page."""
    table = "".join(f"| [`widen {verb}`](#widen-{verb}) | {text} |\n" for verb, text in VERBS.items())
    parts = "".join(f"\n## widen {verb}\n\n```{{.text .help}}\n{help_text(verb)}\n```\n" for verb in VERBS)
    return INTRO + table + parts


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
