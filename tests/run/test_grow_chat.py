"""`widen grow --chat`: samples, scores and training rows are in chat form, with the same tokens; the judge gets texts."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
from growing import PROBLEMS, Counts, Law, install, lines, save
from tiny_pretrained import make_tokenizer

from widen.cli import grow as verb
from widen.data.tasks import IGNORED, encode, read
from widen.run.chat_form import check_form
from widen.run.finetune import Source
from widen.run.grow import Growth, grow, reweighed, rounds
from widen.run.sampling import Models
from widen.run.value import to_json
from widen.sample import read_samples

TURNS = "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}"
CONFIG = {"model": "base", "checker": "own.py:check", "num": 12, "rounds": 1, "held_out_num": 5, "weights": "uniform"}
SOURCES = {"prompts": Source(path="train.jsonl"), "held_out": Source(path="test.jsonl")}


class ChatLaw(Law):
    """The law of `growing`, for the last message of the user."""

    def draw(self, prompts, settings, **about):
        texts = [one.text.removesuffix("</s>assistant:\n").rpartition("user:\n")[2] for one in prompts]
        yield from super().draw(
            [replace(one, text=text) for one, text in zip(prompts, texts, strict=True)], settings, **about
        )


def save_tokenizer(folder, template="<s>" + TURNS):
    """A tokenizer with a chat template, where a model would be."""
    made = make_tokenizer()
    made.chat_template = template
    made.save_pretrained(folder)
    (Path(folder) / "config.json").write_text('{"model_type": "llama"}')
    return made


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files of a small growth; its models have a chat template, and `check_form` is the real one."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path)
    save_tokenizer("base")
    install(monkeypatch, Counts())
    monkeypatch.setattr(rounds, "check_form", check_form)
    monkeypatch.setattr(Models, "local", lambda self, one, folder: ChatLaw(one.model, Counts()))
    train = rounds.fine_tune

    def train_with_tokenizer(config, root, **about):
        folder = train(config, root, **about)
        rows = (folder.checkpoint / "config.json").read_text()
        save_tokenizer(folder.checkpoint)
        (folder.checkpoint / "config.json").write_text(rows)
        return folder

    monkeypatch.setattr(rounds, "fine_tune", train_with_tokenizer)
    return tmp_path


def run(out="out", said=None, **changes):
    return grow(Growth(**(CONFIG | SOURCES | changes)), out, say=(said if said is not None else []).append)


def write(name, *rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def drawn(folder):
    (file,) = Path(folder).glob("*.jsonl")
    return read_samples(file)


def test_a_sampled_prompt_and_the_prompt_of_its_training_rows_have_the_same_tokens(place):
    run(chat=True)
    tokenizer = save_tokenizer(place / "again")
    sampled = {tuple(tokenizer(one.text).input_ids) for one in drawn("out/round-1/samples").prompts.values()}
    encoded = [
        encode(one, tokenizer, max_length=200)
        for one in read("jsonl", "out/round-1/train.jsonl", answered=True).examples
    ]
    trained = {tuple(one.input_ids[: one.labels.count(IGNORED)]) for one in encoded}
    assert trained == sampled
    assert {tokenizer.decode(one) for one in trained} == {f"<s>user:\n{text}</s>assistant:\n" for text in PROBLEMS}
    for one, row in zip(encoded, lines("out/round-1/train.jsonl"), strict=True):
        answer = tokenizer(row["completion"][0]["content"], add_special_tokens=False).input_ids
        assert one.input_ids[one.labels.count(IGNORED) :] == [*answer, tokenizer.eos_token_id]


def test_chat_changes_the_form_of_rows_and_nothing_else(place):
    """The checker reads the prompt as a number, so it gets the text and not the messages."""
    plain, chat = run("plain"), run("chat", chat=True)
    assert [one.new for one in chat] == [one.new for one in plain]
    assert chat[1].new > 0
    values = [[(r.metric, r.value, r.low, r.high) for r in one.records] for one in chat]
    assert values == [[(r.metric, r.value, r.low, r.high) for r in one.records] for one in plain]
    for name in ("grown", "train"):
        rows = lines(f"chat/round-1/{name}.jsonl")
        texts = [row | {key: row[key][0]["content"] for key in ("prompt", "completion")} for row in rows]
        assert texts == lines(f"plain/round-1/{name}.jsonl")
        assert {row["prompt"][0]["role"] for row in rows} == {"user"}
        assert {row["completion"][0]["role"] for row in rows} == {"assistant"}
    assert reweighed("chat", "uniform") == lines("chat/round-1/train.jsonl")


@pytest.mark.parametrize("chat", [True, False])
def test_a_growth_begun_in_one_form_is_refused_in_the_other_and_continues_in_its_own(place, chat):
    first = run(chat=chat)
    with pytest.raises(ValueError, match="begun with another chat"):
        run(chat=not chat)
    assert run(chat=chat) == first


def test_of_a_conversation_the_answer_at_its_end_is_learnt_and_the_rest_is_asked(place, monkeypatch):
    talks = [[user("hello"), assistant("a number ?"), user(text)] for text in PROBLEMS]
    write("train.jsonl", *({"messages": [*talk, assistant("1+3")]} for talk in talks))
    monkeypatch.setattr("growing.CHECKER", "def check(prompt, answer):\n    return True\nkey = str\n")
    run(chat=True, held_out=None)
    rows = lines("out/round-1/train.jsonl")
    assert [row["prompt"] for row in rows[:4]] == talks
    assert {row["completion"][0]["content"] for row in rows[:4]} == {"1+3"}
    assert all(row["prompt"] in talks and len(row["completion"]) == 1 for row in rows)
    assert len(rows) > len(talks)
    asked = {one.text for one in drawn("out/round-1/samples").prompts.values()}
    assert f"user:\nhello</s>assistant:\na number ?</s>user:\n{PROBLEMS[0]}</s>assistant:\n" in asked


@pytest.mark.parametrize("name", ["prompts", "held_out", "data"])
def test_conversations_without_chat_are_refused_with_the_flag_to_give(place, name):
    write("talk.jsonl", {"messages": [user("3="), assistant("1+2")]})
    with pytest.raises(ValueError, match=r"talk\.jsonl, example 1 \('3='\): .* give chat \(--chat\)"):
        run(**{name: Source(path="talk.jsonl")})
    assert not list(place.glob("out/round-*"))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"text": "1+2"}, "there is no prompt, which a chat template needs"),
        (
            {"prompt": [user("3=")], "completion": [assistant("?"), user("3=")]},
            "must hold one message of the assistant",
        ),
    ],
)
def test_rows_that_have_no_chat_form_are_refused_with_a_sentence(place, row, sentence):
    write("rows.jsonl", row)
    with pytest.raises(ValueError, match=sentence):
        run(chat=True, data=Source(path="rows.jsonl"))


def test_a_conversation_that_ends_with_a_question_is_no_training_row(place):
    write("rows.jsonl", {"messages": [user("4="), assistant("1+3"), user("5=")]}, {"prompt": "5=", "completion": "1+4"})
    run(chat=True, data=Source(path="rows.jsonl"), held_out=None)
    assert [row["completion"] for row in lines("out/data.jsonl")] == ["1+4"]


def test_a_model_without_a_chat_template_is_refused_and_one_with_it_is_named_if_it_is_not_used(place):
    said = []
    run("plain", said)
    assert said[0].startswith("base has a chat template, but these prompts go in without it. Use --chat")
    said.clear()
    run("chat", said, chat=True)
    assert "template" not in said[0]
    save_tokenizer("base", template=None)
    (place / "base" / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="chat=True: base has no chat template: take an Instruct model"):
        run("none", chat=True)


def test_the_flag_becomes_a_setting_that_files_without_it_do_not_have():
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    words = ["m", "--prompts", "p.jsonl", "--task", "answers"]
    assert to_json(verb.make_growth(parser.parse_args([*words, "--chat"])))["chat"]
    assert "chat" not in to_json(verb.make_growth(parser.parse_args(words)))
