"""One self-contained HTML page: figures, tables, controls and text; offline, in light and dark, on a phone, by keyboard.

A content security policy forbids loading anything and allows only the page's own scripts, by their hashes: if a sample ever became markup,
the browser would still not run it. plotly is compressed; ``web/page.js`` unpacks it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_bytes

from .parts import Figure, Panel, Section, Table

MANY = 400
"""Tables with more rows are laid out only when they come on screen."""
LONG = 28
"""Cells with longer text may wrap."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: title, lead, sections, and a line on how it was made. With ``tabs`` one section is shown at a time."""

    title: str
    lead: str
    sections: Sequence[Section]
    made_by: str
    tabs: bool = False

    def html(self) -> str:
        """The page as one string; nothing in it loads anything from outside."""
        try:
            import jinja2
            from markupsafe import Markup, escape
            from plotly.offline import get_plotlyjs
        except ImportError as error:
            raise ImportError("the page needs plotly and jinja2: pip install 'widen[report]'") from error
        panels = [part for section in self.sections for part in section.parts if isinstance(part, Panel)]
        names = dict.fromkeys(name for panel in panels for name in panel.scripts)
        plotly, scripts = get_plotlyjs(), [*map(_web, ("page.js", *names))]
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_web),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        taken = set[str]()
        environment.filters |= {
            # Backticks mark commands and names; the text is escaped first.
            "code": lambda text: Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text)))),
            "json": lambda value: Markup(json_text(value)),
            "drawing": lambda part: _drawing(part, taken),
            "cells": lambda part: _cells(part, taken),
        }
        blocks = [(_name(section.short or section.title, taken), section) for section in self.sections]
        return environment.get_template("page.html").render(
            page=self,
            blocks=blocks,
            plotly=_packed_once(plotly),
            scripts=scripts,
            policy=_policy([plotly, *scripts]),
            css=_web("page.css"),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to ``path`` atomically."""
        # Half of a surrogate pair has no UTF-8; the browser shows its character reference as the replacement character.
        return write_bytes(path, self.html().encode("utf-8", errors="xmlcharrefreplace"))


def json_text(value: Any) -> str:
    """JSON for a script element: no ``<``, ASCII only, numbers with four digits, infinity as "inf", nan as null.

    >>> json_text({"a": ["</script>", math.inf, math.nan, (1, 0.5), 0.123456789, 1234567.0]})
    '{"a":["\\\\u003c/script>","inf",null,[1,0.5],0.1235,1234567]}'
    """
    text = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")  # "</script>" in a label must not end the script


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return int(value) if value.is_integer() else float(f"{value:.4g}")


def packed(text: str) -> str:
    """Text as gzip inside base64, for `widen.unpack` of ``web/page.js``."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


_packed_once = cache(packed)


@cache
def _web(name: str) -> str:
    return (files("widen.report") / "web" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _drawing(part: Figure, taken: set[str]) -> dict[str, Any]:
    drawing = part.figure if isinstance(part.figure, dict) else part.figure.to_plotly_json()
    layout = {key: value for key, value in drawing["layout"].items() if key != "template"}
    title = (layout.get("title") or {}).get("text") or ""
    data = {"data": drawing["data"], "layout": layout}
    return {"id": _name(title or "figure", taken), "title": title, "caption": part.caption, "data": data}


def _cells(part: Table, taken: set[str]) -> dict[str, Any]:
    """Headers and cells as (text, CSS class): words are aligned left, numbers right."""
    words = [all(isinstance(row[i], str) for row in part.rows) for i in range(len(part.headers))]
    return {
        "id": _name(part.caption.partition(".")[0], taken),
        "caption": part.caption,
        "many": len(part.rows) > MANY,
        "headers": [(text, "text" * word) for text, word in zip(part.headers, words, strict=True)],
        "rows": [
            [(text, "text" * word + " long" * (len(text) > LONG)) for text, word in zip(row, words, strict=True)]
            for row in part.shown()
        ],
    }


def _name(text: str, taken: set[str]) -> str:
    """A unique name for files and anchors: letters, digits and dashes."""
    base = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].strip("-") or "part"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    taken.add(name)
    return name
