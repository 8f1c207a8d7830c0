"""A flipped bit in a file of ours: the meaning is unchanged, or an error names the file."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from widen.disk.json_file import read_json, write_sealed
from widen.hosts import state as host_state
from widen.judge.verdict import Verdict, VerdictFile
from widen.metrics.embed_cache import FeatureCache
from widen.models import checkpoint
from widen.models.convert import load_pretrained, save_pretrained
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.report.load import load
from widen.run.folder import RunFolder
from widen.run.record import Record, read_records, write_records
from widen.sample import Decoding, Sample, Settings, read_samples
from widen.sample.engine import Identity
from widen.sample.prompts import Prompt
from widen.sample.writer import SamplesWriter
from widen.train.log import Log

FLIPS = 16


def flips(path: Path, seed: int = 0):
    """Flip one bit of ``path`` after the other; the file is whole again after each."""
    whole, rng = path.read_bytes(), random.Random(seed)
    for _ in range(FLIPS):
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        yield at
        path.write_bytes(whole)


def check(path: Path, read, *, noticed: float = 0.5):
    """Read after each flip; the content is that of the whole file, or a ValueError names the file."""
    expected, errors = read(), []
    for at in flips(path):
        try:
            assert read() == expected, at
        except ValueError as error:
            errors.append(str(error))
    assert [error for error in errors if path.name not in error] == []
    assert len(errors) >= noticed * FLIPS  # the test does test something


def test_score_and_config_files(tmp_path):
    folder = RunFolder(tmp_path)
    about = {"task": "é" * 9, "model": "m", "loss": "nll", "decoding": Decoding(), "seed": 0}
    records = [Record(**about, metric=f"m{i}", value=1 / (i + 3), detail={"a": [i]}) for i in range(9)]
    write_records(folder, "exact", records)
    check(folder.scores("exact"), lambda: read_records(folder, "exact"))
    check(folder.scores("exact"), lambda: load(tmp_path).records)


def test_a_checkpoint_to_resume_from(tmp_path):
    saved = checkpoint.Checkpoint(3, {"weights": {"a": torch.arange(40.0)}}, {"mean": 0.5})
    path = checkpoint.save(tmp_path, saved)

    def read():
        found = checkpoint.load(path)
        return found.step, found.numbers, found.groups["weights"]["a"].tolist()

    for name in ("weights.safetensors", "checkpoint.json", "checksums.json"):
        check(path / name, read, noticed=0.9 if name != "checksums.json" else 0.5)


def test_the_weights_of_a_finished_model(tmp_path):
    save_pretrained(TinyLlama(LlamaShape(layers=1, dim=8, heads=2, hidden=8)), tmp_path)
    for name in ("model.safetensors", "config.json", "checksums.json"):
        check(tmp_path / name, lambda: load_pretrained(tmp_path).flat().tolist())


def test_weights_without_checksums_load_and_a_broken_file_is_named(tmp_path):
    save_pretrained(TinyLlama(LlamaShape(layers=1, dim=8, heads=2, hidden=8)), tmp_path)
    (tmp_path / "checksums.json").unlink()
    load_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a whole safetensors file"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        load_pretrained(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    path = checkpoint.save(tmp_path, checkpoint.Checkpoint(3, {"weights": {"a": torch.ones(2)}}, {}))
    (path / "weights.safetensors").unlink()
    with pytest.raises(ValueError, match=r"weights\.safetensors is missing"):
        checkpoint.load(path)


def test_the_state_of_a_loss_in_another_trainers_checkpoint(tmp_path):
    from widen.losses import parse
    from widen.train.objective import Objective

    def objective():
        return Objective(parse("truncr:drop=0.2,window=8"), weight_scale="raw")

    host_state.save_state(tmp_path, objective(), step=1)

    def read():
        found = objective()
        host_state.load_state(tmp_path, found)
        return str(found.state), found.mean_weight  # as text: nan is not nan

    for name in ("widen_loss.safetensors", "widen_loss.json"):
        check(tmp_path / name, read)


def test_samples(tmp_path):
    prompt, settings = Prompt(text="a"), Settings(decoding=Decoding.parse("t=1"))
    path = tmp_path / "samples" / "t=1.jsonl"
    identity = Identity(engine="local", name="m", model={"weights": "0"}, details={})
    with SamplesWriter(path, settings=settings, identity=identity, prompts=[prompt]) as writer:
        writer.append([Sample(prompt=prompt.id, index=i, text=f"b{i}", finish="stop") for i in range(6)])

    def read():
        found = read_samples(path)
        if found.torn:
            raise ValueError(f"{path.name}: {found.torn} bytes are torn")
        return [sample.text for sample in found]

    check(path, read)

    def page():
        found = load(tmp_path)
        if damage := [note for note in found.notes if "left out" in note]:
            raise ValueError(damage[0])
        return [sample.text for sample in found.samples[0].samples]

    check(path, page)


def test_prompts_beside_the_runs(tmp_path):
    from widen.run.experiment import Experiment
    from widen.run.finetune import Source
    from widen.run.questions import prompts_path, questions_of
    from widen.run.score_settings import SupportScore

    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"a {i}", "completion": f"b {i}"}) + "\n" for i in range(4)))
    experiment = Experiment(name="a", model="m", prompts=Source(task="jsonl", path=str(source)), score=SupportScore())
    questions_of(experiment, tmp_path)
    source.unlink()  # as on another machine: what was kept is all there is
    path = prompts_path(experiment, tmp_path)
    check(path, lambda: questions_of(experiment, tmp_path), noticed=1.0)
    check(path.with_name(f"{path.stem}.source.json"), lambda: questions_of(experiment, tmp_path), noticed=0.3)


def test_every_error_of_a_damaged_log_names_it(tmp_path):
    """Its lines have no check: a digit may change unnoticed."""
    path = tmp_path / "log.jsonl"
    log = Log(path, step=0)
    for step in range(5):
        log.write({"step": step, "loss": 1 / (step + 1)})
    log.close()
    errors = []
    for _ in flips(path):
        try:
            Log(path, step=9).close()
        except ValueError as error:
            errors.append(str(error))
    assert [error for error in errors if "log.jsonl, line" not in error] == []
    assert len(errors) >= 0.2 * FLIPS


def test_verdicts(tmp_path):
    path = tmp_path / "mbpp.jsonl"
    with VerdictFile(path, Verdict) as file:
        for number in range(5):
            file.add(f"key{number}", Verdict(status="passed", tests_passed=number, tests=9, seconds=0.25))

    def read():
        try:
            with VerdictFile(path, Verdict) as file:
                known = dict(file.known)
        except RuntimeWarning as warning:
            raise ValueError(warning) from None
        if len(known) < 5:  # a torn last record is judged again
            raise ValueError(f"{path.name}: {len(known)} records")
        return known

    check(path, read)


def test_cached_features(tmp_path):
    FeatureCache(tmp_path, {"model": "m"}).put(["a", "b"], np.arange(8, dtype=np.float32).reshape(2, 4))
    (path,) = tmp_path.rglob("*.safetensors")
    check(path, lambda: FeatureCache(tmp_path, {"model": "m"}).get("a").tolist(), noticed=1.0)


def test_a_file_without_a_checksum_is_read_and_an_edited_one_is_refused_with_a_way_out(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"x": 1}')
    assert read_json(path) == {"x": 1}
    write_sealed(path, {"x": (1, 2), 3: None})
    assert read_json(path) == {"x": [1, 2], "3": None}
    path.write_text(path.read_text().replace("2", "5", 1))
    with pytest.raises(ValueError, match=r'a\.json does not match its checksum.* remove its key "sha256"'):
        read_json(path)
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "sha256"}))
    assert read_json(path)["3"] is None
