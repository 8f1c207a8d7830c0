"""Texts in, everything out: the pieces are those of the metrics themselves, the preset is the paper's, the notes say what is wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_models

from widen.metrics import PAPER, ScoreSettings, embed_texts, fit_pca, knn_scores, score_texts, unit_rows, vendi_score
from widen.metrics.text_scores import notes_on

LETTERS = "abcdefgh"


def written(seed, n=30, letters=LETTERS, length=(5, 14)):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list(letters), size=rng.integers(*length))) for _ in range(n)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_models.gpt2(tmp_path_factory.mktemp("gpt2")))


@pytest.fixture(scope="module")
def scored(model):
    return score_texts(written(0), written(1, letters="abcd"), ScoreSettings(model=model, ngram=2))


def test_everything_asked_for_is_there(scored):
    assert scored.knn is not None
    assert scored.mauve is not None
    assert scored.prd is not None
    for side in (scored.generated, scored.reference):
        assert all(part is not None for part in (side.distinct, side.self_bleu, side.vendi))
    assert scored.generated.distinct.value < scored.reference.distinct.value  # half of the letters
    assert scored.generated.self_bleu.value > scored.reference.self_bleu.value
    assert scored.generated.vendi.value < scored.reference.vendi.value


def test_the_parts_are_those_of_the_metrics_themselves(scored, model):
    x, y = (unit_rows(embed_texts(texts, model=model).features) for texts in (written(0), written(1, letters="abcd")))
    by_hand = knn_scores(x, y)
    assert tuple(scored.knn) == pytest.approx(tuple(by_hand), abs=1e-9)
    assert scored.generated.vendi.value == pytest.approx(vendi_score(y).value, rel=1e-4)


def test_how_texts_became_features_travels_with_the_scores(scored, model):
    assert (scored.embedding.model, scored.embedding.pooling, scored.embedding.max_tokens) == (model, "mean", 16)
    assert scored.settings.normalise
    assert scored.components is None


def test_all_of_it_goes_to_json(scored):
    again = json.loads(json.dumps(scored.to_json(), allow_nan=False))
    assert again["knn"]["precision"] == scored.knn.precision
    assert again["settings"]["k"] == 4
    assert again["generated"]["self_bleu"]["tokenisation"] == "words"
    assert again["notes"] == list(scored.notes)


def test_only_what_is_asked_for_is_computed():
    """No model is loaded for metrics that need none; gpt2-large is nowhere near."""
    found = score_texts(written(0), written(1), ScoreSettings(metrics=("distinct",)))
    assert found.generated.distinct is not None
    assert (found.knn, found.mauve, found.prd, found.generated.self_bleu, found.generated.vendi, found.embedding) == (
        None,
    ) * 6


def test_the_preset_is_the_papers():
    by_hand = ScoreSettings(
        model="gpt2-large", pooling="mean", normalise=True, pca=0.9, pca_fit="joint", boundary="open", k=4, samples=2000
    )
    assert by_hand == PAPER


def test_the_preset_reduces_on_both_sets_and_leaves_the_boundary_open(model):
    reference, generated = written(0, 40), written(1, 40)
    settings = replace(PAPER, model=model, samples=40, metrics=("knn",))
    found = score_texts(reference, generated, settings)
    x, y = (unit_rows(embed_texts(texts, model=model).features) for texts in (reference, generated))
    pca = fit_pca(np.concatenate([x, y]), share=0.9)
    assert found.components == len(pca.components)
    assert tuple(found.knn) == pytest.approx(tuple(knn_scores(pca(x), pca(y), boundary="open")), abs=1e-9)
    assert found.knn.settings.boundary == "open"


def test_pca_on_the_reference_alone_does_not_look_at_the_model(model):
    reference = written(0, 40)
    settings = ScoreSettings(model=model, pca=0.5, metrics=("knn",))
    kept = {
        score_texts(reference, written(seed, 40, letters), settings).components
        for seed, letters in ((1, "ab"), (2, "efgh"), (3, LETTERS))
    }
    assert len(kept) == 1


def test_a_preset_of_2000_refuses_fewer_texts():
    with pytest.raises(ValueError, match="reference_texts must be at least samples = 2000, got 30"):
        score_texts(written(0), written(1), PAPER)


def test_samples_are_drawn_at_random_from_both(model):
    first = score_texts(written(0, 60), written(1, 50), ScoreSettings(model=model, samples=20, metrics=("knn",)))
    assert (first.n_reference, first.n_generated) == (20, 20)
    other = score_texts(
        written(0, 60), written(1, 50), ScoreSettings(model=model, samples=20, metrics=("knn",), seed=9)
    )
    assert first.knn.four != other.knn.four


def test_a_function_can_take_the_place_of_the_model():
    def lengths(texts):
        return np.array([[float(len(text)), 1.0, text.count("a")] for text in texts])

    found = score_texts(written(0), written(1), ScoreSettings(metrics=("knn", "vendi"), normalise=False), embed=lengths)
    assert tuple(found.knn) == tuple(knn_scores(lengths(written(0)), lengths(written(1))))
    with pytest.raises(ValueError, match="embed must give one row for each of 60 texts"):
        score_texts(written(0), written(1), embed=lambda texts: np.ones((3, 2)))


def test_progress_names_the_stages(model, tmp_path):
    told = []
    settings = ScoreSettings(model=model, metrics=("knn", "distinct"))
    score_texts(written(0), written(1), settings, cache=tmp_path, progress=lambda *what: told.append(what))
    assert [stage for stage, _, _ in told] == ["embed", "knn", "diversity", "done"]
    assert told[-1] == ("done", 2, 2)
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"metrics": ()}, {"samples": 4}, {"samples": 0}])
def test_bad_settings_are_refused(options):
    with pytest.raises(ValueError, match=r"at least one|more than k = 4"):
        ScoreSettings(**options)


def zero_without_words(texts):
    """An embedder that knows letters and nothing else: an empty text has no features."""
    return np.array([[text.count(letter) for letter in LETTERS] for text in texts], dtype=float)


@pytest.mark.parametrize("settings", [ScoreSettings(), replace(PAPER, samples=None), ScoreSettings(normalise=False)])
@pytest.mark.parametrize("empties", [1, 7, 27, 30])
def test_empty_generations_count_as_imprecise_and_reach_nothing(settings, empties):
    """Whether few, more than k, or all but three or none; the other texts keep their balls."""
    settings = replace(settings, metrics=("knn", "vendi"))
    reference, generated = written(0), [*written(1)[empties:], *[" "] * empties]
    found = score_texts(reference, generated, settings, embed=zero_without_words).knn
    assert found.settings.n_generated == 30
    assert found.precision <= (30 - empties) / 30
    assert found.intervals.precision.low <= found.precision <= found.intervals.precision.high
    if empties < 26:
        others = score_texts(reference, generated[:-empties], settings, embed=zero_without_words).knn
        share = (30 - empties) / 30
        expected = (others.precision * share, others.recall, others.density * share, others.coverage)
        assert tuple(found) == pytest.approx(expected)
    else:
        assert found.recall == 0


def test_an_empty_generation_is_right_where_the_reference_has_empty_texts():
    reference, generated = [*written(0), *[""] * 6], [*written(1), *[""] * 6]
    found = score_texts(reference, generated, ScoreSettings(metrics=("knn",)), embed=zero_without_words).knn
    without = score_texts(written(0), generated, ScoreSettings(metrics=("knn",)), embed=zero_without_words).knn
    assert found.precision == pytest.approx(without.precision + 6 / 36)


def test_one_empty_generation_buys_no_recall(model):
    """The features of an end-of-text token lie far from those of any text: their ball would hold the whole reference."""
    settings = ScoreSettings(model=model, metrics=("knn",))
    narrow = written(1, letters="a")
    without, found = (score_texts(written(0), texts, settings).knn for texts in (narrow, [*narrow[1:], ""]))
    assert found.recall <= without.recall + 0.05


def test_texts_without_features_are_a_kind_of_their_own():
    """Half of the set: Vendi has the entropy ln 2 more than half of the others' entropy."""
    settings = ScoreSettings(metrics=("mauve", "prd", "vendi"))
    texts = written(1, 30)
    empties, others = (
        score_texts(written(0), generated, settings, embed=zero_without_words)
        for generated in ([*texts[:15], *[""] * 15], texts)
    )
    alone = score_texts(written(0), texts[:15], settings, embed=zero_without_words).generated.vendi.value
    assert empties.generated.vendi.value == pytest.approx(2 * alone**0.5, rel=1e-6)
    assert empties.mauve.value < others.mauve.value
    assert empties.prd.f_eighth < others.prd.f_eighth


def test_an_empty_generation_does_not_stop_the_score(model):
    """A model that ends at once is a model; the note says how many such texts there are."""
    found = score_texts(written(0), [*written(1)[:-1], ""], ScoreSettings(model=model, ngram=2))
    assert found.generated.self_bleu.texts == 29
    assert "1 of 30 generated texts is empty: it counts as imprecise and reaches no reference text." in found.notes


LONG = [f"{i} " + "word " * 30 for i in range(1200)]
NOTES = [
    (LONG, LONG[::-1], "1,200 generated texts are copies of reference texts"),
    (LONG, [t + "x" for t in LONG[:1100]], "The sets differ in size (1,200 reference, 1,100 generated texts)"),
    (LONG[:30], [t + "x" for t in LONG[:30]], "Fewer than 1,000 texts"),
    (LONG, ["same " * 30] * 1200, "1,199 of 1,200 generated texts repeat an earlier one"),
    (LONG, [f"{i} short" for i in range(1200)], "Half of the generated texts have at most 2 words"),
]


@pytest.mark.parametrize(("reference", "generated", "said"), NOTES, ids=[row[2] for row in NOTES])
def test_notes_say_what_to_distrust(reference, generated, said):
    assert [note for note in notes_on(reference, generated) if note.startswith(said)]


def test_there_is_nothing_to_say_about_large_equal_sets_of_long_different_texts():
    assert notes_on(LONG, [text + "x" for text in LONG]) == ()


def test_notes_say_when_an_open_boundary_meets_duplicates():
    same = np.zeros((10, 2))
    assert "20 balls have radius 0" in " ".join(notes_on(LONG, LONG, knn=knn_scores(same, same, boundary="open")))
    assert "radius 0" not in " ".join(notes_on(LONG, LONG, knn=knn_scores(same, same)))
    assert "5 texts were cut" in " ".join(notes_on(LONG, LONG, truncated=5))


def test_texts_too_short_for_an_n_gram_leave_out_distinct_n_and_nothing_else():
    found = score_texts(["one two three four five"] * 3, ["one"] * 3, ScoreSettings(metrics=("distinct", "self_bleu")))
    assert found.generated.distinct is None
    assert found.reference.distinct.value == pytest.approx(1 / 3)
    assert found.generated.self_bleu.value > 0
    assert any("distinct-n is left out of a set" in note for note in found.notes)
