"""Puts the explorer's own page into the site, so that a page can show it in a frame; marks short code, which stays on one line."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SHORT = re.compile(r"(?<!<pre>)<code>([^<]{1,20})</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``why/explore.html``: the same file that `widen explore` writes."""
    from widen.report.explorer import explorer

    files.append(File.generated(config, "why/explore.html", content=explorer().html()))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Mark short code between words, such as a flag: a browser would break it after a hyphen."""
    return SHORT.sub(r'<code class="short">\1</code>', html)
