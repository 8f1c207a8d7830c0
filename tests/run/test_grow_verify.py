"""How `widen grow` judges: listed answers by membership, programs and checkers in the sandbox only."""

import json
import math

import pytest

from widen.data.tasks import Example
from widen.judge import Checked, Sandbox, selftest
from widen.run.finetune import Source
from widen.run.grow import Growth
from widen.run.grow.verify import Verifier, judge_samples_once, scores
from widen.run.questions import distinct_questions, named
from widen.run.scoring import checked
from widen.run.scoring.job import ScoreTools
from widen.sample import Decoding, Identity, Prompt, Sample, SamplesWriter, Settings


def config(**changes):
    return Growth(**({"model": "m", "prompts": Source(task="answers", path="p.jsonl")} | changes))


def draw(path, texts, **about):
    """A samples file with these texts, as (prompt id, text, sampler, finish)."""
    settings = Settings(decoding=Decoding.parse("t=1"))
    identity = Identity(engine="local", name="by hand", model={"weights": "none"})
    prompts = [Prompt(text=one, id=one) for one in dict.fromkeys(one for one, *_ in texts)]
    seen: dict[str, int] = {}
    with SamplesWriter(path, settings=settings, identity=identity, prompts=prompts) as writer:
        for prompt, text, sampler, finish in texts:
            index = seen[prompt] = seen.get(prompt, -1) + 1
            writer.append([Sample(prompt=prompt, index=index, text=text, finish=finish, sampler=sampler, **about)])


def test_spellings_of_one_answer_count_as_one_and_their_probabilities_add_up(tmp_path):
    (one,) = named([Example("3 4>7:", "4+3=7", {"answers": ["4+3=7", "3+4=7"]})])
    texts = [("4+3=7", 0.2), (" 4+3=7", 0.1), ("4+3=7", 0.2), ("3+4=7", 0.05), ("9", 0.3)]
    rows = [(one.id, text, math.log(q), "stop") for text, q in texts]
    draw(tmp_path / "s.jsonl", [*rows, (one.id, "3+4=7", math.log(0.05), "length")])
    with ScoreTools(tmp_path) as tools:
        verifier = Verifier(config(), [one], tools)
        (found,) = judge_samples_once(
            tmp_path / "s.jsonl", [one], tmp_path / "f.jsonl", num=6, verifier=verifier, what=""
        )
        again = judge_samples_once(
            tmp_path / "gone.jsonl", [one], tmp_path / "f.jsonl", num=6, verifier=verifier, what=""
        )
    assert (found.drawn, found.right, found.cut) == (6, 4, 1)
    assert [(a.completion, a.found) for a in found.answers] == [("4+3=7", 3), ("3+4=7", 1)]
    assert [a.q for a in found.answers] == pytest.approx([0.3, 0.05])
    assert again == [found]
    values = scores([found])
    assert (values["precision"].value, values["coverage"].value) == (pytest.approx(4 / 6), 2)
    assert not (tmp_path / "verdicts").exists()  # nothing had to run


def test_listed_spellings_of_one_answer_have_one_key(tmp_path):
    (one,) = named([Example("Name a gas.", "Ne", {"answers": [["Ne", "Neon"], "Argon"]})])
    with ScoreTools(tmp_path) as tools:
        verifier = Verifier(config(), [one], tools)
        found = verifier.judge([(one, text) for text in ("Neon", "Ne", "Argon", "Iron")], what="")
        assert [(one.right, one.key) for one in found] == [(True, "Ne"), (True, "Ne"), (True, "Argon"), (False, "Iron")]
        assert verifier.keys([("Name a gas.", "Neon"), ("another prompt", "Neon")]) == ["Ne", "Neon"]


@pytest.mark.parametrize(("wall", "processor"), [(10.0, 10), (59.5, 60)])
def test_a_longer_time_limit_also_holds_for_programs_that_compute(tmp_path, wall, processor):
    """A program that computed for 20 of its 60 seconds used to be a timeout, over 10 s of processor time."""
    (one,) = named([Example("3 + 3", "answer = 6", {"answer": 6.0})])
    task, opened = Source(task="mathqa_python", path="p.jsonl"), []

    class Noted(ScoreTools):
        def sandbox(self, limits):
            opened.append(limits)
            raise InterruptedError

    with Noted(tmp_path) as tools, pytest.raises(InterruptedError):
        Verifier(config(prompts=task, wall_seconds=wall), [one], tools).judge([(one, "answer = 6")], what="")
    assert [(limits.wall_seconds, limits.cpu_seconds) for limits in opened] == [(wall, processor)]


def test_without_log_probabilities_the_chance_of_an_answer_is_its_share_of_the_draws(tmp_path):
    (one,) = named([Example("a:", "x", {"answers": ["x", "y"]})])
    draw(tmp_path / "s.jsonl", [(one.id, text, None, "stop") for text in ("x", "x", "y", "no")])
    with ScoreTools(tmp_path) as tools:
        verifier = Verifier(config(), [one], tools)
        (found,) = judge_samples_once(
            tmp_path / "s.jsonl", [one], tmp_path / "f.jsonl", num=4, verifier=verifier, what=""
        )
    assert [a.q for a in found.answers] == [0.5, 0.25]


@pytest.mark.sandbox
def test_programs_run_in_the_sandbox_and_equal_ones_run_once(tmp_path, monkeypatch):
    monkeypatch.setattr(selftest, "ATTACKS", {})
    questions = named(
        [Example("# six", "answer = 6", {"answer": 6.0}), Example("# two", "answer = 2", {"answer": 2.0})]
    )
    hostile = f"open({str(tmp_path / 'escaped')!r}, 'w')\nanswer = 6"
    answers = [
        (questions[0], text) for text in ("answer = 6", "answer = 6  \n\n", "answer = 2 * 3", "answer = 7", hostile)
    ]
    growth = config(prompts=Source(task="mathqa_python", path="p.jsonl"))
    with ScoreTools(tmp_path) as tools:
        verifier = Verifier(growth, questions, tools)
        found = verifier.judge([*answers, *answers, (questions[1], "answer = 2")], what="judge")
        assert verifier.keys([("# six", "answer = 6\n")]) == ["answer = 6"]
    assert [one.right for one in found[:5]] == [True, True, True, False, False]
    assert found[0].key == found[1].key != found[2].key
    assert found[-1].right
    assert len((tmp_path / "verdicts" / "mathqa_python.jsonl").read_text().splitlines()) == 6
    assert not (tmp_path / "escaped").exists()


def test_rows_with_several_answers_to_one_prompt_are_one_question(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a:", "completion": "x"}\n{"prompt": "a:", "completion": "y"}\n{"prompt": "b:"}\n')
    found = distinct_questions(Source(path=str(path)))
    assert [(one.example.prompt, one.example.completion) for one in found] == [("a:", "x"), ("b:", "")]


MEANING = "name[The Mill], food[French], area[riverside]"


def test_a_text_is_right_if_every_slot_is_and_case_spaces_and_punctuation_make_no_new_answer(tmp_path):
    path = tmp_path / "p.jsonl"
    texts = ["The Mill serves French food by the river.", "By the river, The Mill is French."]
    path.write_text("".join(json.dumps({"mr": MEANING, "ref": text}) + "\n" for text in texts))
    source = Source(task="e2e", path=str(path))
    (one,) = distinct_questions(source)  # one meaning, though it has two texts
    said = [
        "the  mill serves French food, by the river",
        "The Mill is French.",
        "At the riverside is The Mill: French!",
    ]
    with ScoreTools(tmp_path) as tools:
        verifier = Verifier(config(prompts=source), [one], tools)
        found = verifier.judge([(one, text) for text in said], what="")
        known = verifier.keys([(one.example.prompt, text) for text in texts])
        assert verifier.keys([("another prompt", "A, b.")]) == ["a b"]
    assert [answer.right for answer in found] == [True, False, True]
    assert [answer.key in known for answer in found] == [True, False, False]
    assert not (tmp_path / "verdicts").exists()  # nothing had to run


def test_held_out_problems_of_another_task_are_refused_unless_a_checker_judges_both():
    changes = {"held_out": Source(task="e2e", path="t.jsonl")}
    with pytest.raises(ValueError, match=r"held_out\.task='e2e': must be the task of prompts, 'answers'"):
        config(**changes)
    assert config(**changes, checker="own.py:check").held_out.task == "e2e"


def test_without_a_key_answers_that_differ_in_white_space_alone_count_as_one(tmp_path, monkeypatch):
    """In `widen score` as in `widen grow`: both report the coverage of the same answers."""
    monkeypatch.setattr(checked, "run_checker", lambda *a, **k: [Checked(status="scored", score=1.0)] * 3)
    pairs = [("p", "a b"), ("p", " a\n b "), ("p", "ab")]
    found = checked.Checker(tmp_path / "any.py", "check").check(pairs, sandbox=Sandbox(), verdicts=tmp_path)
    assert [one.key for one in found] == ["a b", "a b", "ab"]
