"""Countdown: every listed answer is right, none is missing, the split is clean and the sample is a function of the fields."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from widen.data import Countdown, ListedTask, MulMod
from widen.data.countdown import CHARACTERS, answers_of
from widen.data.listed import LISTED, listed_task

TASK = Countdown(numbers=3, high=6, num_test=20, num_samples=300)


def by_brute_force(numbers):
    """Every chain of steps in any order: {target: set of frozensets of what each step does}, by taking pairs until one is left."""
    if len(numbers) == 1:
        return {(numbers[0], ())}
    found = set()
    for i, j in combinations(range(len(numbers)), 2):
        a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
        rest = [n for k, n in enumerate(numbers) if k not in (i, j)]
        for sign, value in [("+", a + b), ("*", a * b), ("-", a - b)] + ([("/", a // b)] if a % b == 0 else []):
            if value > 0:
                found |= {(t, (f"{a}{sign}{b}={value}", *steps)) for t, steps in by_brute_force([*rest, value])}
    return found


@pytest.mark.parametrize("numbers", [(2, 3), (1, 1), (1, 2, 3), (4, 4, 2), (1, 2, 3, 4), (2, 2, 3, 3)])
def test_the_list_holds_every_calculation_once(numbers):
    """Chains that do the same steps in another order are one calculation."""
    listed = answers_of(numbers)
    wanted = {}
    for target, steps in by_brute_force(list(numbers)):
        wanted.setdefault(target, set()).add(tuple(sorted(steps)))
    found = {target: [tuple(sorted(chain.split(","))) for chain in chains] for target, chains in listed.items()}
    assert {target: set(chains) for target, chains in found.items()} == wanted


def check(prompt, answer):
    """Whether an answer is right, by arithmetic alone."""
    given, _, target = prompt.removesuffix(":").partition(">")
    left = sorted(map(int, given.split()))
    for step in answer.split(","):
        calculation, _, value = step.partition("=")
        a, b = map(int, calculation.replace("+", " ").replace("-", " ").replace("*", " ").replace("/", " ").split())
        if eval(calculation) != int(value) or a not in left:
            return False
        left.remove(a)
        if b not in left:
            return False
        left.remove(b)
        left.append(int(value))
    return left == [int(target)]


def test_every_listed_answer_is_right_and_every_problem_has_several():
    problems = TASK.problems()
    assert len(problems) == 20
    for problem in problems:
        texts = TASK.text(problem.answers.tokens_BL)
        assert len(set(texts)) == len(texts) >= TASK.fewest
        assert all(text.startswith(problem.prompt) for text in texts)
        assert all(check(problem.prompt, text.removeprefix(problem.prompt).removesuffix("$")) for text in texts)


def test_targets_are_the_answer_and_its_end_and_nothing_else():
    for batch in (TASK.train_batch(), TASK.problems()[0].answers):
        for row, mask, text in zip(batch.tokens_BL, batch.mask_BL, TASK.text(batch.tokens_BL), strict=True):
            assert "".join(CHARACTERS[token] for token in row[mask]) == text.partition(":")[2]


def test_no_test_problem_is_trained_on_and_all_seeds_share_the_test_problems():
    trained = {text.partition(":")[0] + ":" for text in TASK.text(TASK.train_batch().tokens_BL)}
    asked = {problem.prompt for problem in TASK.problems()}
    assert len(trained) > 50
    assert not trained & asked
    assert {problem.prompt for problem in replace(TASK, seed=7).problems()} == asked
    assert {problem.prompt for problem in replace(TASK, split_seed=7).problems()} != asked


def test_the_sample_is_a_function_of_the_fields():
    first, again, other = (replace(TASK, seed=seed).train_batch().tokens_BL for seed in (0, 0, 1))
    assert (first == again).all()
    assert first.shape[0] == 300
    assert first.shape != other.shape or (first != other).any()


def test_a_skew_makes_the_later_answers_of_a_problem_rare():
    task = replace(TASK, num_samples=4000, skew=2.0)
    ranks = []
    _, train = task._split()
    rank = {prompt + answer: i for prompt, answers in train for i, answer in enumerate(answers)}
    ranks = np.array([rank[text] for text in task.text(task.train_batch().tokens_BL)])
    assert (ranks == 0).mean() > 2 * (ranks == 1).mean() > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"numbers": 1}, "numbers=1: must be at least 2"),
        ({"skew": -1.0}, "skew=-1.0: must be at least 0"),
        ({"task": "mulmod"}, "must be 'countdown'"),
    ],
)
def test_a_task_that_cannot_be_made_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(TASK, **change)
    with pytest.raises(ValueError, match="leave some for training"):
        replace(TASK, num_test=100_000).problems()


@pytest.mark.parametrize("name", LISTED)
def test_every_listed_task_keeps_the_contract(name):
    task = {"mulmod": MulMod(modulus=7, high=9, num_samples=16), "countdown": TASK}[name]
    assert isinstance(task, ListedTask)
    assert (task.task, listed_task(name)) == (name, type(task))
    for batch in (task.train_batch(), *(problem.answers for problem in task.problems()[:3])):
        assert int(batch.tokens_BL.max()) < task.vocab
        assert batch.mask_BL.any(1).all()


def test_the_integer_task_is_one_problem_with_an_empty_prompt():
    (problem,) = MulMod().problems()
    assert problem.prompt == ""
    assert (problem.answers.tokens_BL.numpy() == MulMod().support()).all()
    with pytest.raises(ValueError, match="no task with listed answers is called 'x'"):
        listed_task("x")
