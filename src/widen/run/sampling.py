"""The sample stage: all prompts, samples and decodings of one model. The model is loaded once, and not at all if its files are complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from widen.disk.inside import tree_inside
from widen.sample import (
    Engine,
    LocalEngine,
    Sample,
    ServerEngine,
    Settings,
    collect,
    read_samples,
)
from widen.sample.engines.completions import listed_models
from widen.sample.engines.http import Client, Refusal

from .experiment import Experiment
from .folder import RunFolder, Say, StageProgress, silent
from .questions import Question, prompts_for

ROWS = {"cuda": 16_384, "cpu": 256}
"""The most rows drawn at a time."""


def missing(folder: RunFolder, experiment: Experiment, questions: Sequence[Question]) -> list[Settings]:
    """The settings whose samples are not all on disk."""
    wanted = {(one.id, index) for one in questions for index in range(experiment.num_samples)}

    def holds(path: Path) -> bool:
        return path.exists() and wanted <= {(sample.prompt, sample.index) for sample in read_samples(path)}

    return [setting for setting in experiment.settings if not holds(folder.samples(setting.name))]


def samples_of(
    folder: RunFolder, setting: Settings, experiment: Experiment, questions: Sequence[Question]
) -> list[Sample]:
    """The experiment's samples in one file, in the order of the prompts."""
    have = {(sample.prompt, sample.index): sample for sample in read_samples(folder.samples(setting.name))}
    return [have[one.id, index] for one in questions for index in range(experiment.num_samples)]


class Models:
    """Opens the engine of an experiment and keeps the last local one.

    Args:
      servers: base URLs; if given, only models that they serve are sampled.
      rows: drawn at a time; by default as many as fit into memory, up to `ROWS`.
    """

    def __init__(self, *, device: str, servers: Sequence[str] = (), rows: int | None = None) -> None:
        self.device, self.servers, self.rows = device, tuple(servers), rows
        self._path = ""
        self._engine: LocalEngine | None = None

    def local(self, experiment: Experiment, folder: RunFolder) -> LocalEngine:
        """The model in this process."""
        path = str(weights_of(experiment, folder))
        if self._path != path or self._engine is None:
            from transformers.utils import logging

            logging.disable_progress_bar()
            self.close()
            self._engine = LocalEngine.load(path, device=self.device, dtype=experiment.dtype)
            self._engine.name = experiment.folder_name  # samples files hold this name wherever they were drawn
            self._path = path
        return self._engine

    def server(self, experiment: Experiment, folder: RunFolder) -> Engine | None:
        """An engine over the servers that serve this model; None if none does."""
        path = str(weights_of(experiment, folder))
        known = (path, experiment.base, experiment.folder_name)
        urls: dict[str, list[str]] = {}
        for url in self.servers:
            listed = served(url)
            # A server that lists nothing (`transformers serve` without a network) opens any model by its path.
            name = path if listed is None else next((name for name in known if name in listed), None)
            if name is not None:
                urls.setdefault(name, []).append(url)
        return next((ServerEngine(found, model=name) for name, found in urls.items()), None)

    def close(self) -> None:
        """Free the model's memory."""
        self._path, self._engine = "", None
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()


def weights_of(experiment: Experiment, folder: RunFolder) -> Path | str:
    """The run's checkpoint, or the model as it was named; a run folder stands for its checkpoint."""
    if not isinstance(experiment.model, str):
        return folder.checkpoint
    checkpoint = Path(experiment.model) / "checkpoint"
    return tree_inside(experiment.model, checkpoint) if (checkpoint / "config.json").exists() else experiment.model


def served(url: str) -> set[str] | None:
    """Names of the models that a server lists; None if it lists none."""
    try:
        answer = Client(timeout=60.0).request(url.rstrip("/").removesuffix("/v1"), "/v1/models")
    except Refusal:
        return None
    return {str(model.get("id")) for model in listed_models(answer, url)} or None


def sample(
    models: Models,
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question],
    *,
    progress: StageProgress = silent,
    notice: Say = lambda text: None,
) -> None:
    """Draw the missing samples. If no server serves the model, it is skipped with a notice."""
    left = missing(folder, experiment, questions)
    if not left:
        return
    engine = models.server(experiment, folder) if models.servers else models.local(experiment, folder)
    if engine is None:
        notice(f"{experiment.name}: none of the servers serves {experiment.base} ({folder.path}); it is skipped")
        return
    tokenizer = engine.tokenizer if isinstance(engine, LocalEngine) else None
    if tokenizer is None and experiment.chat:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(weights_of(experiment, folder)), trust_remote_code=False)
    prompts = prompts_for(questions, tokenizer if experiment.chat else None)
    rows = 0
    if isinstance(engine, LocalEngine):
        longest = max(len(one.ids or engine.tokenizer(one.text).input_ids) for one in prompts)
        guided = any(setting.decoding.kl_sigma is not None for setting in left)
        rows = models.rows or rows_that_fit(engine.model, longest + experiment.max_tokens, guided=guided)
    what, where = f"sample {experiment.name}, seed {experiment.seed}", folder.samples("").parent
    while True:
        if isinstance(engine, LocalEngine):
            engine.batch = rows
        try:
            collect(
                engine,
                prompts,
                left,
                num=experiment.num_samples,
                folder=where,
                progress=lambda now: progress(what, now.done, now.total),
                notice=notice,
            )
            return
        except torch.OutOfMemoryError:
            if rows <= 1:
                raise
        rows //= 2  # the samples drawn so far are on disk
        notice(f"{experiment.name}: out of memory at {2 * rows} rows; continuing with {rows} at a time")
        torch.cuda.empty_cache()


def rows_that_fit(model: Any, positions: int, *, guided: bool = False) -> int:
    """How many rows of ``positions`` tokens (prompt and continuation) fit into 70 % of the free memory of the model's device.

    A row needs its keys, values and logits; KL guidance (``guided``) needs them twice.
    """
    device = model.device
    most = ROWS.get(device.type, 256)
    if device.type != "cuda":
        return most
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    a_token = 2 * config.num_hidden_layers * heads * width * torch.finfo(model.dtype).bits // 8
    logits = 4 * 4 * config.vocab_size  # float32, and three copies for tempering and drawing
    torch.cuda.empty_cache()  # so that the driver counts torch's reserve as free
    free = torch.cuda.mem_get_info(device)[0]
    row = (a_token * positions + logits) * (2 if guided else 1)
    return int(max(1, min(most, free * 7 // 10 // row)))
