"""The train stage of real models: a `FineTune` in, a run folder with the trained model out. A finished model is not trained again.

    config.json env.json inputs.json log.jsonl summary.json checkpoint/ adapter/ (LoRA) resume/ (while it runs)

Under ``torchrun`` or ``accelerate launch`` every process calls `fine_tune`, and the first one writes. After a kill the same call
continues from the newest complete checkpoint in ``resume/``. transformers and accelerate run the loop; the loss is ours.
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from widen.disk.atomic import write_text
from widen.disk.atomic_folder import write_folder
from widen.disk.checksums import check_files
from widen.disk.digest import weights_digest
from widen.disk.inside import tree_inside
from widen.disk.lock import hold
from widen.train.log import Log

from ..environment import environment
from ..folder import RunFolder, Say, StageProgress, folder_of, silent
from ..value import to_json
from .config import FineTune, decisive
from .defaults import Chosen, choose, refuse_warmups, steps_of
from .host_trainer import Process, is_spread, loading_once, process_of, trainer_of, training_arguments
from .model_files import adapted, check_packages, load_model, load_tokenizer, merged, saved_dtype, write_model
from .packing import refuse_mixing
from .reference_column import with_reference
from .summary import sampled, summarise, weight_change
from .token_data import TokenData, load_data, refuse_misfit, same_data, same_inputs
from .watch import drop_others, newest_whole, same_spread, step_after, watcher

_log = logging.getLogger("widen.run")


def fine_tune(
    config: FineTune,
    root: str | Path,
    *,
    device: str | None = None,
    skip_bad: bool = False,
    progress: StageProgress = silent,
    say: Say | None = None,
    about: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Train ``config.after`` and then ``config``, each in its own folder under ``root``; finished models are skipped.

    A finished model is refused if its data is on this machine and has changed. All data is read, checked and tokenised before any weight
    is loaded.

    Args:
      device: "cuda" or "cpu"; None takes a GPU if there is one.
      skip_bad: skip bad records, and count them, instead of refusing to start.
      progress: called with (what, steps done, steps in all).
      say: called with sentences about the data, the chosen settings and the result. Without it only warnings are logged.
      about: more keys for the experiment in config.json, such as its name in tables.

    Returns:
      The folder of ``config``.
    """
    folder, cache = folder_of(root, config), dict[Any, TokenData]()
    if folder.is_trained:
        same_data(config, root, cache)
        return folder
    for one in config.chain:
        check_packages(one)
    process = process_of(device, config)
    if not process.main:
        progress, say = silent, None
    if config.after is not None:
        same_data(config.after, root, cache)
    waiting = [
        (one, {key: load_data(one, source, cache, skip_bad=skip_bad) for key, source in one.sources.items()})
        for one in config.chain
        if not folder_of(root, one).is_trained
    ]
    for one, data in waiting:
        tokenizer = load_tokenizer(one.model)
        for found in data.values():
            refuse_misfit(one, tokenizer, found)
        refuse_warmups(one, steps=_steps(one, data, process))
    for one, data in waiting:
        what = f"{Path(one.model).name}, {one.loss}" + ("" if one is config else ", first")
        if say is not None:
            say(f"{what}: {data['train'].facts}")
        with hold(folder_of(root, one).path) if process.main else nullcontext(), loading_once(one):
            mine = (about or {}) if one is config else {}
            _train(one, data, root, process, what=what, about=mine, progress=progress, say=say)
    return folder


def _steps(config: FineTune, data: dict[str, TokenData], process: Process) -> int:
    return steps_of(config, examples=len(data["train"]), processes=process.world)


def _train(
    config: FineTune,
    data: dict[str, TokenData],
    root: str | Path,
    process: Process,
    *,
    what: str,
    about: Mapping[str, Any],
    progress: StageProgress,
    say: Say | None,
) -> None:
    """Train one model, from its newest complete checkpoint if there is one, and save it."""
    from transformers import set_seed

    folder, tokenizer = folder_of(root, config), load_tokenizer(config.model)
    start = str(folder_of(root, config.after).checkpoint) if config.after else config.model
    resume = tree_inside(folder.path, folder.path / "resume")
    steps = _steps(config, data, process)
    epoch = _steps(replace(config, epochs=1, max_steps=-1), data, process)
    eval_steps = config.eval_steps or epoch
    args = training_arguments(config, process, resume, eval_steps=eval_steps)
    if config.reference is not None:
        place, spread = tree_inside(folder.path, folder.path), is_spread(config)
        train = with_reference(config, data["train"], place, process=process, device=args.device, spread=spread)
        data = {**data, "train": train}
    set_seed(config.seed)  # for the adapter's first values
    model = load_model(start, precision=config.precision, four_bit_on=args.device if config.load_in_4bit else None)
    model.config.use_cache = False  # with a cache, attention does not see where packed sequences begin
    if config.packing:
        if not is_spread(config) and not config.load_in_4bit:  # a model for FSDP may be too large for one device
            model.to(args.device)
        refuse_mixing(model, [ids.tolist() for ids in data["train"].ids[:2]])
    chosen = choose(config, parameters=model.num_parameters(), steps=steps)
    if say is not None:
        say(f"{what}: {chosen}")
    before: dict[str, Any] = {}
    if process.main:
        before = sampled(dict(model.named_parameters()))
        experiment = {"name": config.loss, **about, "model": decisive(to_json(config))}
        folder.claim(experiment, {**environment(), "processes": process.world})
        same_inputs(folder, config, data, weights_digest(model))
    if config.lora is not None:
        model = adapted(model, config.lora)
        if config.gradient_checkpointing:
            model.enable_input_require_grads()  # a frozen embedding passes no gradient to the first checkpointed layer
    checkpoint = newest_whole(resume, before=steps)
    same_spread(checkpoint, spread=is_spread(config))
    log = None
    if process.main:
        if checkpoint is not None:
            check_files(checkpoint)
        drop_others(resume, checkpoint)
        log = Log(folder.log, step=step_after(checkpoint))
    watch = watcher(
        log=log,
        resume=resume,
        first=step_after(checkpoint),
        progress=partial(progress, what),
        evaluate_every=eval_steps if "evaluate" in data else 0,
        keep_best=config.patience is not None,
        spread=is_spread(config),
        say=lambda text: say(f"{what}: {text}") if say is not None else None,
    )
    try:
        trainer = trainer_of(config, model, tokenizer, data, args, chosen, watch)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        if log is not None:
            log.close()
    _write(config, folder, start, trainer, tokenizer, process, chosen, before, say)
    del trainer, model
    gc.collect()


def _write(
    config: FineTune,
    folder: RunFolder,
    start: str,
    trainer: Any,
    tokenizer: Any,
    process: Process,
    chosen: Chosen,
    before: dict[str, Any],
    say: Say | None,
) -> None:
    """Write the summary, then the finished model atomically; then remove the checkpoints to resume from."""
    from accelerate import PartialState

    from widen.hosts.ema import EMA

    from ..model_card import card_text

    # Gathers sharded weights, so every process must call it.
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    model = trained = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    ema = trainer.pop_callback(EMA)
    if process.main:
        adapter = folder.path / "adapter"
        if config.lora is not None:
            write_folder(adapter, lambda path: model.save_pretrained(path, state_dict=state))
            base = load_model(start, precision=config.precision)  # training may have sharded or quantised it
            if config.load_in_4bit:
                before = sampled(dict(base.named_parameters()))
            model, state = merged(base, adapter), None
        after = sampled(dict(model.named_parameters()) if state is None else {name: state[name] for name in before})
        change, lowest = weight_change(before, after), config.patience is not None
        summary = summarise(folder, chosen, str(trainer.objective.weight), change, lowest=lowest)
        if say is not None:
            say(str(summary))
        if summary.warning:
            (say or _log.warning)(f"warning: {summary.warning}" if say else summary.warning)
        dtype = saved_dtype(config)

        def write(path: Path) -> None:
            write_model(model, tokenizer, state, dtype=dtype)(path)
            write_text(path / "README.md", card_text(folder))
            if ema is not None:
                write_model(_averaged(config, start, trained, ema), tokenizer, dtype=dtype)(path / "average")

        write_folder(folder.checkpoint, write)
        shutil.rmtree(folder.path / "resume", ignore_errors=True)
    PartialState().wait_for_everyone()


def _averaged(config: FineTune, start: str, trained: Any, ema: Any) -> Any:
    """The trained model with the running average of its weights; an adapter is merged into the model that it started from."""
    ema.copy_to(trained)
    if config.lora is None:
        return trained
    with TemporaryDirectory() as adapter:
        trained.save_pretrained(adapter)
        return merged(load_model(start, precision=config.precision), adapter)
