"""Texts from files: exactly what was written, and an error that names the line."""

import csv

import pytest

from widen.data.texts import read_texts


def put(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_a_text_file_has_one_text_a_line(tmp_path):
    assert read_texts(put(tmp_path, "a.txt", "one\n two \r\nthree\x0bstill three\u2028too")) == [
        "one",
        " two ",
        "three\x0bstill three\u2028too",
    ]


def test_json_lines_are_strings_or_objects_with_the_field(tmp_path):
    content = '{"text": "one\\ntwo", "id": 1}\n\n"two"\n{"text": ""}\n'
    assert read_texts(put(tmp_path, "a.jsonl", content)) == ["one\ntwo", "two", ""]
    assert read_texts(put(tmp_path, "b.jsonl", '{"story": "x"}\n'), field="story") == ["x"]


def test_a_csv_has_a_column_and_texts_may_hold_line_breaks(tmp_path):
    file = tmp_path / "a.csv"
    texts = ["one, two", 'said "three"\nfour', "", "x" * 200_000]
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([["id", "text"], *enumerate(texts)])
    assert read_texts(file) == texts


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    assert read_texts(put(tmp_path, "a.txt", b"\xef\xbb\xbfone\n")) == ["one"]
    assert read_texts(put(tmp_path, "a.csv", b"\xef\xbb\xbftext\none\n")) == ["one"]


REFUSED = [
    ("a.txt", "one\n\nthree\n", "line 2: empty"),
    ("a.jsonl", '"one"\n{"text": "two"\n', "line 2: not JSON"),
    ("a.jsonl", '{"text": "one"}\n{"txet": "two"}\n', "line 2: no field 'text'; it has 'txet'"),
    ("a.jsonl", '{"text": 3}\n', "line 1: the text must be a string, got int"),
    ("a.jsonl", "[1]\n", "line 1: the text must be a string, got list"),
    ("a.csv", "story,id\nx,1\n", "line 2: no field 'text'; it has 'story', 'id'"),
    ("a.csv", 'text,id\n"a\nb",1\nc\n', "line 4: 1 column where the header has 2"),
    ("a.csv", 'text\n"open\n', "line 2: not CSV"),
    ("a.txt", "", "holds no text"),
    ("a.csv", "text\n", "holds no text"),
    ("a.txt", b"one\n\xff\xfe\n", "not UTF-8"),
    ("a.md", "one\n", "must end in .txt, .jsonl, .csv"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_an_error_names_the_file_and_the_line(tmp_path, name, content, message):
    file = put(tmp_path, name, content)
    with pytest.raises(ValueError) as refused:
        read_texts(file)
    assert str(refused.value).startswith(str(file))
    assert message in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt: there is no such file"):
        read_texts(tmp_path / "none.txt")
