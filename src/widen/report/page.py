"""One self-contained HTML page: figures, tables, controls and text; offline, in light and dark, on a phone, by keyboard.

Nothing is loaded from outside, and a policy in the page forbids it. The policy also names the page's own scripts by their hashes: were a
sample ever to become markup, the browser would still not run it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_bytes

from .parts import LONG, Cell, Figure, FigureChoice, Fold, Panel, Part, Section, Table, Warnings

MANY = 400
"""A table of more rows is laid out only when it comes on screen: a thousand rows are a fifth of a second."""

__all__ = [
    "Cell",
    "Figure",
    "FigureChoice",
    "Fold",
    "Page",
    "Panel",
    "Part",
    "Section",
    "Table",
    "Warnings",
    "json_text",
]


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
        names = dict.fromkeys(name for part in self._parts() if isinstance(part, Panel) for name in part.scripts)
        scripts = [get_plotlyjs(), *map(_web, ("page.js", *names))]
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_web),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # What stands between backticks is a command or a name; the text around it is escaped first.
        environment.filters["code"] = lambda text: Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))
        return environment.get_template("page.html").render(
            page=self, blocks=_blocks(self), scripts=scripts, policy=_policy(scripts), css=_web("page.css")
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to ``path`` in one move."""
        # Half of a surrogate pair has no UTF-8; as a reference the browser shows it as the replacement character.
        return write_bytes(path, self.html().encode("utf-8", errors="xmlcharrefreplace"))

    def _parts(self) -> Iterator[Part]:
        return (part for section in self.sections for part in section.parts)


def json_text(value: Any) -> str:
    """JSON that may stand inside a script element: no ``<``, ASCII only, infinity as "inf" and nan as null.

    >>> json_text({"a": ["</script>", math.inf, math.nan, (1, 0.5)]})
    '{"a":["\\\\u003c/script>","inf",null,[1,0.5]]}'
    """
    text = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")  # "</script>" in a label must not end the script


def _plain(value: Any) -> Any:
    """Numpy arrays as lists, what JSON cannot hold as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _web(name: str) -> str:
    return (files("widen.report") / "web" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _blocks(page: Page) -> list[dict[str, Any]]:
    """What the template loops over."""
    blocks, taken = [], set[str]()
    for section in page.sections:
        parts = [_block(part, taken) for part in section.parts]
        short = section.short or section.title
        blocks.append(
            {"id": _name(short, taken), "title": section.title, "short": short, "text": section.text, "parts": parts}
        )
    return blocks


def _block(part: Part, taken: set[str]) -> dict[str, Any]:
    match part:
        case Figure():
            return {"kind": "figure", **_figure(part, taken)}
        case Table():
            return {
                "kind": "table",
                "id": _name(part.caption.partition(".")[0], taken),
                "caption": part.caption,
                **_table(part),
            }
        case FigureChoice():
            figures = [{"choice": name, **_figure(figure, taken)} for name, figure in part.figures.items()]
            return {"kind": "choice", "label": part.label, "figures": figures}
        case Fold():
            return {"kind": "fold", "summary": part.summary, "text": part.text, "code": part.code}
        case Warnings():
            return {"kind": "warnings", "lines": part.lines}
        case Panel():
            return {"kind": "panel", "name": part.name, "json": json_text(part.data), "blobs": list(part.blobs.items())}


def _figure(part: Figure, taken: set[str]) -> dict[str, Any]:
    drawing = part.figure.to_plotly_json()
    drawing["layout"].pop("template", None)
    title = (drawing["layout"].get("title") or {}).get("text") or ""
    return {"id": _name(title or "figure", taken), "title": title, "caption": part.caption, "json": json_text(drawing)}


def _table(part: Table) -> dict[str, Any]:
    """Headers and cells; text stands left, numbers right and with their full value for sorting and CSV."""
    words = [all(isinstance(row[i], str) for row in part.rows) for i in range(len(part.headers))]
    rows = [
        [
            {"text": text, "value": _full(cell), "class": "text" * word + " long" * (len(text) > LONG)}
            for cell, text, word in zip(row, texts, words, strict=True)
        ]
        for row, texts in zip(part.rows, part.shown(), strict=True)
    ]
    return {
        "many": len(rows) > MANY,
        "headers": [{"text": text, "class": "text" * word} for text, word in zip(part.headers, words, strict=True)],
        "rows": rows,
    }


def _full(cell: Cell) -> str | None:
    if isinstance(cell, (str, bool)) or cell is None or math.isnan(cell):
        return None
    return repr(cell) if math.isfinite(cell) else ("Infinity" if cell > 0 else "-Infinity")


def _name(text: str, taken: set[str]) -> str:
    """A name for files and anchors: letters, digits and dashes, different from all before."""
    base = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].strip("-") or "part"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    taken.add(name)
    return name
