"""Small forms of the text recipes: a random model of a few thousand weights and a handful of examples.

They run a recipe from end to end in seconds on a CPU. Their numbers mean nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_bytes, write_text
from widen.disk.digest import file_digest
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import KnnScore, ProgramScore, SlotScore, SupportScore

RECORDS: dict[str, list[dict[str, Any]]] = {
    "mathqa_python": [
        {"question": f"what is {a} plus {b} ?", "program": f"answer = {a}.0 + {b}.0", "answer": a + b}
        for a in (1, 2, 3)
        for b in (4, 5, 6, 7)
    ],
    "writing_prompts": [
        {"prompt": f"A {who} finds a {what}.", "story": f"The {who} took the {what} home and slept."}
        for who in ("cat", "king", "child", "thief")
        for what in ("key", "map", "door")
    ],
    "codecontests": [
        {
            "description": f"Read a number and print it plus {n}.",
            "solution": f"print(int(input()) + {n})",
            "test_list": [{"input": "1\n", "output": f"{1 + n}\n"}, {"input": "5\n", "output": f"{5 + n}\n"}],
        }
        for n in range(12)
    ],
    "mbpp": [
        {
            "text": f"Write a function to add {n}.",
            "code": f"def f(x): return x + {n}",
            "test_list": [f"assert f(1) == {n + 1}"],
        }
        for n in range(3)
    ],
    "humaneval": [
        {
            "prompt": f'def f(x):\n    """Add {n}."""\n',
            "canonical_solution": f"    return x + {n}\n",
            "entry_point": "f",
            "test": f"def check(candidate):\n    assert candidate(1) == {n + 1}\n",
        }
        for n in range(3)
    ],
    "alpaca": [
        {"instruction": f"Count to {n}.", "input": "", "output": " ".join(map(str, range(n)))} for n in range(1, 13)
    ],
    "jsonl": [{"prompt": f"{n} 1>{n + 1}:", "completion": f"{n}+1={n + 1}"} for n in range(1, 13)],
    "answers": [
        {"prompt": f"{n} 1>{n}:", "answers": [f"{n}*1={n}", [f"{n}/1={n}", f"{n}:1={n}"]]} for n in range(2, 8)
    ],
}
RECORDS["e2e"] = [
    {"mr": f"name[{name}], area[{area}]", "refs": [f"{name} is a {area} place.", f"{name}, {area}."]}
    for name in ("Aromi", "Cotto", "Zizzi")
    for area in ("riverside", "city centre")
]
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}"


@lru_cache(maxsize=1)
def folder() -> Path:
    """Temporary folder with the model and a file per task, made if missing.

    Its path depends on the content of this file alone, so every process finds the same run folders. Several may make it at once.
    """
    place = Path(tempfile.gettempdir()) / f"widen-tiny-{file_digest(__file__)[:12]}"
    if place.exists() and not os.access(place, os.W_OK):  # made by another user
        place = place.with_name(f"{place.name}-{getattr(os, 'getuid', os.getpid)()}")
    for task, records in RECORDS.items():
        if not (place / f"{task}.jsonl").is_file():
            write_text(place / f"{task}.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    if not all((place / "model" / name).is_file() for name in MODEL_FILES):
        with tempfile.TemporaryDirectory(
            prefix="widen-tiny-part-", dir=place.parent, ignore_cleanup_errors=True
        ) as part:
            _make_model(Path(part) / "model")
            for name in MODEL_FILES:
                write_bytes(place / "model" / name, (Path(part) / "model" / name).read_bytes())
    return place


def _make_model(path: Path) -> None:
    """A Llama of one layer over bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "</s>", *letters])}
    tokens = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)


def first_seeds(recipe: Iterable[Experiment], names: Collection[str] = ()) -> list[Experiment]:
    """The small form of a recipe: its experiments of seed 0, or those among them with one of these names."""
    return [shrink(one) for one in recipe if one.seed == 0 and (not names or one.name in names)]


def shrink(experiment: Experiment) -> Experiment:
    """The same experiment on the tiny model and data: two training steps, two prompts (six for k-NN), eight tokens."""
    score, number, samples = experiment.score, 2, 2
    if isinstance(score, KnnScore):
        score, number, samples = replace(score, embedder=str(folder() / "model"), samples=None), 6, 1
    elif isinstance(score, SlotScore):
        score, number = replace(score, embedder=str(folder() / "model"), k=1), 4
    elif isinstance(score, ProgramScore):
        score = replace(score, ks=(1, 2))
    elif isinstance(score, SupportScore):
        score = replace(score, max_length=256)
    model = experiment.model
    return replace(
        experiment,
        model=_small(model) if isinstance(model, FineTune) else str(folder() / "model"),
        prompts=_source(experiment.prompts) if experiment.prompts else None,
        num_prompts=number,
        num_samples=samples,
        decoding=experiment.decoding[:2],
        max_tokens=8,
        dtype="float32",
        score=score,
    )


def _small(model: FineTune) -> FineTune:
    return replace(
        model,
        model=str(folder() / "model"),
        train=_source(model.train),
        evaluate=_source(model.evaluate) if model.evaluate is not None else None,
        after=_small(model.after) if model.after is not None else None,
        precision="fp32",
        max_length=128,
        gradient_checkpointing=False,
        max_steps=2,
        batch_size=4,
        micro_batch=4,
        warmup_steps=0,
    )


def _source(source: Source) -> Source:
    return Source(task=source.task, path=str(folder() / f"{source.task}.jsonl"))
