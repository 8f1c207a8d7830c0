"""One batch of four = four accumulated batches of one = two real processes, for every loss, with unequal lengths and shares."""

import math
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from widen.data.batch import Batch, pad
from widen.losses import Rows, parse
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.train import distributed
from widen.train.objective import Objective
from widen.train.step import train_step

ROOT = Path(__file__).parents[2]
SHAPE = LlamaShape(layers=1, dim=16, heads=2, hidden=16, init_std=0.3)
LOSSES = [
    "cdiv:alpha=1.4 * tailr:gamma=0.1",
    "lambda_pr:lam=0.5,gamma=0.1 * gold",
    "trunc:drop=0.4,window=9",
    "truncr:drop=0.4,window=9,score=mean",
    "truncr:drop=0.4,window=9 * smooth:eps=0.1",
    "nll:steps=2 then truncr:drop=0.4,window=9 * dft",
]
STEPS = 5
TOLERANCE = 1e-10


def rows(step: int) -> list[tuple[list[int], int]]:
    """Sequences of 2 to 9 tokens and their prompt lengths; the last step is a partial one, with three rows in place of four."""
    generator = torch.Generator().manual_seed(step)
    count = 3 if step == STEPS - 1 else 4
    lengths = torch.randint(2, 10, (count,), generator=generator).tolist()
    sequences = [torch.randint(0, 13, (n,), generator=generator).tolist() for n in lengths]
    return [(sequence, 1 + i % (len(sequence) - 1)) for i, sequence in enumerate(sequences)]


def as_batch(chosen: list[tuple[list[int], int]]) -> Batch:
    return pad([sequence for sequence, _ in chosen], prompt_lengths=[prompt for _, prompt in chosen])


SPLITS = {
    "one": lambda all_rows, rank: [all_rows],
    "accumulated": lambda all_rows, rank: [[row] for row in all_rows],
    # Rank 0 has three rows in two micro-batches; rank 1 the fourth in one, and in the last, partial step none at all.
    "ranks": lambda all_rows, rank: [all_rows[:1], all_rows[1:3]] if rank == 0 else [part for part in [all_rows[3:]] if part],
}  # fmt: skip


class Recorder(torch.optim.SGD):
    """Plain descent that keeps each step's gradient."""

    def __init__(self, model: TinyLlama) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.model, self.grads = model, []

    def step(self) -> None:
        self.grads.append(torch.cat([p.grad.reshape(-1) for p in self.model.parameters()]).clone())
        super().step()


@cache
def trajectory(loss: str, split: str) -> dict[str, torch.Tensor]:
    """Gradient and figures of every step, and which rows the state would keep at the end."""
    model = TinyLlama(SHAPE, seed=1).double()
    recorder, weight, figures = Recorder(model), parse(loss), []
    objective = Objective(weight)
    for step in range(STEPS):
        parts = SPLITS[split](rows(step), distributed.rank())
        found = train_step(model, recorder, [as_batch(part) for part in parts], objective, step=step + 1)
        figures.append([found.loss, found.nll, found.grad_norm, found.sums.tokens])
    likely = torch.rand(16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logq = (-likely * torch.logspace(-2, 2, 16, dtype=torch.float64)[:, None]).double()
    kept, _ = weight.apply(Rows(logq), torch.ones_like(logq, dtype=torch.bool), objective.state)
    return {
        "grads": torch.stack(recorder.grads),
        "figures": torch.tensor(figures, dtype=torch.float64),
        "kept": kept,
        "thresholds": torch.stack(
            [part.double() for part in scalars(objective.state)] or [torch.zeros((), dtype=torch.float64)]
        ),
    }


def scalars(state: tuple) -> list[torch.Tensor]:
    found = []
    for part in state:
        found += scalars(part) if isinstance(part, tuple) else [part] if part.ndim == 0 else []
    return found


def compare(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], what: str) -> None:
    for mine, theirs in zip(found["grads"], expected["grads"], strict=True):
        assert torch.linalg.norm(mine - theirs) <= TOLERANCE * torch.linalg.norm(theirs), what
    for name in ("figures", "thresholds"):
        torch.testing.assert_close(found[name], expected[name], rtol=10 * TOLERANCE, atol=0, msg=what)
    assert torch.equal(found["kept"] == 0, expected["kept"] == 0), what


@pytest.mark.parametrize("loss", LOSSES)
def test_accumulated_batches_of_one_are_one_batch(loss):
    compare(trajectory(loss, "accumulated"), trajectory(loss, "one"), loss)


def main(rank: int, port: int, folder: str) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    tensors = {f"{loss}|{name}": t for loss in LOSSES for name, t in trajectory(loss, "ranks").items()}
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, Path(folder) / f"{rank}.safetensors")
    torch.distributed.barrier()  # a process that leaves early can abort the other one
    torch.distributed.destroy_process_group()


def test_two_real_processes_are_one_batch(tmp_path):
    from safetensors.torch import load_file

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    code = "import sys, test_distributed as t; t.main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
    command = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen([*command, str(rank), str(port), str(tmp_path)], env=env, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    both = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(2)]
    for loss in LOSSES:
        expected = trajectory(loss, "one")
        for rank in range(2):
            compare({name: both[rank][f"{loss}|{name}"] for name in expected}, expected, f"{loss} rank {rank}")


def test_the_losses_that_drop_sequences_did_drop_some():
    """Otherwise the tests above would say nothing about thresholds."""
    for loss in LOSSES:
        if "trunc" in loss:
            kept = trajectory(loss, "one")["kept"]
            assert 0 < (kept == 0).double().mean() < 1, loss


def test_without_other_processes_everything_is_the_identity():
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    scores = torch.tensor([[1.0], [math.nan]])
    assert distributed.gather_scores(scores, rows=7) is scores
    assert distributed.count_tokens([as_batch(rows(0))]) == as_batch(rows(0)).num_tokens
    assert distributed.share(10) == slice(0, 10)
