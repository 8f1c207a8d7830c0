"""HumanEval and MBPP, zero-shot in chat form: what decoding alone brings, by running every program.

Four families of decodings have three settings each: a temperature alone, min-p before and after the heat, and top-p before it. Each
decoding is one experiment, so that a run that was stopped has whole results. The model's answer begins with a block of code, so that it
writes a program and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Benchmark(NamedTuple):
    """A data set of programming problems.

    Args:
      task: of widen.
      num: the first problems that are asked.
      ask: what the user says.
      begun: how the block of code in the answer begins.
      stop: strings that end the program, besides the end of the block.
    """

    task: str
    num: int
    ask: str
    begun: str
    stop: tuple[str, ...]


BENCHMARKS = {
    "HumanEval": Benchmark(
        task="humaneval",
        num=80,
        ask="Complete this Python function. Answer with the whole function in one ```python block, without explanations.\n\n"
        "```python\n{prompt}```",
        begun="{prompt}",
        stop=("\ndef ", "\nclass ", "\nif ", "\nprint(", "\n#", "\nassert "),
    ),
    "MBPP": Benchmark(
        task="mbpp",
        num=64,
        ask="Write the Python function that this docstring asks for. It must pass the tests in it. Answer with the code in one ```python "
        "block, without explanations.\n\n{prompt}",
        begun="",
        stop=("\nif ", "\nprint(", "\n#", "\nassert "),
    ),
}
CHAT = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n```python\n{begun}"
)
"""The chat template of Qwen2.5, with a block of code begun in the answer."""
NOT_IN_PAPER = {
    "task": "the first 80 problems of HumanEval and the first 64 of MBPP; the paper has neither",
    "prompt": "one message of the user by the model's chat template; the answer begins with ```python and, on HumanEval, the head of the "
    "function; MBPP shows its tests",
    "program": "the answer up to the end of the block, or to a line outside a function that starts with if, print, assert, a comment sign "
    "or, on HumanEval, def or class; HumanEval's head of the function stands before it",
    "max_tokens": "256",
    "judge": "10 s and 512 MiB a program with all its tests, no network, no files",
}


def code() -> list[Experiment]:
    """Decodings of a code model as it is, in chat form, on HumanEval and MBPP; pass@1 to pass@100."""
    return _every_decoding(ks=(1, 10, 100))


def code_small() -> list[Experiment]:
    """The same for two CPU cores: 20 programs for each problem; pass@1 to pass@20."""
    return _every_decoding(ks=(1, 5, 20))


def _every_decoding(ks: tuple[int, ...]) -> list[Experiment]:
    return [
        Experiment(
            name=f"{title}, {family}",
            model=path_of("WIDEN_QWEN"),
            prompts=Source(task=asked.task, path=path_of(f"WIDEN_{asked.task.upper()}"), split="test"),
            num_prompts=asked.num,
            num_samples=max(ks),
            decoding=(settings[number],),
            max_tokens=256,
            template=CHAT.replace("{ask}", asked.ask).replace("{begun}", asked.begun),
            stop=("\n```", *asked.stop),
            score=ProgramScore(ks=ks),
            not_in_paper=NOT_IN_PAPER,
        )
        for title, asked in BENCHMARKS.items()
        for number in range(3)
        for family, settings in FAMILIES.items()
    ]
