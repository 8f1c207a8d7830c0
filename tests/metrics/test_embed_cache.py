"""Features are computed once per text, model and setting; what lies on disk is whole, safe, and refused when it is not."""

import shutil
import threading

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from widen.metrics import Embedder
from widen.metrics.embed_cache import FeatureCache, folder_fingerprint

TEXTS = ["a b", "c d e", "f"]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return tiny_models.gpt2(tmp_path_factory.mktemp("gpt2"))


def forwards(embedder, monkeypatch):
    """How many texts go through the network from here on."""
    seen, forward = [], embedder._forward
    monkeypatch.setattr(embedder, "_forward", lambda ids: (seen.extend(ids), forward(ids))[1])
    return seen


def test_a_text_is_embedded_once(gpt2, tmp_path, monkeypatch):
    first = Embedder(gpt2)(TEXTS, cache=tmp_path).features
    again = Embedder(gpt2)
    seen = forwards(again, monkeypatch)
    found = again([*TEXTS, "g", "a b"], cache=tmp_path).features
    assert len(seen) == 1
    assert (found[:3] == first).all()
    assert (found[4] == first[0]).all()


def test_no_weights_are_read_when_every_text_is_known(gpt2, tmp_path, monkeypatch):
    from transformers import AutoModel

    before = Embedder(gpt2)(TEXTS, cache=tmp_path).features
    monkeypatch.setattr(AutoModel, "from_pretrained", None)
    assert (Embedder(gpt2)(TEXTS, cache=tmp_path).features == before).all()


@pytest.mark.parametrize(
    "options", [{"pooling": "last"}, {"max_tokens": 2}, {"normalise": True}, {"dtype": torch.float64}]
)
def test_another_setting_is_another_cache(gpt2, tmp_path, options):
    Embedder(gpt2)(TEXTS, cache=tmp_path)
    kept, fresh = (Embedder(gpt2, **options)(TEXTS, cache=cache).features for cache in (tmp_path, None))
    assert (kept == fresh).all()
    assert len(list(tmp_path.iterdir())) == 2


def test_other_weights_in_the_same_folder_are_another_cache(gpt2, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(gpt2, folder)
    before = Embedder(folder)(TEXTS, cache=tmp_path / "cache").features
    weights = load_file(folder / "model.safetensors")
    weights["wte.weight"][5] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    after = Embedder(folder)(TEXTS, cache=tmp_path / "cache").features
    assert not np.allclose(before, after)


def test_the_same_model_in_another_folder_is_the_same_cache(gpt2, tmp_path, monkeypatch):
    shutil.copytree(gpt2, tmp_path / "moved")
    Embedder(gpt2)(TEXTS, cache=tmp_path / "cache")
    moved = Embedder(tmp_path / "moved")
    seen = forwards(moved, monkeypatch)
    moved(TEXTS, cache=tmp_path / "cache")
    assert seen == []


def test_a_change_in_the_middle_of_a_large_file_changes_the_fingerprint(tmp_path):
    """One block in 64 of a file is read; training moves every weight, so that any block tells."""
    file = tmp_path / "model.safetensors"
    data = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    file.write_bytes(data.tobytes())
    before = folder_fingerprint(tmp_path)
    file.write_bytes((data + np.float32(1e-3)).tobytes())
    assert folder_fingerprint(tmp_path) != before


def test_a_killed_run_leaves_what_it_finished(gpt2, tmp_path, monkeypatch):
    monkeypatch.setattr("widen.metrics.embed.SAVE_EVERY", 1)
    broken = Embedder(gpt2, batch_tokens=1)
    forward, calls = broken._forward, []

    def fail_at_third(ids):
        calls.append(ids)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return forward(ids)

    monkeypatch.setattr(broken, "_forward", fail_at_third)
    with pytest.raises(KeyboardInterrupt):
        broken(TEXTS, cache=tmp_path)
    resumed = Embedder(gpt2)
    seen = forwards(resumed, monkeypatch)
    resumed(TEXTS, cache=tmp_path)
    assert len(seen) == 1


def test_what_is_put_is_read_back_by_another(tmp_path):
    rows = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    FeatureCache(tmp_path, {"a": 1}).put(["x", "\ud800"], rows)  # also a text that is not valid Unicode
    again = FeatureCache(tmp_path, {"a": 1})
    assert (again.get("x") == rows[0]).all()
    assert (again.get("\ud800") == rows[1]).all()
    assert again.get("y") is None
    assert FeatureCache(tmp_path, {"a": 2}).get("x") is None


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    def write(place):
        FeatureCache(tmp_path, {}).put([f"text {place}"], np.full((1, 2), place, np.float32))

    threads = [threading.Thread(target=write, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = FeatureCache(tmp_path, {})
    assert [again.get(f"text {place}")[0] for place in range(8)] == list(range(8))
    assert not [p for p in again.folder.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("spoil", [lambda data: data[: len(data) // 2], lambda data: b"junk" * 10])
def test_a_spoiled_file_is_refused_by_name(tmp_path, spoil):
    cache = FeatureCache(tmp_path, {})
    cache.put(["x"], np.ones((1, 2), np.float32))
    file = next(cache.folder.glob("*.safetensors"))
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ValueError, match=f"{file.name}: not a file of cached features"):
        FeatureCache(tmp_path, {})


def test_features_that_are_not_finite_are_refused(tmp_path):
    cache = FeatureCache(tmp_path, {})
    cache.put(["x"], np.full((1, 2), np.nan, np.float32))
    with pytest.raises(ValueError, match="not finite"):
        FeatureCache(tmp_path, {})
