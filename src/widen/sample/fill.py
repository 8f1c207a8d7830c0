"""An engine's samples into files, one file a setting: stopped at any moment, it goes on where it was."""

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

__all__ = ["Difference", "SamplingProgress", "collect", "difference"]


class SamplingProgress(NamedTuple):
    """How far a collection is. `done` counts what was on disk before as well; `drawn` and `tokens` do not."""

    done: int
    total: int
    drawn: int
    tokens: int


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
      num: samples a prompt. A larger number later adds to the same files.
      folder: files are ``<settings>.jsonl``, named by :attr:`Settings.name`.
      progress: called after each write.
      notice: called with a sentence when a torn end was repaired.

    Returns:
      The files, in the order of the settings.
    """
    if num < 1:
        raise ValueError(f"num={num}: must be at least 1")
    prompts = unique(prompts)
    by_name = {setting.name: setting for setting in settings}
    if len(by_name) != len(settings):
        raise ValueError("two of the settings draw alike: each file is drawn once")
    engine.check(settings, prompts)
    identity = engine.identity()
    with ExitStack() as stack:
        writers = {}
        for name, setting in by_name.items():
            path = Path(folder) / f"{name}.jsonl"
            writer = stack.enter_context(SamplesWriter(path, settings=setting, identity=identity, prompts=prompts))
            if writer.repaired and notice is not None:
                notice(
                    f"{path}: a torn line of {writer.repaired} bytes at its end was cut off; that sample is drawn again"
                )
            writers[name] = writer
        wanted = {(p.id, i) for p in prompts for i in range(num)}
        done, drawn, tokens = sum(w.has(*at) for w in writers.values() for at in wanted), 0, 0
        total = len(wanted) * len(writers)
        if progress is not None:
            progress(SamplingProgress(done, total, 0, 0))
        for setting, samples in engine.draw(
            prompts, settings, num=num, have=lambda s, prompt, index: writers[s.name].has(prompt, index)
        ):
            new = writers[setting.name].append(samples)
            drawn += new
            tokens += sum(sample.num_tokens or 0 for sample in samples)
            if progress is not None:
                progress(SamplingProgress(done + drawn, total, drawn, tokens))
    return [Path(folder) / f"{name}.jsonl" for name in by_name]


class Difference(NamedTuple):
    """Two files of one model and setting, sample by sample."""

    compared: int
    differ: int

    @property
    def share(self) -> float:
        """The share of samples that are not the same."""
        return self.differ / self.compared if self.compared else 0.0


def difference(first: str | Path, second: str | Path) -> Difference:
    """How many samples that both files hold are not the same: what another batch shape, device or dtype changed."""

    def content(sample: Sample) -> object:
        return sample.ids if sample.ids is not None else (sample.text, sample.finish)

    one, other = ({(s.prompt, s.index): content(s) for s in read_samples(path)} for path in (first, second))
    both = one.keys() & other.keys()
    return Difference(len(both), sum(one[at] != other[at] for at in both))
