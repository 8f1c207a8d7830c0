"""Puts the explorer's own page into the site, so that a page can show it in a frame."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``why/explore.html``: the same file that `widen explore` writes."""
    from widen.report.explorer import explorer

    files.append(File.generated(config, "why/explore.html", content=explorer().html()))
    return files
