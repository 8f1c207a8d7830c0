"""Writes an engine's samples to files, one file per setting. It can be stopped at any moment and continues where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from .decoding import Settings
from .engine import Engine, Sample
from .prompts import Prompt, unique
from .samples_file import read_samples
from .writer import SamplesWriter


class SamplingProgress(NamedTuple):
    """Number of samples on disk, and wanted there."""

    done: int
    total: int


def collect(
    engine: Engine,
    prompts: Sequence[Prompt],
    settings: Sequence[Settings],
    *,
    num: int,
    folder: str | Path,
    progress: Callable[[SamplingProgress], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> list[Path]:
    """Draw samples 0 .. num - 1 of every prompt under every setting that are not in `folder` yet.

    Args:
      num: samples per prompt. A larger number later adds to the same files.
      folder: files are ``<settings>.jsonl``, named by :attr:`Settings.name`.
      progress: called after each write.
      notice: called with a sentence when an incomplete line was repaired.

    Returns:
      The files, in the order of the settings.
    """
    if num < 1:
        raise ValueError(f"num={num}: must be at least 1")
    prompts, progress = unique(prompts), progress or (lambda _: None)
    files = {setting.name: Path(folder) / f"{setting.name}.jsonl" for setting in settings}
    if len(files) != len(settings):
        raise ValueError("two of the settings draw alike: each file is drawn once")
    engine.check(settings, prompts)
    identity = engine.identity()
    with ExitStack() as stack:
        writers: dict[str, SamplesWriter] = {}
        for setting, path in zip(settings, files.values(), strict=True):
            writer = stack.enter_context(SamplesWriter(path, settings=setting, identity=identity, prompts=prompts))
            if writer.repaired and notice is not None:
                notice(
                    f"{path}: cut off an incomplete line of {writer.repaired} bytes at the end; its sample is drawn again"
                )
            writers[setting.name] = writer
        done = sum(writer.has(p.id, i) for writer in writers.values() for p in prompts for i in range(num))
        total = len(prompts) * num * len(writers)
        progress(SamplingProgress(done, total))
        for setting, samples in engine.draw(
            prompts, settings, num=num, have=lambda s, prompt, index: writers[s.name].has(prompt, index)
        ):
            done += writers[setting.name].append(samples)
            progress(SamplingProgress(done, total))
    return list(files.values())


class Difference(NamedTuple):
    """Two files of one model and setting, compared sample by sample."""

    compared: int
    differ: int


def difference(first: str | Path, second: str | Path) -> Difference:
    """Count the samples that differ among those in both files: the effect of another batch size, device or dtype."""

    def content(sample: Sample) -> object:
        return sample.ids if sample.ids is not None else (sample.text, sample.finish)

    one, other = ({(s.prompt, s.index): content(s) for s in read_samples(path)} for path in (first, second))
    both = one.keys() & other.keys()
    return Difference(len(both), sum(one[at] != other[at] for at in both))
