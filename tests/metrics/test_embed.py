"""Texts to features with tiny random models: against the model asked one text at a time, and what a folder says of itself."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch

import widen.metrics
from widen.metrics import Embedder, embed_texts
from widen.metrics.embed import read_recipe

TEXTS = ["a b c", "d", "a b c d e f g", "h i j k", "a b c", "z y x w v u t s r q p o n m l k j i h g", "d e"]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return tiny_models.gpt2(tmp_path_factory.mktemp("gpt2"))


def hidden(folder, text, limit=16):
    """The last hidden states of one text, alone in its batch."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", truncation=True, max_length=limit)[
        "input_ids"
    ]
    with torch.no_grad():
        return AutoModel.from_pretrained(folder).eval()(input_ids=tokens).last_hidden_state[0]


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", lambda h: h.mean(0)), ("last", lambda h: h[-1]), ("first", lambda h: h[0])]
)
def test_features_are_the_models_own_whatever_else_is_in_the_batch(gpt2, pooling, expected):
    found = embed_texts(TEXTS, model=gpt2, pooling=pooling).features
    for text, row in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(row, expected(hidden(gpt2, text)).numpy(), atol=2e-6)


def test_the_mean_is_the_default_as_in_the_paper(gpt2):
    assert Embedder(gpt2).settings.pooling == "mean"
    assert Embedder.__dataclass_fields__["model"].default == "gpt2-large"


def test_small_batches_change_nothing(gpt2):
    whole, pieces = (Embedder(gpt2, batch_tokens=size)(TEXTS).features for size in (10_000, 8))
    np.testing.assert_allclose(whole, pieces, atol=2e-6)


def test_equal_texts_have_equal_features_to_the_bit(gpt2):
    rows = Embedder(gpt2, batch_tokens=8)(TEXTS).features
    assert (rows[0] == rows[4]).all()


def test_cut_and_empty_texts_are_counted(gpt2):
    found = Embedder(gpt2)([*TEXTS, "", " "])
    assert (found.truncated, found.empty, found.settings.max_tokens) == (1, 2, 16)
    assert (Embedder(gpt2, max_tokens=3)(TEXTS).truncated, Embedder(gpt2, max_tokens=500).settings.max_tokens) == (
        3,
        16,
    )
    np.testing.assert_allclose(found.features[-1], hidden(gpt2, "</s>").mean(0).numpy(), atol=2e-6)


def test_rows_can_have_length_1(gpt2):
    rows = embed_texts(TEXTS, model=gpt2, normalise=True).features
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_progress_counts_different_texts(gpt2):
    told = []
    Embedder(gpt2, batch_tokens=16)(TEXTS, progress=lambda *what: told.append(what))
    assert told[-1] == ("embed", 6, 6)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_transformers_is_imported_when_a_model_is_loaded_and_not_before():
    """No module of the room imports it at its top: a score without a model must not cost its seconds."""
    for file in Path(widen.metrics.__file__).parent.glob("*.py"):
        tops = [node for node in ast.parse(file.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        found = {getattr(node, "module", None) or "" for node in tops} | {
            alias.name for node in tops for alias in node.names
        }
        assert not {"transformers", "tokenizers", "safetensors", "huggingface_hub"} & {
            name.split(".")[0] for name in found
        }, file


@pytest.mark.parametrize(
    ("options", "message"), [({"pooling": "max"}, "pooling"), ({"max_tokens": 0}, "max_tokens must be at least 1")]
)
def test_bad_settings_are_refused(gpt2, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Embedder(gpt2, **options)


@pytest.mark.parametrize("texts", ["abc", [], [None]])
def test_texts_are_a_list_of_strings(gpt2, texts):
    with pytest.raises((ValueError, TypeError), match=r"list of at least one string|Sequence\[str\]"):
        Embedder(gpt2)(texts)


MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def test_a_sentence_transformers_folder_is_taken_at_its_word(tmp_path):
    folder = tiny_models.sentence_transformer(tmp_path / "st", pooling=MEAN)
    found = embed_texts(["a b", "a b c d e f g h"], model=folder)
    settings = found.settings
    assert (settings.pooling, settings.normalise, settings.max_tokens, settings.lowercase) == ("mean", True, 6, False)
    assert found.truncated == 1
    for row, text in zip(found.features, ["a b", "a b c d"], strict=True):  # cut to 6, of which two are begin and end
        mean = hidden(folder, text).mean(0)
        np.testing.assert_allclose(row, (mean / mean.norm()).numpy(), atol=2e-6)


def test_what_is_asked_for_goes_before_what_the_folder_says(tmp_path):
    folder = tiny_models.sentence_transformer(tmp_path / "st", pooling=MEAN)
    found = embed_texts(["a b c"], model=folder, pooling="last", normalise=False, max_tokens=5)
    np.testing.assert_allclose(found.features[0], hidden(folder, "a b c", 5)[-1].numpy(), atol=2e-6)


def test_first_token_pooling_and_lower_case_are_read_from_the_folder(tmp_path):
    folder = tiny_models.sentence_transformer(tmp_path / "st", pooling=CLS, normalise=False, lower=True)
    upper, lower = embed_texts(["A B", "a b"], model=folder).features
    assert (upper == lower).all()
    np.testing.assert_allclose(lower, hidden(folder, "a b")[0].numpy(), atol=2e-6)


def test_a_pooling_named_in_one_word_is_understood(tmp_path):
    folder = tiny_models.sentence_transformer(tmp_path / "st", pooling={"pooling_mode": "lasttoken"})
    assert read_recipe(folder)["pooling"] == "last"


def test_a_stage_that_we_do_not_do_is_refused(tmp_path):
    folder = tiny_models.sentence_transformer(tmp_path / "st", pooling=MEAN)
    stages = json.loads((folder / "modules.json").read_text())
    stages[2]["type"] = "sentence_transformers.models.Dense"
    (folder / "modules.json").write_text(json.dumps(stages))
    with pytest.raises(ValueError, match="got Transformer, Pooling, Dense"):
        Embedder(folder)


def test_two_poolings_at_once_or_an_unknown_one_are_refused(tmp_path):
    for place, pooling in enumerate(({**MEAN, "pooling_mode_cls_token": True}, {"pooling_mode_max_tokens": True}, {})):
        folder = tiny_models.sentence_transformer(tmp_path / str(place), pooling=pooling)
        with pytest.raises(ValueError, match="pooling must be one of mean, last, first"):
            read_recipe(folder)


def test_a_folder_without_modules_has_the_default_recipe(gpt2):
    recipe = {"model": str(gpt2), "pooling": "mean", "normalise": False, "max_tokens": None, "lowercase": False}
    assert read_recipe(gpt2) == recipe


def test_an_embedder_that_cannot_be_loaded_is_named():
    with pytest.raises(
        FileNotFoundError, match=r"the embedder 'no/such' cannot be loaded \(there is no folder of that name here\)"
    ):
        Embedder("no/such")
