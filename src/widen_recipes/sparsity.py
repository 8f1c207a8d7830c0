"""How sparse real targets are: table ``tab:topp_supp`` and figure ``histo``.

At each position of a completion we count the fewest tokens that hold a share of the model's next-token distribution. The score is the
largest count over positions, its geometric mean over samples, over V. The stage sample runs the model; score is arithmetic.
"""

from __future__ import annotations

from widen.run.experiment import Experiment, Published
from widen.run.finetune import Source
from widen.run.score_settings import SupportScore

from .paper_texts import LLAMA_8B_INSTRUCT
from .tiny_texts import first_seeds

NOT_IN_PAPER = {
    "model": "Llama-3.1-8B-Instruct, which the text names; the caption of histo says Llama3-8B-Instruct. V = 128,256 in both",
    "masses": ".9, .95 and .99 as in the table, and .5, .7, .8 for the lines of the figure",
    "samples": "CodeContests: the first Python 3 solution of each test problem that has one; WritingPrompts: 2,000 test stories",
    "context": "statement or prompt, then the completion, as plain text; positions of the completion and its end count",
    "max_length": "2,048 tokens",
    "bound": "the size of one token's support given its context, to be compared with V; no bound on |Supp P| (PAPER.md, erratum 37)",
}


def table() -> list[Experiment]:
    """Table ``tab:topp_supp``: share of V for a mass of .9, .95 and .99."""
    return [
        _along("CodeContests", Source(task="codecontests", split="test"), None, (0.0003, 0.0008, 0.0808)),
        _along("WritingPrompts", Source(task="writing_prompts", split="test"), 2000, (0.0386, 0.0780, 0.249)),
    ]


def support_size() -> list[Experiment]:
    """Figure ``histo``: "the number of tokens needed to cover different mass p", over positions, on CodeContests."""
    return table()[:1]


def _along(name: str, source: Source, number: int | None, shares: tuple[float, float, float]) -> Experiment:
    values = {f"sparsity@{mass:g}": share for mass, share in zip((0.9, 0.95, 0.99), shares, strict=True)}
    return Experiment(
        name=name,
        model=LLAMA_8B_INSTRUCT,
        prompts=source,
        num_prompts=number,
        score=SupportScore(masses=(0.5, 0.7, 0.8, 0.9, 0.95, 0.99), max_length=2048),
        published=(Published(where="tab:topp_supp", values=values),),
        not_in_paper=NOT_IN_PAPER,
    )


tiny = first_seeds
