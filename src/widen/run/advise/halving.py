"""Successive halving: every rung doubles the steps and keeps the better half of the losses. NLL, the baseline, is never dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .plan import Plan, duration
from .search_state import SearchState
from .wish import Points, Wish


class Trained(NamedTuple):
    """A loss, the steps of its longest training, and the scores of that model on the validation prompts."""

    loss: str
    steps: int
    points: Points


def halve(
    plan: Plan,
    wish: Wish,
    *,
    budget: float,
    state: SearchState,
    train: Callable[[str, int], Points],
    say: Callable[[str], None] = lambda text: None,
) -> list[Trained]:
    """Train losses for longer and longer, within the budget.

    A job starts only if it is expected to end in time and leaves time for the test. Expectations are those of the plan, scaled by how long
    earlier jobs really took. Decisions are written to the state, so a resumed search makes the same ones.

    Args:
      train: trains a model with a loss for some steps, or finds it on disk, and returns its scores on the validation prompts.

    Returns:
      NLL, and then the losses of the last rung that trained any, best first.
    """
    alive, best = list(plan.losses[1:]), dict[str, Trained]()
    slow, ahead = 1.0, plan.seconds - plan.score
    for rung, (count, steps) in enumerate(zip(plan.rivals, plan.steps, strict=True)):
        trained = []
        for loss in ("nll", *alive[:count]):
            job = f"rung {rung + 1} of {len(plan.steps)}: {loss}, {steps} steps"
            known = state.outcome(job)
            in_time = state.spent + slow * (plan.job(steps) + plan.test) <= budget
            if known == "no time" or (
                known is None and not in_time and best
            ):  # the first job is the baseline: it always runs
                if known is None:
                    state.decide(job, "no time")
                say(f"{job}: no time left")
                if loss == "nll":
                    break  # no loss is trained for longer than the baseline
                continue
            say(f"{job} (about {duration(slow * ahead)} left)")
            ahead -= plan.job(steps)
            began = state.spent
            best[loss] = Trained(loss, steps, train(loss, steps))
            if known is None:
                slow = max(1.0, (state.spent - began) / plan.job(steps))
                state.decide(job, "trained")
            trained.append(loss)
        rivals = [loss for loss in trained if loss != "nll"]
        if not rivals:
            break
        alive = sorted(rivals, key=lambda loss: wish.rank(best[loss].points), reverse=True)
    return [best["nll"], *(best[loss] for loss in alive if loss in best)]
