"""Conversations: three formats of records are one list of messages, and the targets are the assistant's tokens, as in TRL."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from widen.data.tasks import IGNORED, encode, read, task

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
)
FORGETFUL = (  # drops what the assistant said before the last turn, as templates of reasoning models drop thoughts
    "{% for m in messages %}{% if m['role'] != 'assistant' or loop.last %}<|im_start|>{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}"
)
BARE = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
STRICT = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('the user must begin') }}{% endif %}" + CHATML
TALK = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "3 + 3?"},
    {"role": "assistant", "content": "six"},
]


@pytest.fixture(scope="module")
def tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    made = Tokenizer(models.BPE(vocab={token: n for n, token in enumerate([*names, *letters])}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    found.add_special_tokens({"additional_special_tokens": names[2:]})
    return found


def encoded(tokenizer, record, template, max_length=500):
    tokenizer.chat_template = template
    return encode(task("jsonl").example(record), tokenizer, max_length=max_length)


def pieces(tokenizer, one):
    """The runs of targets as texts."""
    found, run = [], []
    for label in [*one.labels, IGNORED]:
        if label != IGNORED:
            run.append(label)
        elif run:
            found.append(tokenizer.decode(run))
            run = []
    return found


def test_messages_sharegpt_and_conversational_prompts_are_one_conversation():
    sharegpt = [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]} for m in TALK]
    made = [
        task("jsonl").example(record)
        for record in ({"messages": TALK}, {"conversations": sharegpt}, {"prompt": TALK[:3], "completion": TALK[3:]})
    ]
    assert [list(one.messages) for one in made] == [TALK] * 3
    assert [one.given for one in made] == [0, 0, 3]
    assert {one.completion for one in made} == {"six"}
    assert task("jsonl").example({"prompt": TALK[:1], "completion": None}).completion == ""


@pytest.mark.parametrize(("template", "end"), [(CHATML, "<|im_end|>\n"), (MARKED, "<|im_end|>")])
def test_every_assistant_turn_of_messages_is_a_target_with_or_without_markers(tokenizer, template, end):
    one = encoded(tokenizer, {"messages": TALK}, template)
    assert pieces(tokenizer, one) == [f"4{end}", f"six{end}"]
    assert tokenizer.decode(one.input_ids) == tokenizer.apply_chat_template(TALK, tokenize=False)


def test_only_the_completion_is_learnt_of_a_conversational_prompt_exactly_as_trl_does(tokenizer):
    one = encoded(tokenizer, {"prompt": TALK[:3], "completion": TALK[3:]}, CHATML)
    prompt = tokenizer.apply_chat_template(TALK[:3], add_generation_prompt=True).input_ids  # TRL: its SFTTrainer takes
    whole = tokenizer.apply_chat_template(TALK).input_ids
    at = next(i for i, (a, b) in enumerate(zip([*prompt, None], whole, strict=False)) if a != b)  # their common prefix
    assert one.input_ids == whole
    assert one.labels == [IGNORED] * at + whole[at:]
    assert pieces(tokenizer, one) == ["six<|im_end|>\n"]


def test_a_template_that_does_not_end_an_answer_gets_the_end_token(tokenizer):
    assert pieces(tokenizer, encoded(tokenizer, {"messages": TALK[:2]}, BARE)) == ["[4]</s>"]


def test_a_turn_without_anything_before_it_is_no_target(tokenizer):
    one = encoded(tokenizer, {"messages": [TALK[1], *TALK[2:]]}, CHATML)
    assert pieces(tokenizer, one) == ["six<|im_end|>\n"]


def test_a_long_conversation_is_cut_at_its_end_and_keeps_a_target(tokenizer):
    whole = encoded(tokenizer, {"messages": TALK}, CHATML)
    cut = encoded(tokenizer, {"messages": TALK}, CHATML, max_length=30)
    assert len(cut.input_ids) == 30
    assert cut.completion_cut > 0
    assert pieces(tokenizer, cut) != pieces(tokenizer, whole)
    assert pieces(tokenizer, cut)[0].startswith("4")


def test_loss_weights_go_to_the_targets_in_order(tokenizer):
    tokenizer.chat_template = MARKED
    example = task("jsonl").example({"messages": TALK})._replace(loss_weights=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    one = encode(example, tokenizer, max_length=500)
    assert [w for w, label in zip(one.loss_weights, one.labels, strict=True) if label != IGNORED] == [1, 2, 3, 4, 5, 6]
    assert sum(one.loss_weights) == 21
    with pytest.raises(ValueError, match="has 1 numbers, and there are 6 target tokens"):
        encode(example._replace(loss_weights=(1.0,)), tokenizer, max_length=500)


@pytest.mark.parametrize(
    ("record", "template", "message"),
    [
        ({"messages": TALK}, None, "the tokenizer has no chat template"),
        ({"messages": TALK}, FORGETFUL, "the tokens of message 2 cannot be told apart"),
        ({"messages": TALK[:1]}, CHATML, "no turn of the assistant to learn"),
        ({"messages": TALK[1:]}, STRICT, "the chat template refuses the conversation: the user must begin"),
    ],
)
def test_a_conversation_whose_targets_cannot_be_told_is_refused(tokenizer, record, template, message):
    with pytest.raises(ValueError, match=message):
        encoded(tokenizer, record, template)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"messages": []}, "'messages' must be a list of messages that is not empty"),
        ({"messages": ["hi"]}, r"messages\[0\] must be an object"),
        ({"messages": [{"role": "judge", "content": "x"}]}, r"messages\[0\] has the role 'judge'; legal: system"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, r"messages\[0\]: 'content' must be text"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]: no field 'content'"),
        ({"prompt": TALK[:1], "completion": "4"}, "'completion' must be a list of messages"),
        ({"prompt": "2 + 2?", "completion": TALK[1:2]}, "'prompt' must be a list of messages"),
        ({"messages": TALK, "tools": [{}]}, "'tools': conversations with tools"),
        ({"messages": None}, "'messages' is null"),
        ({"question": "2 + 2?"}, "no field 'prompt' or 'completion' or 'messages' or 'conversations' or 'text'"),
    ],
)
def test_a_bad_conversation_is_a_sentence(record, message):
    with pytest.raises(ValueError, match=message):
        task("jsonl").example(record)


RECORDS = [{"question": "2 + 2 =", "answer": " 4"}, {"question": "3 + 3 =", "answer": " 6"}]


def written(path, records):
    kind = path.suffix
    if kind == ".jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in records))
    elif kind in (".csv", ".tsv"):
        mark = "," if kind == ".csv" else "\t"
        path.write_text("\n".join([mark.join(records[0]), *(mark.join(one.values()) for one in records)]))
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    return str(path)


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_prompt_and_completion_may_have_other_names_in_every_kind_of_file(tmp_path, kind):
    path = written(tmp_path / f"mine{kind}", RECORDS)
    found = read("jsonl", path, prompt_field="question", completion_field="answer", answered=True)
    assert [one[:2] for one in found.examples] == [("2 + 2 =", " 4"), ("3 + 3 =", " 6")]
    assert found.bad == []
    (first, _) = read("jsonl", path, prompt_field="ask", completion_field="answer").bad
    assert "no field 'ask'; it has 'question', 'answer'" in first
    assert read("jsonl", path, completion_field="answer").examples[0][:2] == ("", " 4")
    (first, _) = read("jsonl", path, prompt_field="question", completion_field="reply", answered=True).bad
    assert "no field 'reply'" in first


def test_a_txt_holds_one_text_a_line_and_blank_lines_are_no_texts(tmp_path):
    (tmp_path / "mine.txt").write_bytes(b"Once.\r\n\n Twice. \n\xff\n")
    found = read("jsonl", str(tmp_path / "mine.txt"))
    assert [one[:2] for one in found.examples] == [("", "Once."), ("", " Twice. ")]
    assert found.bad == [f"{tmp_path / 'mine.txt'}, line 4: not UTF-8 at byte 1"]


def test_conversations_are_read_from_parquet(tmp_path):
    path = written(tmp_path / "mine.parquet", [{"messages": TALK}])
    assert list(read("jsonl", path).examples[0].messages) == TALK
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(ValueError, match=r"bad\.parquet: not a parquet file"):
        read("jsonl", str(tmp_path / "bad.parquet"))


def test_parquet_without_pyarrow_names_the_package(tmp_path, monkeypatch):
    (tmp_path / "mine.parquet").write_text("")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        read("jsonl", str(tmp_path / "mine.parquet"))


def test_other_names_are_for_the_task_jsonl():
    with pytest.raises(ValueError, match="'alpaca' has its own fields"):
        read("alpaca", "mine.jsonl", prompt_field="question")
