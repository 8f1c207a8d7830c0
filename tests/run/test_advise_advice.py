"""What `widen advise` recommends, given the scores of every model, and how it tells other programs to decode."""

import json
import shlex
from dataclasses import replace

import pytest
from advising import AS_IT_IS, HOT, NLL, WISH, finalist
from transformers import GenerationConfig

from widen.run.advise.advice import advise_from, to_test
from widen.run.advise.engines import how_to_decode
from widen.run.advise.wish import Wish
from widen.sample.decoding import Decoding


def test_a_wish_that_cannot_be_met_says_so_and_names_the_closest():
    advice = advise_from([finalist("", AS_IT_IS), finalist("nll", NLL)], Wish.parse("recall at precision >= 0.99"))
    assert not advice.met
    assert advice.headline == "The wish cannot be met: recall at precision >= 0.99."
    assert "The closest is NLL with t=0.5" in advice.reasons[1]


def test_the_models_that_never_reach_the_level_are_one_list():
    unable = [finalist(loss, AS_IT_IS) for loss in ("", "gem", "tofu")]
    advice = advise_from([finalist("nll", NLL), *unable], WISH)
    assert "The model as it is, gem and tofu never reach precision >= 0.8." in advice.reasons
    assert (
        "The model as it is never reaches precision >= 0.8."
        in advise_from([finalist("nll", NLL), unable[0]], WISH).reasons
    )


def test_of_two_settings_with_an_equal_goal_the_one_with_more_of_the_required_metric_is_chosen():
    equal = {"t=1": (0.85, 0.5), "t=0.5": (0.95, 0.5), "t=0.7": (0.9, 0.5)}
    assert WISH.choose(finalist("nll", equal).validation).decoding.spec == "t=0.5"
    simple = finalist("", {spec: (p - 0.02, r) for spec, (p, r) in equal.items()})
    better_on_test = {spec: (p, r + 0.2) for spec, (p, r) in equal.items()}
    assert advise_from([simple, finalist("nll", equal, test=better_on_test)], WISH).loss == "nll"


@pytest.mark.parametrize(("gain", "loss"), [(0.004, "nll"), (0.2, "gem")])
def test_a_loss_is_recommended_only_if_its_gain_is_outside_the_noise(gain, loss):
    better = {spec: (p, r + 0.1) for spec, (p, r) in NLL.items()}
    # on the test prompts the gain is one prompt's alone if it is small
    rival = finalist("gem", better)
    nll = finalist("nll", NLL)
    test = {one: dict(point) for one, point in nll.test.items()}
    recall = test[HOT]["recall"]
    each = [
        value + (20 * gain if n == 0 else 0) if gain < 0.1 else value + gain
        for n, value in enumerate(recall.detail["by_problem"])
    ]
    test[HOT]["recall"] = replace(recall, value=sum(each) / 20, detail={"by_problem": each})
    advice = advise_from([finalist("", AS_IT_IS), nll, replace(rival, test=test)], WISH)
    assert advice.loss == loss
    assert advice.decoding == HOT.spec
    assert advice.parts["loss"].value == pytest.approx(gain)
    assert advice.parts["decoding"].value == pytest.approx(0.05 + (gain if loss == "gem" else 0))
    if loss == "nll":
        assert advice.headline == "Keep NLL, decode with min_p=0.1 then t=2."
        assert advice.reasons[0].startswith("gem has +0.004 ")
        assert "inside the noise: keep NLL" in advice.reasons[0]


@pytest.mark.parametrize("gain", [0.0, 0.1])
def test_an_average_with_the_model_as_it_is_is_recommended_only_if_it_brings_more(gain):
    average = replace(finalist("nll", {spec: (p, r + gain) for spec, (p, r) in NLL.items()}), share=0.9)
    advice = advise_from([finalist("", AS_IT_IS), finalist("nll", NLL), average, finalist("gem", AS_IT_IS)], WISH)
    assert (advice.loss, advice.share) == ("nll", 0.9 if gain else 1.0)
    assert advice.parts["average"].value == pytest.approx(gain)
    assert advice.parts["recall over NLL at t=1"].value == pytest.approx(gain - 0.05)
    assert ("average it with the model as it is (0.9 and 0.1 of the weights)" in advice.headline) == bool(gain)


def test_the_lead_over_nll_at_t_1_is_reported_for_both_metrics():
    advice = advise_from([finalist("", AS_IT_IS), finalist("nll", NLL)], WISH)
    assert advice.parts["recall over NLL at t=1"].value == pytest.approx(-0.05)
    assert advice.parts["precision over NLL at t=1"].value == pytest.approx(0.12)
    assert advice.expected["precision"].low < 0.82 < advice.expected["precision"].high


@pytest.mark.parametrize("spec", ["t=0.7", "t=1.5,min_p=0.1", HOT.spec])
def test_the_printed_python_runs_as_pasted_and_overrules_what_the_model_has_in_its_generation_config(spec):
    told = {}
    exec(how_to_decode(Decoding.parse(spec), "m", max_tokens=8)["transformers"], {"model": Stub(told), "inputs": {}})
    config = GenerationConfig(temperature=0.6, top_p=0.8, top_k=20, repetition_penalty=1.1, do_sample=True)
    steps = told.pop("logits_processor", [])
    config.update(**told)
    assert (config.top_k, config.repetition_penalty, config.top_p) == (0, 1.0, 1.0)
    assert config.temperature == (1.0 if steps else Decoding.parse(spec).temperature)
    assert [type(one).__name__ for one in steps] == ["MinPLogitsWarper", "TemperatureLogitsWarper"] * (spec == HOT.spec)


def test_engines_get_whole_numbers_as_whole_numbers_and_every_digit_of_the_others():
    """vLLM and llama.cpp read no top_k=1e+06."""
    spec = Decoding.parse("t=0.123456789,top_k=1000000")
    found = how_to_decode(spec, "m", max_tokens=2_000_000)
    asked = json.loads(f"{{{found['vLLM'].rpartition('in each request: ')[2]}}}")
    assert (asked["temperature"], asked["top_k"], asked["max_tokens"]) == (0.123456789, 1_000_000, 2_000_000)
    assert {type(asked[name]) for name in ("top_k", "max_tokens")} == {int}
    assert "--temp 0.123456789 --top-k 1000000\n" in found["llama.cpp"]
    first = how_to_decode(Decoding.parse("min_p=0.123456789 then t=2"), "m", max_tokens=8)
    assert '"min_p_first": 0.123456789' in first["vLLM"]


def test_the_printed_commands_of_llama_cpp_take_a_hub_name_and_a_folder_with_a_space(tmp_path):
    hub = how_to_decode(HOT, "org/name", max_tokens=8)["llama.cpp"].splitlines()
    assert hub[:2] == ["hf download org/name --local-dir name", "python convert_hf_to_gguf.py name --outfile name.gguf"]
    folder = tmp_path / "my model"
    folder.mkdir()
    convert, serve, request = how_to_decode(HOT, str(folder), max_tokens=8)["llama.cpp"].splitlines()
    assert shlex.split(convert)[2:] == [str(folder), "--outfile", f"{folder}.gguf"]
    flags = ["--samplers", "min_p;temperature", "--min-p", "0.1", "--temp", "2"]
    assert shlex.split(serve) == ["llama-server", "-m", f"{folder}.gguf", *flags]
    assert request == 'in each request: "max_tokens": 8'
    assert shlex.split(how_to_decode(HOT, str(folder), max_tokens=8)["vLLM"])[2] == str(folder)


class Stub:
    """A model that only notes what generate is told."""

    def __init__(self, told):
        self.generate = told.update


def test_finalists_are_tested_with_their_best_decoding_their_best_temperature_and_t_1():
    assert set(to_test(finalist("nll", NLL), WISH)) == {HOT, Decoding(temperature=0.5), Decoding()}
