"""CodeContests: figure ``fig:prcode``, Llama-3.1 8B and 70B before and after RLEF, over temperature.

Each call samples the models that the given servers serve. The RLEF weights are not public: set WIDEN_RLEF_8B and WIDEN_RLEF_70B to a
folder, or to the name on the server, to include those models.
"""

from __future__ import annotations

import os

from widen.run.experiment import Experiment, Published
from widen.run.finetune import Source
from widen.run.score_settings import ProgramScore

from .paper_texts import LLAMA_8B_INSTRUCT, LLAMA_70B_INSTRUCT, temperatures
from .tiny_texts import first_seeds

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
"""Ten "between 0.2 (smaller dots) and 2 (larger dots)"."""
TEMPLATE = "Solve this programming contest problem. Answer with one Python 3 program in a ```python block.\n\n{prompt}"
PUBLISHED = Published(
    where="fig:prcode",
    claim="Llama3.1-8B RLEF is the only set-up where the temperature has no effect on the Precision; "
    "RLEF raises Precision at the cost of Recall",
)
NOT_IN_PAPER = {
    "temperatures": "ten from .2 to 2, evenly spaced",
    "num_samples": "100 of each problem, the minimum for pass@100",
    "prompt": "the statement with one sentence before it, through the model's chat template, one answer and no feedback from tests",
    "max_tokens": "1,024",
    "program": "the first block between ``` marks, else the whole answer",
    "judge": "all public, private and generated tests; printed tokens compared one by one, numbers within 1e-6; 30 s for all tests of a "
    "program together, 1 GiB",
    "rlef": "the weights of Gehring et al. (2024) are not public: left out unless WIDEN_RLEF_8B or WIDEN_RLEF_70B names them",
    "seeds": "one draw of samples; intervals are over problems",
}


def codecontests() -> list[Experiment]:
    """Figure ``fig:prcode``: "the test set comprising 165 challenging problems"."""
    models = {
        "Llama3.1-8B Instruct": LLAMA_8B_INSTRUCT,
        "Llama3.1-8B RLEF": os.environ.get("WIDEN_RLEF_8B"),
        "Llama3.1-70B Instruct": LLAMA_70B_INSTRUCT,
        "Llama3.1-70B RLEF": os.environ.get("WIDEN_RLEF_70B"),
    }
    return [
        Experiment(
            name=name,
            model=model,
            prompts=Source(task="codecontests", split="test"),
            num_samples=100,
            decoding=temperatures(TEMPERATURES),
            max_tokens=1024,
            template=TEMPLATE,
            chat=True,
            score=ProgramScore(ks=(1, 10, 100), fenced=True, wall_seconds=30.0, cpu_seconds=30, memory_mib=1024),
            published=(PUBLISHED,),
            not_in_paper=NOT_IN_PAPER,
        )
        for name, model in models.items()
        if model
    ]


tiny = first_seeds
