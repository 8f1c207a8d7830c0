# ruff: noqa: E501, SIM905 (a table of symbols)
"""Makes docstrings read well on the API pages: roles become plain names, LaTeX becomes plain text with the usual symbols."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SYMBOLS = {
    **{name: symbol for name, symbol in zip("alpha beta gamma delta epsilon lambda mu nu rho tau theta".split(), "αβγδελμνρτθ", strict=True)},
    **{name: symbol for name, symbol in zip("Delta Phi phi varepsilon pi sigma".split(), "ΔΦφεπσ", strict=True)},
    **{"sum": "Σ", "prod": "Π", "int": "∫", "infty": "∞", "in": "∈", "cdot": "·", "times": "×", "propto": "∝", "log": "log", "exp": "exp"},
    **{"le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈", "sim": "~", "to": "→", "mid": "|", "Vert": "‖", "|": "‖"},
    **{"min": "min", "max": "max", "ln": "ln", "dots": "…", "ldots": "…", "partial": "∂", "qquad": "    ", "quad": "  ", "top": "ᵀ", "star": "*"},
    **{"lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋", "arg": "arg", "Pr": "Pr", "cup": "∪", "cap": "∩", "setminus": "∖", "forall": "∀"},
    **{"left": "", "right": "", "bigl": "", "bigr": "", "big": "", "Big": "", "displaystyle": "", "limits": "", "Gamma": "Γ", "exists": "∃", "tanh": "tanh", "eta": "η", "nabla": "∇", "kappa": "κ", "Sigma": "Σ", "ell": "ℓ", "pm": "±"},
}  # fmt: skip
GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def plain(latex: str) -> str:
    r"""LaTeX as one line of text.

    >>> plain(r"w_l = \frac{\bar Q}{\gamma + (1-\gamma)\,\bar Q}")
    'w_l = Q̄ / (γ + (1-γ) Q̄)'
    """
    text = " ".join(latex.split())
    text = re.sub(r"\\(?:bar|overline)\s*(?:\{(\w)\}|(\w))", lambda m: f"{m[1] or m[2]}\u0304", text)
    text = re.sub(r"\\(?:hat|widehat)\s*(?:\{(\w)\}|(\w))", lambda m: f"{m[1] or m[2]}\u0302", text)
    text = re.sub(r"\\(?:text|mathrm|operatorname|mathbb|mathcal|mathbf|substack)\*?\s*" + GROUP, r"\1", text)
    text = re.sub(r"\\binom\s*" + GROUP + r"\s*" + GROUP, r"C(\1, \2)", text)
    text = re.sub(r"\\[dt]?frac\s*(\w)\s*(\w)(?!\w)", r"\1/\2", text)
    while (found := re.sub(r"\\[dt]?frac\s*" + GROUP + r"\s*" + GROUP, _fraction, text)) != text:
        text = found
    text = re.sub(r"\\sqrt\s*" + GROUP, r"√(\1)", text)
    text = re.sub(r"\\[dt]?frac\s*(\w)\s*" + GROUP, r"\1/(\2)", text)
    text = text.replace("\\\\", "  ")
    text = re.sub(r"\\([{}%_&#$])", lambda m: {"{": "❴", "}": "❵"}.get(m[1], m[1]), text)
    text = re.sub(r"\\[,;:!> ]", " ", text)
    text = re.sub(r"\\([A-Za-z]+|\|)", lambda m: SYMBOLS.get(m[1], m[0]), text)
    text = re.sub(r"([_^])\{(\w+|[^{}\s])\}", r"\1\2", text)
    text = re.sub(r"([_^])" + GROUP, r"\1(\2)", text)
    text = text.replace("{", "").replace("}", "").replace("❴", "{").replace("❵", "}")
    return re.sub(r" {2,}", " ", text).strip()


def _fraction(found: re.Match[str]) -> str:
    over, under = found[1].strip(), found[2].strip()
    over, under = (part if re.fullmatch(r"[\w\u0304.]+", part) else f"({part})" for part in (over, under))
    return f"{over} / {under}"


def readable(text: str) -> str:
    """A docstring without roles and LaTeX."""
    text = re.sub(
        r"^( *)\.\. math::[ ]*((?:.*\n?)(?:\1[ ]+\S.*\n?|[ ]*\n(?=\1[ ]{2,}\S))*)",
        lambda m: f"{m[1]}```text\n{m[1]}{plain(m[2])}\n{m[1]}```\n\n",
        text,
        flags=re.M,
    )
    text = re.sub(r":math:`([^`]+)`", lambda m: f"`{plain(m[1])}`", text)
    return re.sub(r":(?:func|class|meth|mod|attr|data):`~?([^`]+)`", lambda m: f"`{m[1].rsplit('.', 1)[-1]}`", text)


class Docstrings(Extension):
    """Changes every docstring that griffe loads."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)
