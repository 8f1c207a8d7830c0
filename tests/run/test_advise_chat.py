"""`widen advise --chat`: training rows, scores and printed commands are in chat form."""

import argparse
import json
import shlex

import pytest
from tiny_pretrained import make_tokenizer, save_sums

from widen.cli import grow as grow_verb
from widen.cli import sample as sample_verb
from widen.cli.advise import plan_lines
from widen.data.tasks import IGNORED, encode, read
from widen.data.tasks.conversations import template_ids
from widen.run.advise.commands import grow_command
from widen.run.advise.engines import how_to_decode
from widen.run.advise.plan import Timing
from widen.run.advise.request import AdviceRequest
from widen.run.advise.search import Search
from widen.run.advise.split import split
from widen.run.questions import named, prompts_for
from widen.sample.decoding import Decoding

TURNS = "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}"
TIMING = Timing(step=1.0, score=5.0, load=1.0, test=20.0, check=0.0, max_tokens=8, parameters=1000, memory=16_000)
SPECS = ["t=0.7", "min_p=0.1 then t=2"]


@pytest.fixture(scope="module")
def tokenizer():
    made = make_tokenizer()
    made.chat_template = "<s>" + TURNS
    return made


@pytest.fixture
def model(tokenizer, tmp_path):
    """A folder with the tokenizer of a model that has a chat template."""
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    return str(tmp_path / "model")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def listed(tmp_path):
    rows = [{"prompt": f"what is {n} ?", "answers": [[f"{n}.0", str(n)], "a door"]} for n in range(20)]
    return "answers", write(tmp_path / "all.jsonl", rows)


def talks(tmp_path):
    """Texts, and conversations of several turns with their answer at the end."""
    before = [
        {"role": "system", "content": "be in"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    ask, answer = ([{"role": "user", "content": f"{n} ?"}] for n in range(10)), [{"role": "assistant", "content": "in"}]
    rows = [{"messages": [*before, *one, *answer]} for one in ask]
    rows += [{"prompt": f"what is {n} ?", "completion": "2.0", "loss_weights": 0.5} for n in range(10)]
    return "jsonl", write(tmp_path / "all.jsonl", rows)


@pytest.mark.parametrize("make", [listed, talks])
def test_a_prompt_that_is_scored_has_the_tokens_of_the_prompts_that_are_trained_on(make, tokenizer, tmp_path):
    made = split(*make(tmp_path), tmp_path / "data", seed=0, once=True, chat=True)
    questions = named(read(made.validation.task, made.validation.path).examples, chat=True)
    scored = {tuple(one.ids or tokenizer(one.text).input_ids) for one in prompts_for(questions, tokenizer)}
    rows = read(made.watch.task, made.watch.path, answered=True).examples  # the same prompts, as rows to train on
    encoded = [encode(one, tokenizer, max_length=200) for one in rows]
    assert {tuple(one.input_ids[: one.labels.count(IGNORED)]) for one in encoded} == scored
    assert made.train.task == made.watch.task == "jsonl"
    learnt = [[id for id in one.labels if id != IGNORED] for one in encoded]
    for one, row in zip(learnt, rows, strict=True):  # one answer, also of a conversation with several
        assert one == [*tokenizer(row.completion, add_special_tokens=False).input_ids, tokenizer.eos_token_id]


def test_chat_splits_the_prompts_as_before_and_keeps_the_weights(tmp_path):
    task, data = listed(tmp_path)
    plain, chat = (split(task, data, tmp_path / str(form), seed=0, once=True, chat=form) for form in (False, True))
    assert chat.counts == plain.counts

    def texts(source):
        return [(one.prompt, one.completion) for one in read(source.task, source.path).examples]

    assert [texts(one) for one in chat[:4]] == [texts(one) for one in plain[:4]]
    made = split(*talks(tmp_path), tmp_path / "talks", seed=0, once=True, chat=True)
    weights = {one.loss_weights for one in read("jsonl", made.train.path).examples if one.completion == "2.0"}
    assert weights == {0.5}


def test_conversations_without_chat_are_refused_with_the_flag_to_give(tmp_path):
    with pytest.raises(
        ValueError, match=r"10 records of .*all\.jsonl cannot be used:\n.*line 1: .* give chat \(--chat\)"
    ):
        split(*talks(tmp_path), tmp_path / "data", seed=0, once=True)


def search(tmp_path, model="m", **changes):
    task, data = listed(tmp_path)
    asked = {"model": model, "task": task, "data": data, "wish": "recall at precision >= 0.5", "budget": 1000.0}
    return Search(AdviceRequest(**(asked | changes)), tmp_path / "out", timing=lambda *_: TIMING)


@pytest.mark.parametrize("chat", [True, False])
def test_a_search_begun_in_one_form_is_refused_in_the_other(tmp_path, chat):
    search(tmp_path, chat=chat)
    (tmp_path / "out" / "a-run").mkdir()
    search(tmp_path, chat=chat)
    with pytest.raises(ValueError, match=r"another request \(they differ in chat\)"):
        search(tmp_path, chat=not chat)


def test_every_model_is_asked_in_the_form_of_the_request(tmp_path):
    for chat in (True, False):
        found = AdviceRequest(
            model="m", task="answers", data="d.jsonl", wish="recall at precision >= 0.5", budget=1.0, chat=chat
        )
        source = split(*listed(tmp_path), tmp_path / "data", seed=0, once=True, chat=chat).test
        assert found.experiment("m", source, [Decoding()], max_tokens=8).chat == chat


def test_the_plan_says_if_a_model_has_a_chat_template_that_is_not_used(tmp_path, model):
    note = f"{model} has a chat template, but these prompts go in without it"
    assert plan_lines(search(tmp_path, model))[-1].startswith(note)
    assert not plan_lines(search(tmp_path, model, chat=True))[-1].startswith(note)


def test_the_printed_growth_is_in_chat_form_and_its_problems_have_their_tests(tmp_path):
    sums, wish = save_sums(tmp_path / "sums.jsonl"), "pass@10 at pass@1 >= 0.1"
    for chat in (True, False):
        out = tmp_path / str(chat)
        request = AdviceRequest(model="m", task="mathqa_python", data=sums, wish=wish, budget=1e6, chat=chat)
        found = Search(request, out, timing=lambda *_: TIMING)
        asked = request.growth("runs/NLL", 8, found.splits, max_tokens=8)
        parser = argparse.ArgumentParser()
        grow_verb.add_arguments(parser)
        words = shlex.split(grow_command(asked, out / "grown", device="cpu"))
        made = grow_verb.make_growth(parser.parse_args(words[2:]))
        assert made == asked
        assert made.chat == chat
        assert all("answer" in one.facts for one in read(made.prompts.task, made.prompts.path).examples)


class Model:
    """A model that only notes what generate is told."""

    device = "cpu"

    def __init__(self, told):
        self.generate = told.update


@pytest.mark.parametrize("spec", SPECS)
def test_the_printed_python_asks_through_the_chat_template(tokenizer, spec):
    told = {}
    code = how_to_decode(Decoding.parse(spec), "m", max_tokens=8, chat=True)["transformers"]
    exec(code, {"model": Model(told), "tokenizer": tokenizer, "prompt": "what is 2.0 ?"})
    talk = [{"role": "user", "content": "what is 2.0 ?"}]
    assert told["input_ids"].tolist() == [template_ids(tokenizer, talk, ask=True)]
    assert told["max_new_tokens"] == 8


@pytest.mark.parametrize("spec", SPECS)
def test_the_printed_commands_use_the_chat_endpoint_and_the_template_of_the_model(spec):
    plain, chat = (how_to_decode(Decoding.parse(spec), "m", max_tokens=8, chat=form) for form in (False, True))
    for name in ("vLLM", "llama.cpp"):
        assert chat[name].splitlines()[-1].startswith("in each request to /v1/chat/completions: ")
        without = chat[name].replace(" to /v1/chat/completions:", ":").replace(" --jinja", "")
        assert without == plain[name]
    assert "--jinja" in chat["llama.cpp"]
    parser = argparse.ArgumentParser()
    sample_verb.add_arguments(parser)
    assert [parser.parse_args(shlex.split(one["widen"])[2:]).chat for one in (plain, chat)] == [False, True]
