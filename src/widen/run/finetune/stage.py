"""The train stage of real models: a `FineTune` in, a run folder with the trained model out. A finished model is not trained again.

    config.json env.json inputs.json log.jsonl summary.json checkpoint/ adapter/ (LoRA) resume/ (while it runs)

Under ``torchrun`` or ``accelerate launch`` every process calls `fine_tune`, and the first one writes. After a kill the same call
continues from the newest whole checkpoint in ``resume/``. Loop, optimizer and devices are handled by transformers and accelerate; the
loss is ours.
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from widen.disk.atomic_folder import write_folder
from widen.disk.checksums import check_files
from widen.disk.digest import weights_digest
from widen.disk.inside import tree_inside
from widen.disk.lock import hold
from widen.train.log import Log

from ..environment import environment
from ..folder import RunFolder, StageProgress, folder_of
from ..value import to_json
from .config import FineTune, decisive
from .defaults import Chosen, choose, refuse_warmups, steps_of
from .host_trainer import arguments, is_spread, loading_once, trainer_of, use
from .inputs import inputs, same_data, same_inputs
from .model_files import adapted, load_model, merged, write_model
from .packing import refuse_mixing
from .prepare import Prepared, Process, chain, prepare, process_of
from .reference import with_reference
from .summary import Summary, sampled, summarise, weight_change
from .token_data import DataFacts
from .watch import drop_others, newest_whole, same_spread, step_after, watcher

__all__ = ["OnData", "Say", "fine_tune", "inputs"]

_log = logging.getLogger("widen.run")
Say = Callable[[str], None]
"""Called with a sentence."""
OnData = Callable[[str, DataFacts], None]
"""Called with the name of a training and the counts of its data."""


def fine_tune(
    config: FineTune,
    root: str | Path,
    *,
    device: str | None = None,
    skip_bad: bool = False,
    progress: StageProgress | None = None,
    on_data: OnData | None = None,
    say: Say | None = None,
    about: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Train ``config.after`` and then ``config``, each in its own folder under ``root``; finished models are skipped.

    A finished model is refused if its sources are here and hold other examples than it was trained on. Otherwise all data is read,
    checked and tokenised before any weight is loaded.

    Args:
      device: "cuda" or "cpu"; None takes a GPU if there is one.
      skip_bad: leave out bad records, and count them, instead of refusing to start.
      progress: called with what is being trained, steps done, and steps in all.
      on_data: called with the name of each training and the counts of its data.
      say: called with sentences: what was chosen before each training, what came of it after. Without it only warnings are logged.
      about: more keys for the experiment in config.json, such as its name in tables.

    Returns:
      The folder of ``config``.
    """
    folder, cache = folder_of(root, config), dict[Any, Any]()
    if folder.is_trained:
        same_data(config, root, cache)
        return folder
    process = process_of(device, config)
    if config.after is not None:
        same_data(config.after, root, cache)
    waiting = [
        prepare(one, root, skip_bad=skip_bad, cache=cache, about=(about or {}) if one is config else {})
        for one in chain(config)
        if not folder_of(root, one).is_trained
    ]
    for one in waiting:
        refuse_warmups(one.config, steps=_steps(one, process))
    for one in waiting:
        what = f"{Path(one.config.model).name}, {one.config.loss}" + ("" if one.config is config else ", first")
        if on_data is not None and process.main:
            on_data(what, one.train.facts)
        with hold(one.folder.path) if process.main else nullcontext(), loading_once(one.config):
            _train(one, process, what, progress, say)
    return folder


def _steps(one: Prepared, process: Process) -> int:
    return steps_of(one.config, examples=one.train.facts.examples, processes=process.world)


def _train(one: Prepared, process: Process, what: str, progress: StageProgress | None, say: Say | None) -> None:
    """Train one model, from its newest whole checkpoint if there is one, and save it."""
    config, folder = one.config, one.folder
    resume = tree_inside(folder.path, folder.path / "resume")
    args = arguments(one, process, resume)
    if config.reference is not None:
        place = tree_inside(folder.path, folder.path)
        train = with_reference(config, one.train, place, process=process, device=args.device, spread=is_spread(config))
        one = replace(one, train=train)
    model = _start(one, args)
    chosen = choose(config, parameters=model.num_parameters(), steps=_steps(one, process))
    use(args, chosen)
    start: dict[str, Any] = {}
    if process.main:
        if say is not None:
            say(f"{what}: {chosen}")
        start = sampled(dict(model.named_parameters()))
        experiment = {"name": config.loss, **one.about, "model": decisive(to_json(config))}
        folder.claim(experiment, {**environment(), "processes": process.world}, decides=("model",))
        same_inputs(folder, one, weights_digest(model))
    if config.lora is not None:
        model = adapted(model, config.lora)
        if config.gradient_checkpointing:
            model.enable_input_require_grads()  # a frozen embedding passes no gradient to the first checkpointed layer
    checkpoint, spread = newest_whole(resume), is_spread(config)
    same_spread(checkpoint, spread=spread)
    log = None
    if process.main:
        if checkpoint is not None:
            check_files(checkpoint)
        drop_others(resume, checkpoint)
        log = Log(folder.log, step=step_after(checkpoint))
    watch = watcher(
        log=log,
        resume=resume,
        what=what,
        first=step_after(checkpoint),
        progress=progress,
        main=process.main,
        evaluate=one.evaluate is not None,
        spread=spread,
    )
    try:
        trainer = trainer_of(one, model, args, watch)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        if log is not None:
            log.close()
    _write(one, trainer, process, chosen, start, say)
    del trainer, model
    gc.collect()


def _start(one: Prepared, args: Any) -> Any:
    """The model that training starts from; refused if packing is on and it would mix packed sequences."""
    from transformers import set_seed

    set_seed(one.config.seed)  # the adapter's first values
    model = load_model(one.start, precision=one.config.precision)
    model.config.use_cache = False  # with a cache, attention does not see where packed sequences begin
    if one.config.packing:
        if not is_spread(one.config):  # a model that FSDP spreads may be too large for one device
            model.to(args.device)
        refuse_mixing(model, [ids.tolist() for ids in one.train.ids[:2]])
    return model


def _write(
    one: Prepared, trainer: Any, process: Process, chosen: Chosen, start: dict[str, Any], say: Say | None
) -> None:
    """Write the summary, then the finished model in one move; then remove the checkpoints to resume from."""
    from accelerate import PartialState

    from widen.hosts.ema import EMA

    # gathers sharded weights, so every process must call it
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    model = trained = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    ema = trainer.pop_callback(EMA)
    if process.main:
        adapter = one.folder.path / "adapter"
        if one.config.lora is not None:
            write_folder(adapter, lambda folder: model.save_pretrained(folder, state_dict=state))
            model, state = merged(one.start, adapter, precision=one.config.precision), None
        end = sampled(dict(model.named_parameters()) if state is None else {name: state[name] for name in start})
        summary = summarise(one.folder, chosen, str(trainer.objective.weight), weight_change(start, end))
        _tell(summary, say)

        def write(folder: Path) -> None:
            write_model(model, one.tokenizer, state)(folder)
            if ema is not None:
                write_model(_averaged(one, trained, ema), one.tokenizer)(folder / "average")

        write_folder(one.folder.checkpoint, write)
        shutil.rmtree(one.folder.path / "resume", ignore_errors=True)
    PartialState().wait_for_everyone()


def _averaged(one: Prepared, trained: Any, ema: Any) -> Any:
    """The trained model with the running average of its weights; an adapter is merged into the model that it started from."""
    ema.copy_to(trained)
    if one.config.lora is None:
        return trained
    with TemporaryDirectory() as adapter:
        trained.save_pretrained(adapter)
        return merged(one.start, adapter, precision=one.config.precision)


def _tell(summary: Summary, say: Say | None) -> None:
    if say is not None:
        say(str(summary))
    if summary.warning:
        (say or _log.warning)(f"warning: {summary.warning}" if say else summary.warning)
