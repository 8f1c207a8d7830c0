"""Tasks: every shape of record that is in use becomes an example; every bad one becomes a sentence with its place."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.data.tasks import TASKS, Example, listed, read, task

MATHQA = Example("# what is 2 % of 50 ?\n", "n0 = 2.0\nanswer = n0", {"answer": 1.0})
CONTEST = '"""\nPrint the sum.\n"""\n# A Python 3 program that reads the input and prints the answer:\n'
MBPP = '"""\nAdd two numbers.\nassert add(1, 2) == 3\nassert add(0, 0) == 0\n"""\n'

SHAPES = {
    "mathqa: question, program, answer as text": (
        "mathqa_python",
        {"question": "what is 2 % of 50 ?", "program": "n0 = 2.0\nanswer = n0", "answer": "1"},
        MATHQA,
    ),
    "mathqa: prompt with its numbers, code": (
        "mathqa_python",
        {"prompt": "# what is 2 % of 50 ? n0 = 2.0 n1 = 50.0", "code": "n0 = 2.0\r\nanswer = n0", "answer": 1.0},
        MATHQA,
    ),
    "mathqa: the hub's text, numbers a line each": (
        "mathqa_python",
        {
            "task_id": 1,
            "text": "# what is 2 % of 50 ?\nn0 = 2.0\nn1 = 1e3",
            "code": "n0 = 2.0\nanswer = n0",
            "answer": 1,
        },
        MATHQA,
    ),
    "writing prompts": (
        "writing_prompts",
        {"prompt": "[ WP ] A door. <newline> It opens.", "story": "She said : <newline> <newline> Go."},
        Example("[ WP ] A door.\nIt opens.\n\n", "She said :\n\nGo.", {}),
    ),
    "contest: description and a list of tests": (
        "codecontests",
        {
            "description": "Print the sum.\n",
            "test_list": [{"input": "1 2", "output": ["3"]}, {"input": "[1]", "output": [True]}],
        },
        Example(CONTEST, "", {"inputs": ["1 2", "[1]"], "outputs": ["3", "True"]}),
    ),
    "contest: the hub's nested lists, first solution in Python 3": (
        "codecontests",
        {
            "description": "Print the sum.",
            "solutions": {"language": [2, 1, 3, 3], "solution": ["c++", "python 2", "print(3)\n", "later"]},
            "public_tests": {"input": ["1 2"], "output": ["3"]},
            "private_tests": {"input": [], "output": []},
            "generated_tests": {"input": ["2 2"], "output": ["4"]},
        },
        Example(CONTEST, "print(3)", {"inputs": ["1 2", "2 2"], "outputs": ["3", "4"]}),
    ),
    "contest: APPS, JSON inside text": (
        "codecontests",
        {
            "question": "Print the sum.",
            "solutions": json.dumps(["print(3)", "other"]),
            "input_output": json.dumps({"fn_name": "f", "inputs": [[1, [2]]], "outputs": [[3]]}),
        },
        Example(CONTEST, "print(3)", {"inputs": ["1\n[2]"], "outputs": ["3"]}),
    ),
    "contest: a statement in a docstring, no tests": (
        "codecontests",
        {"prompt": "'''\nPrint the sum.\n\n'''\ndef solution(stdin):\n    pass\n", "canonical_solution": ""},
        Example(CONTEST, "", {}),
    ),
    "alpaca without input": (
        "alpaca",
        {"instruction": "Name it.", "input": "", "output": "Blue.", "text": "all of it"},
        Example(
            "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
            "### Instruction:\nName it.\n\n### Response:\n",
            "Blue.",
            {},
        ),
    ),
    "alpaca with input": (
        "alpaca",
        {"instruction": "Name it.", "input": "The {sky}", "output": "Blue."},
        Example(
            "Below is an instruction that describes a task, paired with an input that provides further context. Write a response "
            "that appropriately completes the request.\n\n### Instruction:\nName it.\n\n### Input:\nThe {sky}\n\n### Response:\n",
            "Blue.",
            {},
        ),
    ),
    "mbpp": (
        "mbpp",
        {
            "text": "Add two numbers.",
            "code": "def add(a, b):\r\n  return a + b ",
            "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
            "test_setup_code": "import math",
            "challenge_test_list": [],
        },
        Example(
            MBPP,
            "def add(a, b):\n  return a + b",
            {"tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"], "setup": "import math"},
        ),
    ),
    "mbpp sanitized": (
        "mbpp",
        {
            "prompt": "Add two numbers.",
            "code": "def add(a, b): return a + b",
            "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
            "test_imports": ["import math", "import re"],
        },
        Example(
            MBPP,
            "def add(a, b): return a + b",
            {"tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"], "setup": "import math\nimport re"},
        ),
    ),
    "jsonl as it stands": ("jsonl", {"prompt": "2 + 2 =", "completion": " 4 "}, Example("2 + 2 =", " 4 ", {})),
    "jsonl, only a prompt": ("jsonl", {"prompt": "2 + 2 ="}, Example("2 + 2 =", "", {})),
    "jsonl, only a text": ("jsonl", {"text": " Once."}, Example("", " Once.", {})),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_record_becomes_the_example_it_stands_for(shape):
    name, record, wanted = SHAPES[shape]
    assert task(name).example(record) == wanted


BAD = [
    ("mathqa_python", {"Problem": "x"}, "no field 'question' or 'prompt' or 'text'; it has 'Problem'"),
    ("mathqa_python", {"question": "x", "program": 3}, "'program' must be text, got int"),
    (
        "mathqa_python",
        {"question": "x", "program": "y", "answer": "six"},
        "'answer' must be a finite number, got 'six'",
    ),
    ("mathqa_python", {"question": "x", "program": "y", "answer": float("nan")}, "'answer' must be a finite number"),
    ("mathqa_python", {"question": "x", "program": "y", "answer": True}, "'answer' must be a finite number, got True"),
    ("mathqa_python", {"question": "x", "answer": 10**400}, "'answer' must be a finite number, got 1000"),
    ("mathqa_python", {"question": "# n0 = 1.0"}, "the question is empty"),
    ("writing_prompts", {"prompt": " "}, "'prompt' is empty"),
    ("writing_prompts", {"prompt": "a", "story": "\ud83d"}, "'story' holds half of a surrogate pair at character 1"),
    ("alpaca", {"instruction": None, "output": "x"}, "'instruction' is null"),
    ("mbpp", {"text": "a", "code": "b", "test_list": "assert x"}, "'test_list' must be a list of texts, got str"),
    ("mbpp", {"text": "a", "code": "b", "test_list": []}, "'test_list' is empty"),
    ("codecontests", {"description": "a", "test_list": [{"input": "1"}]}, "'test_list', entry 1: must hold"),
    ("codecontests", {"description": "a", "test_list": "ab"}, "'test_list' is not JSON"),
    (
        "codecontests",
        {"description": "a", "test_list": {"input": "1"}},
        "'test_list' must be a list of tests, got dict",
    ),
    ("mbpp", {"text": "a", "code": "b"}, "no field 'test_list'; it has 'text', 'code'"),
    ("mbpp", {"text": "a", "test_list": None}, "'test_list' is null"),
    ("codecontests", {"description": "a", "solutions": "[oops"}, "'solutions' is not JSON"),
    ("codecontests", {"description": "a", "solutions": 5}, "'solutions' must be a list of programs, got int"),
    ("codecontests", {"description": "a", "public_tests": {"input": [1], "output": []}}, "two lists of one length"),
    ("jsonl", {"completion": "x"}, "no field 'prompt'"),
    (
        "jsonl",
        {"question": "x"},
        "no field 'prompt' or 'completion' or 'messages' or 'conversations' or 'text'; it has 'question'",
    ),
    ("jsonl", ["prompt"], "expected an object with fields, got list"),
]


@pytest.mark.parametrize(("name", "record", "sentence"), BAD, ids=[f"{b[0]}: {b[2][:30]}" for b in BAD])
def test_a_bad_record_is_refused_with_what_is_wrong_with_it(name, record, sentence):
    with pytest.raises(ValueError) as refused:
        task(name).example(record)
    assert sentence in str(refused.value)


@given(
    name=st.sampled_from(sorted(TASKS)),
    record=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([c for t in TASKS.values() for c in t.columns]), inner, max_size=4)
        ),
        max_leaves=8,
    ),
)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_no_record_raises_anything_but_a_sentence(name, record):
    with contextlib.suppress(ValueError):
        assert isinstance(task(name).example(record), Example)


def test_files_of_each_kind_give_the_same_examples_and_name_lines(tmp_path):
    rows = [
        {"prompt": "a,\n\u2028b", "story": 'said "x"'},
        {"prompt": "", "story": "lost"},
        {"prompt": "c", "story": "d"},
    ]
    (tmp_path / "x.jsonl").write_text("\ufeff" + "\n\n".join(json.dumps(row) for row in rows))
    (tmp_path / "x.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "x.csv").write_text('story,prompt\r\n"said ""x""","a,\n\u2028b"\r\nlost,\r\nd,c\r\n', newline="")
    found = {ending: read("writing_prompts", str(tmp_path / f"x.{ending}")) for ending in ("jsonl", "json", "csv")}
    assert found["jsonl"].examples == found["json"].examples == found["csv"].examples
    assert [example.completion for example in found["csv"].examples] == ['said "x"', "d"]
    where = {ending: one.bad[0].partition(": ")[0].rpartition(", ")[2] for ending, one in found.items()}
    assert where == {"jsonl": "line 3", "json": "record 2 (line 6)", "csv": "line 4"}


def test_lines_that_cannot_be_read_are_bad_records_and_the_rest_is_read(tmp_path):
    good = b'{"text": "fine"}\n'
    (tmp_path / "x.jsonl").write_bytes(
        good + b'{"text": \n' + b'{"text": "\xff"}\n' + b"[" * 100_000 + b"\n" + b"7\n" + good
        + b'{"text": "a", "n": 1' + b"0" * 5000 + b"}\n" + b'{"text": "a", "more": {}, "text": "b"}\n' + good
    )  # fmt: skip
    found = read("jsonl", str(tmp_path / "x.jsonl"))
    assert len(found.examples) == 3
    lines = [sentence.partition("x.jsonl, ")[2] for sentence in found.bad]
    assert [line.partition(":")[0] for line in lines] == ["line 2", "line 3", "line 4", "line 5", "line 7", "line 8"]
    assert "not JSON: Expecting value at column 9" in lines[0]
    assert "not UTF-8 at byte 11" in lines[1]
    assert "it holds a whole number of too many digits" in lines[4]
    assert "the field 'text' is there twice" in lines[5]


def test_a_row_of_a_csv_that_is_no_utf8_is_bad_and_the_rest_is_read(tmp_path):
    (tmp_path / "x.csv").write_bytes("prompt,story\nä,b\n".encode() + b"c,d\xff\n" + b'"e\ng",f\n')
    found = read("writing_prompts", str(tmp_path / "x.csv"))
    assert [example.completion for example in found.examples] == ["b", "f"]
    assert [sentence.partition("x.csv, ")[2] for sentence in found.bad] == ["line 3: not UTF-8"]


def test_a_list_that_is_no_utf8_is_refused_with_the_line(tmp_path):
    (tmp_path / "x.json").write_bytes(b'[{"text": "a"},\n{"text": "\xff"}]')
    with pytest.raises(ValueError, match=r"x\.json, line 2: not UTF-8 at byte 27"):
        read("jsonl", str(tmp_path / "x.json"))


def test_an_unanswered_example_is_bad_only_where_there_is_something_to_learn(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b", "completion": "c"}\n')
    assert len(read("jsonl", str(tmp_path / "x.jsonl")).examples) == 2
    found = read("jsonl", str(tmp_path / "x.jsonl"), answered=True)
    assert [example.prompt for example in found.examples] == ["b"]
    reason = "x.jsonl, line 1: there is no completion to learn: no field 'completion' or 'messages'; it has 'prompt'"
    assert found.bad[0].endswith(reason)


@pytest.mark.parametrize(
    ("name", "record", "reason"),
    [
        (
            "mathqa_python",
            {"question": "x", "solution": "y"},
            "no field 'program' or 'code'; it has 'question', 'solution'",
        ),
        ("alpaca", {"instruction": "x", "output": " "}, "'output' is empty"),
        ("writing_prompts", {"prompt": "x", "story": None}, "'story' is null"),
        ("codecontests", {"description": "x", "solutions": []}, "'solutions' is empty"),
        (
            "codecontests",
            {"description": "x", "solutions": {"language": [2], "solution": ["c++"]}},
            "'solutions' holds no usable one",
        ),
    ],
)
def test_why_there_is_nothing_to_learn_is_said_by_field(tmp_path, name, record, reason):
    (tmp_path / "x.jsonl").write_text(json.dumps(record))
    (sentence,) = read(name, str(tmp_path / "x.jsonl"), answered=True).bad
    assert sentence.endswith(f"there is no completion to learn: {reason}")


def test_what_is_wrong_with_many_records_in_the_same_way_is_said_once(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 20 + "oops\n")
    text = listed(read("alpaca", str(tmp_path / "x.jsonl")).bad)
    assert text.count("no field 'instruction'; it has 'prompt', 'completion' (and 19 more records like it)") == 1
    assert text.count("\n") == 1
    kinds = listed([f"x.jsonl, line {i}: fault {i}" for i in range(13)])
    assert kinds.count("\n") == 10
    assert kinds.endswith("  and 3 more")


def test_a_record_of_a_list_on_one_line_is_known_by_its_number(tmp_path):
    (tmp_path / "x.json").write_text('[{"text": "a"}, {"text": 1}, {"text": 2}]')
    where = [
        sentence.partition("x.json, ")[2].partition(":")[0] for sentence in read("jsonl", str(tmp_path / "x.json")).bad
    ]
    assert where == ["record 2 (line 1)", "record 3 (line 1)"]


def test_an_empty_cell_is_no_answer_and_a_missing_one_is_counted(tmp_path):
    (tmp_path / "x.csv").write_text("question,program,answer\nwhat is 1 ?,answer = 1,\nwhat is 2 ?\n")
    found = read("mathqa_python", str(tmp_path / "x.csv"))
    assert [example.facts for example in found.examples] == [{}]
    assert found.bad[0].endswith("1 column where the header has 3")


def test_a_task_whose_records_hold_lists_is_not_read_from_csv(tmp_path):
    (tmp_path / "x.csv").write_text("text,code,test_list\na,b,c\n")
    with pytest.raises(
        ValueError, match=r"x\.csv: records of 'mbpp' hold lists, which a \.csv cannot: give \.jsonl or"
    ):
        read("mbpp", str(tmp_path / "x.csv"))


def test_tests_of_contests_may_be_json_inside_text():
    asked = {"description": "a", "test_list": json.dumps([{"input": "1", "output": "2"}])}
    assert task("codecontests").example(asked).facts == {"inputs": ["1"], "outputs": ["2"]}


def test_limit_takes_the_first_records_and_facts_can_be_left_behind(tmp_path):
    lines = [{"question": f"what is {i} ?", "program": f"answer = {i}", "answer": i} for i in range(5)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read("mathqa_python", str(tmp_path / "x.jsonl"), limit=2, facts=False)
    assert [(e.completion, e.facts) for e in found.examples] == [("answer = 0", {}), ("answer = 1", {})]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.json", '{"a": 1}', "must hold a list of records"),
        ("x.json", '[{"text": "a"}', "the list is not closed after the record at line 1"),
        ("x.json", '[\n{"text": }]', "line 2: not JSON: Expecting value at column 10"),
        ("x.json", "[" * 100_000, r"record 1 \(line 1\): not JSON that can be read: it is nested too deeply"),
        ("x.json", f'[\n{{"text": 1{"0" * 5000}}}]', r"record 1 \(line 2\): .* whole number of too many digits"),
        ("x.json", '[{"a": 1}, {"text": 1, "text": 2}]', r"record 2 \(line 1\): the field 'text' is there twice"),
        ("x.csv", "", "no header"),
        ("x.csv", 'text\n"open', "line 2: not CSV"),
        ("x.csv", "prompt,story,prompt\na,b,c\n", "line 1: the header names 'prompt' twice"),
        ("x.xml", "", r"must end in \.jsonl, \.json, \.csv, \.tsv, \.txt, \.parquet"),
    ],
)
def test_a_file_that_is_no_list_of_records_is_refused_by_name(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read("jsonl", str(tmp_path / name))


def test_a_missing_file_a_wrong_task_and_a_missing_source_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read("jsonl", str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="did you mean 'writing_prompts'"):
        read("writingprompts", "x.jsonl")
    with pytest.raises(ValueError, match="no data set of its own"):
        read("jsonl")
    with pytest.raises(ValueError, match="limit=0"):
        read("jsonl", "x.jsonl", limit=0)


def test_answers_that_look_alike_count_as_one_and_cannot_be_listed_as_two():
    """Of two listed answers that differ in white space or Unicode form alone, no sample could ever be the second."""
    answers = task("answers")
    with pytest.raises(ValueError, match="holds the same answer twice: 'a b'"):
        answers.example({"prompt": "p", "answers": ["a b", "a  b"]})
    with pytest.raises(ValueError, match="holds the same answer twice: 'b'"):
        answers.example({"prompt": "p", "answers": [["a", "b"], ["c", "b"]]})
    facts = answers.example({"prompt": "p", "answers": [["a b", " a b"], "caf\u00e9"]}).facts  # spellings may differ so
    assert answers.check(facts, "cafe\u0301\n")  # the accent as a character of its own
    assert answers.key(facts, "cafe\u0301") == answers.key(facts, "caf\u00e9")
    assert answers.key({}, "e\u0301") == answers.key({}, "\u00e9")
