"""MBPP and HumanEval, zero-shot in chat form: what decoding alone brings, by running every program.

Four families of decodings have three settings each: a temperature alone, min-p before and after the heat, and top-p before it. Each
decoding is one experiment, so that a run that was stopped has whole results.
"""

from __future__ import annotations

from widen.run.experiment import Experiment
from widen.run.finetune import Source
from widen.run.score_settings import ProgramScore

from .methods import path_of

FAMILIES = {
    "temperature": ("t=0.4", "t=0.8", "t=1.2"),
    "min-p, then heat": ("min_p=0.05 then t=1.2", "min_p=0.1 then t=1.5", "min_p=0.2 then t=2"),
    "heat, then min-p": ("t=1.2,min_p=0.05", "t=1.5,min_p=0.1", "t=2,min_p=0.2"),
    "top-p, then heat": ("top_p=0.95 then t=1", "top_p=0.9 then t=1.2", "top_p=0.8 then t=1.5"),
}
ASK = {
    "humaneval": "Complete this Python function. Answer with the whole function in one ```python block, without explanations.\n\n"
    "```python\n{prompt}```",
    "mbpp": "Write the Python function that this docstring asks for. It must pass the tests in it. Answer with the code in one ```python "
    "block, without explanations.\n\n{prompt}",
}
NOT_IN_PAPER = {
    "task": "the first 80 problems of HumanEval and the first 64 of MBPP; the paper has neither",
    "prompt": "one message of the user by the model's chat template; MBPP shows its tests",
    "program": "the first block between ``` marks, or the whole answer; HumanEval's head of the function stands before it",
    "max_tokens": "256",
    "judge": "10 s and 512 MiB a program with all its tests, no network, no files",
}


def code() -> list[Experiment]:
    """Decodings of a code model as it is, in chat form, on HumanEval and MBPP; pass@1 to pass@100."""
    return [
        Experiment(
            name=f"{title}, {family}",
            model=path_of("WIDEN_QWEN"),
            prompts=Source(task=task, path=path_of(f"WIDEN_{task.upper()}"), split="test"),
            num_prompts={"humaneval": 80, "mbpp": 64}[task],
            num_samples=100,
            decoding=(family_settings[number],),
            max_tokens=256,
            template=ASK[task],
            chat=True,
            score=ProgramScore(ks=(1, 10, 100), fenced=True),
            not_in_paper=NOT_IN_PAPER,
        )
        for title, task in (("HumanEval", "humaneval"), ("MBPP", "mbpp"))
        for number in range(3)
        for family, family_settings in FAMILIES.items()
    ]
