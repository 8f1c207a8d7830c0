"""`widen advise`: the wish, the splits, the plan, successive halving, and what is recommended."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from widen.cli import grow as grow_verb
from widen.cli import merge as merge_verb
from widen.data.tasks import read
from widen.judge import selftest
from widen.run.advise import search as searching
from widen.run.advise.advice import Finalist, advise_from, to_test
from widen.run.advise.engines import how_to_decode
from widen.run.advise.plan import FEWEST_STEPS, Timing, _training_seconds, make_plan
from widen.run.advise.request import AdviceRequest
from widen.run.advise.search import Search
from widen.run.advise.split import split
from widen.run.advise.wish import Wish, parse_budget
from widen.run.grow import Round
from widen.run.record import Record
from widen.sample.decoding import Decoding

WISH = Wish.parse("recall at precision >= 0.8")
HOT = Decoding.truncate_then_heat(min_p=0.1, temperature=2)
TIMING = Timing(step=1.0, score=5.0, load=1.0, test=20.0, check=0.0, max_tokens=8, parameters=1000, memory=16_000)
PROMPTS = 60


def answers_file(path, prompts=range(PROMPTS)):
    rows = [{"prompt": f"{n}:", "answers": [f"{n}a", f"{n}b"]} for n in prompts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def points(**values):
    """Made-up scores of one model: spec -> (precision, recall); each prompt differs a little, by a pattern of mean 0."""

    def record(decoding, metric, value):
        spread = 0.01 + 0.001 * len(decoding.spec)
        each = [round(value + (-1) ** n * spread, 6) for n in range(20)]
        about = {"task": "answers", "model": "m", "loss": "nll", "seed": 0, "decoding": decoding}
        return Record(**about, metric=metric, value=value, detail={"by_problem": each})

    return {
        decoding: {"precision": record(decoding, "precision", p), "recall": record(decoding, "recall", r)}
        for decoding, (p, r) in ((Decoding.parse(spec), pair) for spec, pair in values.items())
    }


def finalist(loss, values, test=None):
    return Finalist(loss=loss, steps=8, validation=points(**values), test=points(**(test or values)))


NLL = {"t=1": (0.7, 0.6), "t=0.5": (0.85, 0.5), HOT.spec: (0.82, 0.55)}
AS_IT_IS = {"t=1": (0.1, 0.2), "t=0.5": (0.2, 0.1), HOT.spec: (0.2, 0.1)}


@pytest.mark.parametrize(
    "text", ["", "recall", "recall at precision", "f1 at precision >= 0.5", "recall at precision > 0.5"]
)
def test_a_wish_that_cannot_be_read_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"write METRIC at METRIC >= LEVEL, such as \"recall at precision >= 0.9\""):
        Wish.parse(text)


def test_a_wish_of_one_metric_or_of_an_impossible_level_is_refused():
    with pytest.raises(ValueError, match="recall is named twice"):
        Wish.parse("recall at recall >= 0.5")
    with pytest.raises(ValueError, match="between 0 and 1"):
        Wish.parse("recall at precision >= 90")
    assert Wish.parse("Recall at precision ≥ 90%").level == 0.9


@pytest.mark.parametrize("text", ["", "30", "-5m", "0s", "1.2.3h", "half an hour"])
def test_a_budget_that_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="budget="):
        parse_budget(text)


def test_a_wish_for_a_metric_that_the_score_lacks_is_refused(tmp_path):
    asked = {"model": "m", "data": answers_file(tmp_path / "a.jsonl"), "budget": 60.0}
    with pytest.raises(ValueError, match=r"this score has no pass@10; it has precision, recall"):
        AdviceRequest(**asked, task="answers", wish="pass@10 at precision >= 0.5")
    with pytest.raises(ValueError, match="losses: asft compares with a reference model, which advise does not have"):
        AdviceRequest(**asked, task="answers", wish="recall at precision >= 0.5", losses=("asft",))
    with pytest.raises(ValueError, match="nothing says which answers are right"):
        AdviceRequest(**asked, wish="recall at precision >= 0.5")
    with pytest.raises(ValueError, match="needs at least 10 samples"):
        AdviceRequest(**asked, task="mbpp", num=4, wish="pass@10 at pass@1 >= 0.3")
    assert AdviceRequest(**asked, task="answers", wish="coverage at precision >= 0.5").parsed.goal == "recall"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"num": 0}, "num=0: must be at least 1"),
        ({"max_tokens": 0}, "max_tokens=0: must be at least 1"),
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"lora": 0}, "lora=0: must be at least 1"),
        ({"lr": -1.0}, r"lr=-1\.0: must be above 0"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
    ],
)
def test_a_number_that_is_not_legal_is_refused_before_the_data_is_read(more, sentence):
    with pytest.raises(ValueError, match=sentence):
        AdviceRequest(
            model="m", data="no.jsonl", budget=60.0, task="answers", wish="recall at precision >= 0.5", **more
        )


FAULTY = {  # what a checker returns -> how the refusal ends
    "open('/etc/passwd').read() == answer": r"it fails on every answer .* check\('.*a'\): error: .*/etc/passwd",
    "answer == 'b'": r"it calls wrong every answer of the data that was tried, such as check\('.*a'\)$",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("returned", FAULTY)
def test_a_checker_that_cannot_judge_the_data_is_refused_before_anything_is_measured(tmp_path, monkeypatch, returned):
    monkeypatch.setattr(selftest, "ATTACKS", {})
    (tmp_path / "own.py").write_text(f"def check(prompt, answer):\n    return {returned}\n")
    rows = [{"prompt": f"{n}:", "completion": f"{n}a"} for n in range(12)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = AdviceRequest(
        model="no model",
        data=str(tmp_path / "all.jsonl"),
        checker=f"{tmp_path / 'own.py'}:check",
        wish="recall at precision >= 0.5",
        budget=60.0,
    )
    with pytest.raises(ValueError, match=FAULTY[returned]):
        Search(request, tmp_path / "out")


def test_no_prompt_is_in_two_splits_and_the_order_of_the_records_does_not_matter(tmp_path):
    def prompts_of(folder, order):
        made = split("answers", answers_file(tmp_path / "all.jsonl", order), tmp_path / folder, seed=0, once=True)
        sources = (made.train, made.validation, made.test)
        return [{one.prompt for one in read(source.task, source.path).examples} for source in sources]

    there, back = prompts_of("a", range(PROMPTS)), prompts_of("b", reversed(range(PROMPTS)))
    assert there == back
    assert [len(part) for part in there] == [30, 12, 18]
    assert len(set.union(*there)) == PROMPTS


def test_every_listed_answer_is_trained_on(tmp_path):
    made = split("answers", answers_file(tmp_path / "all.jsonl"), tmp_path, seed=0, once=True)
    rows = read(made.train.task, made.train.path).examples
    assert len(rows) == made.counts["train"] == 2 * 30
    assert {row.completion for row in rows} == {f"{row.prompt[:-1]}{x}" for row in rows for x in "ab"}


def test_bad_records_and_too_few_prompts_are_refused(tmp_path):
    file = tmp_path / "few.jsonl"
    with pytest.raises(ValueError, match="9 distinct prompts; at least 10"):
        split("answers", answers_file(file, range(9)), tmp_path, seed=0, once=True)
    with pytest.raises(ValueError, match="appears twice: list all its answers in one record"):
        split("answers", answers_file(file, [*range(12), 3]), tmp_path, seed=0, once=True)


def test_the_plan_fits_into_the_budget_and_leaves_out_losses_before_it_is_too_short():
    losses = ("nll", "a", "b", "c")
    for budget in (100.0, 250.0, 400.0, 3000.0):
        plan = make_plan(TIMING, losses, budget=budget, longest=10_000)
        assert plan.seconds <= budget
        assert plan.losses[0] == "nll"
        assert plan.steps[0] >= FEWEST_STEPS
    assert make_plan(TIMING, losses, budget=100.0, longest=10_000).rivals == (1,)
    assert make_plan(TIMING, losses, budget=3000.0, longest=10_000).rivals == (3, 2, 1)
    assert make_plan(TIMING, losses, budget=3000.0, longest=64).steps == (16, 32, 64)
    with pytest.raises(ValueError, match="is too short; this model and data need at least"):
        make_plan(TIMING, losses, budget=20.0, longest=100)


def test_the_plan_counts_the_evaluations_and_checkpoints_of_nll(tmp_path):
    slow = replace(TIMING, check=4.0)
    plan = make_plan(slow, ("nll", "a"), budget=1000.0, longest=22)
    request = AdviceRequest(
        model="m", data=answers_file(tmp_path / "a.jsonl"), task="answers", wish=str(WISH), budget=60.0
    )
    made = split("answers", request.data, tmp_path, seed=0, once=True)
    every = request.fine_tune("nll", 22, made).eval_steps
    checks = sum(step % every == 0 or step == 22 for step in range(1, 23))  # as the trainer: the last step, too
    assert plan.job("nll", 22) - plan.job("a", 22) == 4.0 * checks
    assert plan.seconds == make_plan(TIMING, ("nll", "a"), budget=1000.0, longest=22).seconds + 4.0 * checks
    assert make_plan(slow, ("nll", "a"), budget=100.0, longest=22).seconds <= 100.0


def test_a_forward_pass_a_step_and_a_checkpoint_are_measured_and_leave_no_file(tmp_path):
    config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    model, ids = LlamaForCausalLM(config), torch.ones(2, 3, dtype=torch.long)
    batch = {"input_ids": ids, "labels": ids}
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    step, forward, save, checkpoint = _training_seconds(model, list(model.parameters()), batch, tmp_path)
    assert min(step, forward, save) > 0
    assert checkpoint > save
    assert list(tmp_path.iterdir()) == []
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_a_wish_that_cannot_be_met_says_so_and_names_the_closest():
    advice = advise_from([finalist("", AS_IT_IS), finalist("nll", NLL)], Wish.parse("recall at precision >= 0.99"))
    assert not advice.met
    assert advice.headline == "The wish cannot be met: recall at precision >= 0.99."
    assert "The closest is NLL with t=0.5" in advice.reasons[1]


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


def test_the_average_is_of_nll_and_the_model_as_it_is_and_the_printed_command_makes_it_again(tmp_path, monkeypatch):
    made = []
    world = World(monkeypatch)
    monkeypatch.setattr(searching, "average_models", lambda models, weights, out: made.append((models, weights)))
    found = world.advise(tmp_path)
    (((trained, before), weights),) = made
    assert before == "m"  # a name on the hub
    assert weights == pytest.approx([0.9, 0.1])
    monkeypatch.setattr(searching, "advise_from", lambda *_: replace(found, loss="nll", steps=found.steps, share=0.9))
    advice = world.advise(tmp_path)
    assert len(made) == 1  # the folder is there
    parser = __import__("argparse").ArgumentParser()
    merge_verb.add_arguments(parser)
    options = parser.parse_args(__import__("shlex").split(advice.average)[2:])
    assert ([f"{options.models[0]}/checkpoint", options.models[1]], options.weights) == ([trained, before], [0.9, 0.1])


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


def last(loss):
    """Without the first steps of NLL."""
    return loss.rpartition(" then ")[2]


class World:
    """Training and scoring made up: each job takes as long as the plan says, times ``slow``, on a clock of its own."""

    def __init__(self, monkeypatch, *, slow=1.0, die_at=None, grown=0.0):
        self.now, self.slow, self.die_at, self.calls, self.trained, self.grown = 0.0, slow, die_at, 0, [], grown
        monkeypatch.setattr(searching, "run", self.run)
        monkeypatch.setattr(searching, "found_records", self.records)
        monkeypatch.setattr(searching, "average_models", lambda *_: None)

    def run(self, name, experiments, root, **more):
        self.calls += 1
        if self.calls == self.die_at:
            raise KeyboardInterrupt
        steps = getattr(experiments[0].model, "max_steps", 0)
        validation = experiments[0].prompts.path.endswith("validation.jsonl")
        if len(experiments) == 1:  # the last call makes the table of everything
            self.now += self.slow * ((6 + steps) if validation else TIMING.test / 3)
        if steps and validation and len(experiments) == 1:
            self.trained.append((last(experiments[0].loss), steps))

    def records(self, folder, experiment):
        worth = {"": 0.0, "nll": 0.3, "gem": 0.34}.get(last(experiment.loss), 0.2)
        steps = getattr(experiment.model, "max_steps", 0)
        worth = 0.3 + self.grown if "grown" in experiment.name else worth
        made = points(**{s: (0.95 - 0.05 * n, worth + steps / 1e4 + n / 50) for n, s in enumerate(experiment.decoding)})
        return [record for point in made.values() for record in point.values()]

    def advise(self, tmp_path, budget=3000.0, dry=False):
        request = AdviceRequest(
            model="m",
            data=answers_file(tmp_path / "all.jsonl"),
            task="answers",
            wish="recall at precision >= 0.8",
            budget=budget,
            batch_size=1,
        )
        timing = lambda *_: TIMING  # noqa: E731
        search = Search(request, tmp_path / "out", clock=lambda: self.now, timing=timing)
        return search if dry else search.advise()


def test_the_cards_of_all_trained_models_are_completed(tmp_path, monkeypatch):
    cards = []
    monkeypatch.setattr(searching, "complete_card", lambda folder: cards.append(folder.path))
    advice = World(monkeypatch).advise(tmp_path)
    assert Path(advice.folder) in cards
    assert advice.test_prompts == 18
    assert len(cards) == len(set(cards)) == 1 + 4 + 3 + 2 + 1  # the model as it is, every rung, and the average


def test_nll_is_trained_in_every_rung_and_the_better_half_of_the_others(tmp_path, monkeypatch):
    world = World(monkeypatch)
    advice = world.advise(tmp_path)
    by_steps = {}
    for loss, steps in world.trained:
        by_steps.setdefault(steps, []).append(loss)
    first, second, last = sorted(by_steps)
    assert (second, last) == (2 * first, 4 * first)
    assert all(losses[0] == "nll" for losses in by_steps.values())
    assert [len(by_steps[steps]) for steps in (first, second, last)] == [4, 3, 2]
    assert by_steps[last] == ["nll", "gem"]
    assert json.loads((tmp_path / "out" / "advice.json").read_text())["advice"]["decoding"] == advice.decoding


@pytest.mark.parametrize("slow", [1.0, 1.6, 2.5, 6.0])
def test_slow_jobs_keep_the_budget_and_leave_no_nll_that_is_trained_longer_than_every_loss(tmp_path, monkeypatch, slow):
    world = World(monkeypatch, slow=slow)
    world.advise(tmp_path, budget=700.0)
    assert ("nll", min(steps for _, steps in world.trained)) == world.trained[0]
    assert world.now <= 700.0
    longest = max(steps for _, steps in world.trained)
    assert len([loss for loss, steps in world.trained if steps == longest]) > 1 or len(world.trained) == 1


def test_a_search_that_was_killed_again_and_again_gives_the_same_advice_in_the_end(tmp_path, monkeypatch):
    found = []
    for name, deaths in (("whole", ()), ("killed", (1, 6, 13))):
        (tmp_path / name).mkdir()
        for die_at in deaths:
            with pytest.raises(KeyboardInterrupt):
                World(monkeypatch, die_at=die_at).advise(tmp_path / name)
        advice = World(monkeypatch).advise(tmp_path / name)
        found.append(replace(advice, train="", folder="", use={}))  # these hold paths
    assert found[0] == found[1]


def test_a_folder_with_another_request_is_refused_unless_it_holds_only_a_plan(tmp_path, monkeypatch):
    World(monkeypatch).advise(tmp_path, budget=1000.0, dry=True)
    World(monkeypatch).advise(tmp_path)
    with pytest.raises(ValueError, match=r"another request \(they differ in budget\)"):
        World(monkeypatch).advise(tmp_path, budget=2000.0)


def test_the_command_trains_the_recommended_model(tmp_path, monkeypatch):
    import shlex

    from widen.cli import train

    advice = World(monkeypatch).advise(tmp_path)
    parser = __import__("argparse").ArgumentParser()
    train.add_arguments(parser)
    words = shlex.split(advice.train)
    assert words[:2] == ["widen", "train"]
    options = parser.parse_args(words[2:])
    assert options.out / train.make_config(options).folder_name == Path(advice.folder)


def judged_request(tmp_path):
    """A checker finds right answers that the data does not have. Every row is there twice."""
    rows = [{"prompt": f"{n}:", "completion": "x"} for n in range(PROMPTS) for _ in range(2)]
    data, checker = tmp_path / "two of each.jsonl", tmp_path / "own.py"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    checker.write_text("def check(prompt, answer):\n    return True\n")
    wish = "recall at precision >= 0.8"
    return AdviceRequest(model="m", data=str(data), checker=f"{checker}:check", wish=wish, budget=1000.0, lr=0.01)


def growth_of(command):
    """The settings that a printed command asks for."""
    parser = __import__("argparse").ArgumentParser()
    grow_verb.add_arguments(parser)
    words = shlex.split(command)
    assert words[:2] == ["widen", "grow"]
    options = parser.parse_args(words[2:])
    return grow_verb.make_growth(options), options.out


def test_repeats_and_growth_are_named_where_they_can_help(tmp_path, monkeypatch):
    """Listed answers are all learnt, so nothing can be grown."""
    world = World(monkeypatch)
    listed = world.advise(tmp_path)
    assert listed.grow == ""
    assert "repeat another row" not in " ".join(listed.reasons)
    slow = replace(TIMING, grow=900.0)
    search = Search(judged_request(tmp_path), tmp_path / "o u t", clock=lambda: world.now, timing=lambda *_: slow)
    advice = search.advise()
    assert any("30 of the 60 training rows repeat another row" in one for one in advice.reasons)
    assert any("no time to look for new right answers" in one for one in advice.reasons)
    made, out = growth_of(advice.grow)
    assert (made.checker, made.start, out) == (search.request.checker, "m", tmp_path / "o u t" / "grown")


@pytest.mark.parametrize("gain", [0.0, 0.3])
def test_new_right_answers_are_recommended_only_if_they_bring_more_and_the_command_finds_them_again(
    tmp_path, monkeypatch, gain
):
    asked, world = [], World(monkeypatch, grown=gain)

    def grown(config, out, **_):
        asked.append((config, out))
        return [Round(round=1, model="round-1/run", new=7, rows=67)]

    monkeypatch.setattr(searching, "grow", grown)
    timing = replace(TIMING, grow=10.0)
    search = Search(judged_request(tmp_path), tmp_path / "out", clock=lambda: world.now, timing=lambda *_: timing)
    advice = search.advise()
    ((config, out),) = asked
    assert (advice.new, search.jobs["grow"]) == (7 if gain else 0, "trained")
    assert config.start == "m"  # as many steps as NLL, from the same model
    assert config.training["max_steps"] == max(steps for loss, steps in world.trained if loss == "nll")
    assert "There was no time" not in " ".join(advice.reasons)
    if gain:
        assert "Keep NLL, train it on 7 new right answers too, decode with" in advice.headline
        assert advice.folder == str(out / "round-1/run")
        assert growth_of(advice.grow) == (config, out)
        assert advice.parts["new answers"].value == pytest.approx(gain, abs=0.01)
    else:
        assert advice.grow == ""


def test_growth_counts_in_the_plan_where_a_judge_exists():
    short, long = (make_plan(replace(TIMING, grow=g), ("nll", "gem"), budget=200.0, longest=500) for g in (50.0, 0.0))
    assert short.steps < long.steps
    assert short.end == pytest.approx(long.end + 50 + short.job("nll", short.steps[-1]))


def test_finalists_are_tested_with_their_best_decoding_their_best_temperature_and_t_1():
    assert set(to_test(finalist("nll", NLL), WISH)) == {HOT, Decoding(temperature=0.5), Decoding()}
