"""The paper's figures as static files: PDF, SVG and PNG in one style, the paper's claim in each caption."""

from .every_figure import FIGURES, Entry, write_figures

__all__ = ["FIGURES", "Entry", "write_figures"]
