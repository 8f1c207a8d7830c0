"""Prompts and their files."""

import json

import pytest

from widen.sample.prompts import Prompt, read_prompts, unique


def lines(tmp_path, *records, name="p.jsonl"):
    path = tmp_path / name
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_a_prompt_keeps_its_identity_wherever_it_stands_in_the_file(tmp_path):
    one = read_prompts(lines(tmp_path, {"prompt": "x"}, {"text": "y", "id": 7, "answer": 3}, "", {"ids": [1, 2]}))
    other = read_prompts(lines(tmp_path, {"ids": [1, 2]}, {"text": "y", "id": "7"}, {"prompt": "x"}))
    assert {p.id: p for p in one} == {p.id: p for p in other}
    assert one[1].id == "7"
    assert [p.text for p in read_prompts(lines(tmp_path, "one line", "another", name="p.txt"))] == [
        "one line",
        "another",
    ]


def test_only_a_line_feed_ends_a_line(tmp_path):
    (tmp_path / "p.jsonl").write_text('\ufeff{"prompt": "a\u2028b"}\r\n', encoding="utf-8")
    assert [p.text for p in read_prompts(tmp_path / "p.jsonl")] == ["a\u2028b"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{not json", "line 2: not JSON: Expecting"),
        ("[1]", "line 2: expected an object"),
        ({"question": "?"}, "line 2: neither 'prompt' nor 'text' nor 'ids' among its keys: question"),
        ({"prompt": 3}, "line 2: 'prompt' must be a string, got 3"),
        ({"prompt": "ok"}, "line 2: the same prompt or id as line 1"),
        ({"prompt": "x", "without": 1}, "line 2: 'without' must be a string"),
        ({"prompt": "x", "id": [1]}, "line 2: 'id' must be"),
        ({"messages": [{"role": "user", "content": "x"}], "id": [1]}, "line 2: 'id' must be"),
        ({"ids": []}, "line 2: 'ids' must be a list"),
        ({"prompt": "x", "ids": [1]}, "line 2: .* both text and ids"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path, bad, words):
    with pytest.raises(ValueError, match=words):
        read_prompts(lines(tmp_path, {"prompt": "ok"}, bad))


def test_an_id_that_is_null_is_no_id(tmp_path):
    talk = [{"messages": [{"role": "user", "content": text}], "id": None} for text in ("a", "b")]
    found = read_prompts(lines(tmp_path, {"prompt": "x", "id": None}, *talk))
    assert len({p.id for p in found}) == 3
    assert found[0].id == Prompt(text="x").id


def test_an_empty_file_and_doubled_ids_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no prompts"):
        read_prompts(lines(tmp_path, ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_prompts(tmp_path / "b.jsonl")
    with pytest.raises(ValueError, match="two prompts have the id 'a'"):
        unique([Prompt(text="x", id="a"), Prompt(text="y", id="a")])
    with pytest.raises(ValueError, match="no prompts"):
        unique([])
