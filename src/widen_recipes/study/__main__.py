"""Write the data of a task of the study, or make the models of a growth."""

import sys
from collections.abc import Callable

from .countdown import write_countdown
from .coverageqa import write_coverageqa
from .e2e import write_e2e
from .make_grown import grow_task

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "countdown": (write_countdown, "FOLDER"),
    "coverageqa": (write_coverageqa, "FILE FOLDER"),
    "e2e": (write_e2e, "SOURCE FOLDER"),
    "grow": (grow_task, "TASK RUNS"),
}

if __name__ == "__main__":
    name, given = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if name not in COMMANDS or len(given) != len(COMMANDS[name][1].split()):
        lines = (f"  python -m widen_recipes.study {one} {takes}" for one, (_, takes) in COMMANDS.items())
        sys.exit("\n".join(["usage:", *lines]))
    COMMANDS[name][0](*given)
