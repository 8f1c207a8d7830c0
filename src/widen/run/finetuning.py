"""The fine-tuning stage: a `FineTune` in, a run folder with the trained model out. What is trained already is not trained again.

    config.json env.json inputs.json log.jsonl summary.json checkpoint/ adapter/ (LoRA) resume/ (while it runs)

Under ``torchrun`` or ``accelerate launch`` every process calls `fine_tune`; the first one writes. Killed at any moment, the same call
goes on from the newest whole checkpoint in ``resume/``. The loop, the optimizer and the placing on devices are transformers' and
accelerate's own; the loss is ours.
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from widen.disk.checksums import check_files
from widen.disk.digest import weights_digest
from widen.disk.folder import write_folder
from widen.disk.inside import tree_inside
from widen.disk.lock import hold
from widen.train.log import Log

from .environment import environment
from .finetune import FineTune, decisive
from .finetune_data import DataFacts
from .finetune_defaults import Chosen, choose, refuse_warmups, steps_of
from .finetune_inputs import inputs, same_data, same_inputs
from .finetune_model import adapted, load_model, merged, write_model
from .finetune_packing import refuse_mixing
from .finetune_prepare import Place, Prepared, chain, folder_of, place_of, prepare
from .finetune_summary import Summary, sampled, summarise, weight_change
from .finetune_trainer import arguments, is_spread, loading_once, trainer_of, use
from .finetune_watch import drop_others, newest_whole, same_spread, step_after, watcher
from .folder import RunFolder
from .training import OnTraining, is_trained
from .value import to_json

__all__ = ["OnData", "Say", "fine_tune", "folder_of", "inputs"]

_log = logging.getLogger("widen.run")
Say = Callable[[str], None]
"""Called with a sentence."""
OnData = Callable[[str, DataFacts], None]
"""Called with what the data is for and what is in it."""


def fine_tune(
    config: FineTune,
    root: str | Path,
    *,
    device: str | None = None,
    skip_bad: bool = False,
    progress: OnTraining | None = None,
    on_data: OnData | None = None,
    say: Say | None = None,
    about: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Train ``config.after`` and then ``config`` itself; each in its own folder under ``root``, each skipped where it is finished.

    What is finished must have been trained on what its sources hold now, where they can be read. Every record of every other source is
    read, checked and tokenised before a weight is loaded.

    Args:
      device: "cuda" or "cpu"; None takes a GPU if there is one.
      skip_bad: leave out bad records, and count them, instead of refusing to start.
      progress: called with what is being trained and how far it is.
      on_data: called with the name of each training and the counts of its data.
      say: called with sentences: what was chosen before each training, what came of it after. Without it only warnings are logged.
      about: more keys for the experiment in config.json, such as its name in tables.

    Returns:
      The folder of ``config``.
    """
    folder, cache = folder_of(root, config), dict[Any, Any]()
    if is_trained(folder):
        same_data(config, root, cache)
        return folder
    place = place_of(device, config)
    if config.after is not None:
        same_data(config.after, root, cache)
    waiting = [
        prepare(one, root, skip_bad=skip_bad, cache=cache, about=(about or {}) if one is config else {})
        for one in chain(config)
        if not is_trained(folder_of(root, one))
    ]
    for one in waiting:
        refuse_warmups(one.config, steps=_steps(one, place))
    for one in waiting:
        what = f"{Path(one.config.model).name}, {one.config.loss}" + ("" if one.config is config else ", first")
        if on_data is not None and place.main:
            on_data(what, one.train.facts)
        with hold(one.folder.path) if place.main else nullcontext(), loading_once(one.config):
            _train(one, place, what, progress, say)
    return folder


def _steps(one: Prepared, place: Place) -> int:
    return steps_of(one.config, examples=one.train.facts.examples, processes=place.world)


def _train(one: Prepared, place: Place, what: str, progress: OnTraining | None, say: Say | None) -> None:
    """Train one model, from its newest whole checkpoint if there is one, and write it."""
    config, folder = one.config, one.folder
    resume = tree_inside(folder.path, folder.path / "resume")
    args = arguments(one, place, resume)
    model = _start(one, args)
    chosen = choose(config, parameters=model.num_parameters(), steps=_steps(one, place))
    use(args, chosen)
    start: dict[str, Any] = {}
    if place.main:
        if say is not None:
            say(f"{what}: {chosen}")
        start = sampled(dict(model.named_parameters()))
        experiment = {"name": config.loss, **one.about, "model": decisive(to_json(config))}
        folder.claim(experiment, {**environment(), "processes": place.world}, decides=("model",))
        same_inputs(folder, one, weights_digest(model))
    if config.lora is not None:
        model = adapted(model, config.lora)
        if config.gradient_checkpointing:
            model.enable_input_require_grads()  # the frozen embedding hands no gradient to the first checkpointed layer
    checkpoint, spread = newest_whole(resume), is_spread(config)
    same_spread(checkpoint, spread=spread)
    log = None
    if place.main:
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
        main=place.main,
        evaluate=one.evaluate is not None,
        spread=spread,
    )
    try:
        trainer = trainer_of(one, model, args, watch)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        if log is not None:
            log.close()
    _write(one, trainer, place, chosen, start, say)
    del trainer, model
    gc.collect()


def _start(one: Prepared, args: Any) -> Any:
    """The model that training starts from; one that would mix packed sequences is refused."""
    from transformers import set_seed

    set_seed(one.config.seed)  # the adapter's first values
    model = load_model(one.start, precision=one.config.precision)
    model.config.use_cache = False  # a cache would also keep attention from seeing where packed sequences begin
    if one.config.packing:
        if not is_spread(one.config):  # a model that FSDP spreads may be too large for one device
            model.to(args.device)
        refuse_mixing(model, [ids.tolist() for ids in one.train.ids[:2]])
    return model


def _write(one: Prepared, trainer: Any, place: Place, chosen: Chosen, start: dict[str, Any], say: Say | None) -> None:
    """Write the summary, then the finished model in one move; then remove what the run could have been resumed from."""
    from accelerate import PartialState

    # gathers what is spread over devices, so every process takes part
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    if place.main:
        adapter = one.folder.path / "adapter"
        if one.config.lora is not None:
            write_folder(adapter, lambda folder: model.save_pretrained(folder, state_dict=state))
            model, state = merged(one.start, adapter, precision=one.config.precision), None
        end = sampled(dict(model.named_parameters()) if state is None else {name: state[name] for name in start})
        summary = summarise(one.folder, chosen, str(trainer.objective.weight), weight_change(start, end))
        _tell(summary, say)
        write_folder(one.folder.checkpoint, write_model(model, one.tokenizer, state))
        shutil.rmtree(one.folder.path / "resume", ignore_errors=True)
    PartialState().wait_for_everyone()


def _tell(summary: Summary, say: Say | None) -> None:
    if say is not None:
        say(str(summary))
    if summary.warning:
        (say or _log.warning)(f"warning: {summary.warning}" if say else summary.warning)
