"""Write the data of a task of the study, make the models of a growth, or run all tasks."""

import sys
from collections.abc import Callable
from functools import partial

from .all_tasks import all_tasks, tables
from .countdown import SMALL, SMALL_VALID, write_countdown
from .coverageqa import write_coverageqa
from .e2e import write_e2e
from .make_grown import grow_task
from .templates import SHORT, write_templates
from .wise import make_wise

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "countdown": (write_countdown, "FOLDER"),
    "countdown_small": (partial(write_countdown, task=SMALL, num_valid=SMALL_VALID), "FOLDER"),
    "coverageqa": (write_coverageqa, "FILE FOLDER"),
    "e2e": (write_e2e, "SOURCE FOLDER"),
    "mathqa": (write_templates, "SOURCE FOLDER"),
    "mathqa_small": (partial(write_templates, most_lines=SHORT), "SOURCE FOLDER"),
    "grow": (grow_task, "TASK RUNS [JOBS]"),
    "wise": (make_wise, "RUNS"),
    "all": (all_tasks, "RUNS [MINUTES]"),
    "tables": (tables, "RUNS"),
}

if __name__ == "__main__":
    name, given = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    words = COMMANDS[name][1].split() if name in COMMANDS else []
    if not sum(word[0] != "[" for word in words) <= len(given) <= len(words) or not words:
        lines = (f"  python -m widen_recipes.study {one} {takes}" for one, (_, takes) in COMMANDS.items())
        sys.exit("\n".join(["usage:", *lines]))
    COMMANDS[name][0](*given)
