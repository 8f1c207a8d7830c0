"""The sample stage: every prompt, sample and decoding of one model into its run folder; the model is loaded once for all of them.

Complete files are left alone, and if all are complete the model is not opened. Large models are sampled from servers: each experiment
goes to the servers that serve its model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from widen.disk.inside import tree_inside
from widen.sample import (
    Engine,
    LocalEngine,
    Prompt,
    Samples,
    SamplingProgress,
    ServerEngine,
    Settings,
    collect,
    read_samples,
)
from widen.sample.engines.completions import listed_models
from widen.sample.engines.http import Client, Refusal

from .experiment import Experiment
from .folder import RunFolder, StageProgress
from .questions import Question, prompts_for

Notice = Callable[[str], None]
ROWS = {"cuda": 16_384, "cpu": 256}
"""The most rows drawn at a time. On a GPU a step costs the same Python at any number of rows, so many rows are cheap."""


def missing(folder: RunFolder, experiment: Experiment, questions: Sequence[Question]) -> list[Settings]:
    """The settings whose samples are not all on disk yet."""
    return [setting for setting in experiment.settings if not _holds(folder, setting, experiment, questions)]


def _holds(folder: RunFolder, setting: Settings, experiment: Experiment, questions: Sequence[Question]) -> bool:
    path = folder.samples(setting.name)
    if not path.exists():
        return False
    have = {(sample.prompt, sample.index) for sample in read_samples(path)}
    return all((one.id, index) in have for one in questions for index in range(experiment.num_samples))


def texts_of(
    folder: RunFolder, setting: Settings, experiment: Experiment, questions: Sequence[Question]
) -> list[tuple[str, str]]:
    """(prompt id, text) of the experiment's own samples in one file, in the order of the prompts."""
    found: Samples = read_samples(folder.samples(setting.name))
    have = {(sample.prompt, sample.index): sample.text for sample in found}
    return [(one.id, have[one.id, index]) for one in questions for index in range(experiment.num_samples)]


class Models:
    """Opens the engine of an experiment and keeps the last one, since experiments of one model follow each other.

    Args:
      device: of local models.
      servers: base URLs; if there are any, only the models that they serve are sampled.
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
            self._engine.name = experiment.folder_name  # what the samples files say, wherever they were drawn
            self._path = path
        return self._engine

    def server(self, experiment: Experiment, folder: RunFolder) -> Engine | None:
        """An engine over the servers that serve this model; None if none does."""
        path = str(weights_of(experiment, folder))
        known = (path, experiment.base, experiment.folder_name)
        urls: dict[str, list[str]] = {}
        for url in self.servers:
            listed = served(url)
            # A server that lists nothing (`transformers serve` without a network) opens whatever it is questions for.
            name = path if listed is None else next((name for name in known if name in listed), None)
            if name is not None:
                urls.setdefault(name, []).append(url)
        for name, found in urls.items():
            return ServerEngine(found, model=name)
        return None

    def close(self) -> None:
        """Free the model's memory."""
        self._path, self._engine = "", None
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()


def weights_of(experiment: Experiment, folder: RunFolder) -> Path | str:
    """Where the weights are: the run's checkpoint, or the model as it was named."""
    if not isinstance(experiment.model, str):
        return folder.checkpoint
    checkpoint = Path(experiment.model) / "checkpoint"  # a run folder stands for its checkpoint
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
    progress: StageProgress | None = None,
    notice: Notice | None = None,
) -> bool:
    """Draw what is missing; False if no server serves the model."""
    left = missing(folder, experiment, questions)
    if not left:
        return True

    def at(now: SamplingProgress) -> None:
        if progress is not None:
            progress(f"sample {experiment.name}, seed {experiment.seed}", now.done, now.total)

    def draw(engine: Engine, prompts: list[Prompt]) -> None:
        where = folder.samples("").parent
        collect(engine, prompts, left, num=experiment.num_samples, folder=where, progress=at, notice=notice)

    if not models.servers:
        _draw_locally(models, folder, experiment, questions, left, draw, notice or (lambda text: None))
        return True
    engine = models.server(experiment, folder)
    if engine is not None:
        draw(engine, prompts_for(questions, _tokenizer(experiment, folder) if experiment.chat else None))
    return engine is not None


def _draw_locally(
    models: Models,
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question],
    left: Sequence[Settings],
    draw: Callable[[Engine, list[Prompt]], None],
    tell: Notice,
) -> None:
    """Draw as many rows at a time as fit. Halves them when memory runs out; what is on disk stays."""
    engine = models.local(experiment, folder)
    prompts = prompts_for(questions, engine.tokenizer if experiment.chat else None)
    longest = max(len(ids) for ids in engine.tokenizer([prompt.text for prompt in prompts]).input_ids)
    guided = any(setting.decoding.kl_sigma is not None for setting in left)
    rows = models.rows or rows_that_fit(engine.model, longest + experiment.max_tokens, guided=guided)
    while True:
        engine.batch = rows
        try:
            return draw(engine, prompts)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            rows = max(1, rows // 2)
        tell(f"{experiment.name}: out of memory at {2 * rows} rows; continuing with {rows} at a time")
        torch.cuda.empty_cache()


def _tokenizer(experiment: Experiment, folder: RunFolder) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(weights_of(experiment, folder)), trust_remote_code=False)


def rows_that_fit(model: Any, positions: int, *, guided: bool = False) -> int:
    """How many rows of ``positions`` tokens fit into seven tenths of the free memory, with their keys, values and logits.

    Args:
      model: on its device.
      positions: prompt and continuation.
      guided: KL guidance needs a second stream.
    """
    device = model.device
    most = ROWS.get(device.type, 256)
    if device.type != "cuda":
        return most
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    a_token = 2 * config.num_hidden_layers * heads * width * torch.finfo(model.dtype).bits // 8
    logits = 4 * 4 * config.vocab_size  # float32, with the copies that tempering and drawing make
    torch.cuda.empty_cache()  # so that the driver counts torch's reserve as free
    free = torch.cuda.mem_get_info(device)[0]
    row = (a_token * positions + logits) * (2 if guided else 1)
    return int(max(1, min(most, free * 7 // 10 // row)))
