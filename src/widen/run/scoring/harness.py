"""Tasks of lm-evaluation-harness (``lm_eval``): its prompts for `widen sample`, its filters and metrics for `widen score`.

The harness takes one answer per prompt. Here every sample of a prompt is checked as if it were the only one, so that pass@k and coverage
have their usual meaning. An answer ends at the first stop string of the task, as in the harness.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import Example
from widen.judge import Checked
from widen.needs import require

from ..questions import Question, named
from .answers import JudgedAnswer
from .checked import judged_by


class HarnessTask(NamedTuple):
    """A generation task of the harness, with one of its filters.

    Args:
      name: as the harness knows it, or a YAML file.
      filter: the name of the filter that takes the answer out of the text.
      questions: id, prompt (with its examples, if the task has some) and document of each problem.
    """

    name: str
    filter: str
    questions: list[Question]
    task: Any

    @classmethod
    def load(cls, spec: str, *, limit: int | None = None) -> HarnessTask:
        """Read ``TASK`` or ``TASK:FILTER``; TASK is a name, or a YAML file. The first filter is the default."""
        require("lm-eval tasks")
        from lm_eval.tasks import TaskManager

        name, _, chosen = spec.partition(":")
        is_file = Path(name).suffix in (".yaml", ".yml")
        if is_file and not Path(name).is_file():
            raise FileNotFoundError(f"--lm-eval {spec}: there is no file {name}")
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        try:
            found = TaskManager(include_defaults=not is_file).load(name)["tasks"]
        except KeyError:
            raise ValueError(
                f"--lm-eval {spec}: lm_eval knows no task {name!r}; `lm_eval ls tasks` lists them"
            ) from None
        if len(found) != 1:
            raise ValueError(
                f"--lm-eval {spec}: a group of {len(found)} tasks; name one: {', '.join(sorted(found)[:8])}"
            )
        (task,) = found.values()
        if task.OUTPUT_TYPE != "generate_until":
            raise ValueError(
                f"--lm-eval {spec}: its output_type is {task.OUTPUT_TYPE!r}; widen draws answers, so it takes 'generate_until' only"
            )
        if getattr(task.config, "unsafe_code", False):
            raise ValueError(
                f"--lm-eval {spec}: the harness runs the answers as programs without a sandbox; use widen score --task or --checker"
            )
        filters = [one.name for one in task._filters]
        if chosen and chosen not in filters:
            raise ValueError(f"--lm-eval {spec}: {name} has no filter {chosen!r}; its filters: {', '.join(filters)}")
        task.build_all_requests(limit=limit)
        examples = [
            Example(one.args[0], "", {"document": one.doc, "until": _until(one.args[1])}) for one in task.instances
        ]
        return cls(task.config.task, chosen or filters[0], named(examples), task)

    def check(self, answers: Sequence[tuple[Question, str]]) -> list[JudgedAnswer]:
        """Judge each answer by the task's filter and its first metric."""
        from lm_eval.api.instance import Instance

        made = []
        for number, (question, text) in enumerate(answers):
            facts = question.example.facts
            for stop in facts["until"]:
                text = text.split(stop)[0]
            about = (self.name, number, 1)
            request: tuple[str, dict[str, Any]] = (question.example.prompt, {})
            one = Instance("generate_until", facts["document"], request, 0, metadata=about, resps=[text])
            made.append(one)
        (chosen,) = (one for one in self.task._filters if one.name == self.filter)
        chosen.apply(made)
        return [self._judged(one.doc, one.filtered_resps[self.filter]) for one in made]

    def _judged(self, document: Any, answer: Any) -> JudgedAnswer:
        numbers = self.task.process_results(document, [answer])
        metric, value = next(iter(numbers.items()))
        if not isinstance(value, (bool, int, float)) or not 0 <= float(value) <= 1:
            raise ValueError(
                f"--lm-eval {self.name}: its metric {metric!r} gave {value!r}; a number from 0 to 1 is needed"
            )
        return judged_by(Checked(status="scored", score=float(value), key=str(answer).strip()))


def _until(settings: Any) -> list[str]:
    found = settings.get("until", ()) if isinstance(settings, dict) else ()
    return [found] if isinstance(found, str) else [stop for stop in found if stop]
