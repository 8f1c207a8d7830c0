"""A task of your own whose right answers can be listed: train a small Llama on it and score it exactly."""

from dataclasses import dataclass

import numpy as np
import torch

from widen.data.batch import Batch
from widen.data.listed import Problem
from widen.metrics.exact_points import exact_points
from widen.models import LlamaShape, log_likelihood
from widen.train import AdamW, Configuration, Train, train_one


@dataclass(frozen=True, kw_only=True)
class TwoDigits:
    """Pairs of digits whose sum is 6: there are seven, and the training data shows one of them more often."""

    task: str = "two_digits"
    vocab: int = 11  # ten digits and BOS

    def train_batch(self) -> Batch:
        return self.batch([0, 0, 0, *range(1, 7)] * 4)

    def problems(self) -> list[Problem]:
        return [Problem("", self.batch(range(7)))]

    def batch(self, first) -> Batch:
        tokens = torch.tensor([[10, a, 6 - a] for a in first])
        return Batch(tokens, tokens != 10)  # BOS is not a target


task, shape = TwoDigits(), LlamaShape(vocab=11, layers=1, dim=16, heads=2, hidden=16)
train = Train(steps=60, batch_size=36, optimizer=AdamW(lr=1e-2))
model = train_one(Configuration(data=task, model=shape, loss="nll", train=train)).model
(problem,), t = task.problems(), [1.0]
log_q = log_likelihood(model, problem.answers.tokens_BL.numpy(), t)
(point,) = exact_points(np.full(7, -np.log(7)), log_q, temperatures=t, num_samples=10)
print(f"precision {point.precision:.2f}, expected share of the 7 right answers in 10 samples {point.recall:.2f}")
