"""Two real processes (gloo): DDP and FSDP2 give the gradients of one process on the whole batch, for every loss, and the same masks."""

import json
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainer_runs import (
    EVERY_LOSS,
    FIGURES,
    RANK_ROWS,
    WAYS,
    apart,
    evaluated,
    pad,
    rank_ways,
    rows,
    tiny_model,
    train,
    weighed,
    with_one_bad_row,
)

from widen.hosts.collate import WithColumns
from widen.hosts.transformers import Trainer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Gradients of rank 0 by run, and the notes of both."""
    out = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(HERE / "trainer_runs.py")]
    made = [
        subprocess.Popen(
            [*command, str(rank), port, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=300) for process in made]
    finally:
        for process in made:
            process.kill()
    assert [output.splitlines()[-1:] for output, _ in outputs] == [["done"]] * 2, "\n".join(
        error for _, error in outputs
    )
    gradients = {}
    for key, value in load_file(out / "gradients.safetensors").items():
        way, loss, step = key.split("|")
        gradients.setdefault((way, loss), {})[int(step)] = value
    notes = [json.loads((out / f"notes-{rank}.json").read_text()) for rank in range(2)]
    return {key: [steps[i] for i in range(len(steps))] for key, steps in gradients.items()}, notes


@cache
def alone(loss, **model):
    return train(Trainer, WAYS["4x1"], loss=loss, data=rows()[:RANK_ROWS], model=tiny_model(**model))


@pytest.mark.parametrize("loss", EVERY_LOSS)
def test_two_ranks_have_the_gradient_the_masks_and_the_log_of_one(ranks, loss):
    gradients, notes = ranks
    watch, trainer = alone(loss)
    for way in rank_ways(loss):
        assert apart(gradients[way, loss], watch.gradients) < 1e-5, way
        check_weights([note[f"{way}|{loss}"]["weights"] for note in notes], watch)
        check_log(notes[0][f"{way}|{loss}"]["log"], trainer.state.log_history)


def check_weights(by_rank, watch):
    """The sequences of both ranks together, with the weights one process gave them."""
    for step, one in enumerate(watch.weights):
        found = {tuple(key): value for rank in by_rank for key, value in rank[step]}
        assert found.keys() == one.keys()
        for key in one:
            torch.testing.assert_close(torch.tensor(found[key]), torch.tensor(one[key]), rtol=1e-3, atol=1e-4)


def check_log(found, expected):
    for left, right in zip(found, expected, strict=True):
        for name in ("loss", *FIGURES, "threshold"):
            assert left.get(name) == (
                None if right.get(name) is None else pytest.approx(right[name], rel=1e-4, abs=1e-6)
            ), name


def test_the_mean_weight_is_that_of_all_ranks(ranks):
    whole = train(Trainer, WAYS["4x1"], loss="cdiv:alpha=1.4", data=rows()[:RANK_ROWS], weight_scale="mean_one")[0]
    assert apart(ranks[0]["mean_one", "cdiv:alpha=1.4"], whole.gradients) < 1e-5


def test_weights_of_the_data_multiply_the_loss_on_ranks_too(ranks):
    data = weighed(per_token=True)
    whole = train(Trainer, WAYS["4x1"], loss="cdiv:alpha=1.4", data=data, collator=WithColumns(pad))[0]
    assert apart(ranks[0]["weights of the data", "cdiv:alpha=1.4"], whole.gradients) < 1e-5


def test_fsdp2_gathers_a_head_that_is_a_unit_of_its_own_or_tied_in_both_trainers(ranks):
    loss = "cdiv:alpha=1.4"
    assert apart(ranks[0]["trl fsdp2", loss], alone(loss)[0].gradients) < 1e-5
    assert apart(ranks[0]["tied fsdp2", loss], alone(loss, tied=True)[0].gradients) < 1e-5


def test_the_logged_loss_keeps_its_digits_where_fsdp2_casts_outputs_to_bfloat16(ranks):
    lines = [entry for entry in ranks[1][0]["half|nll"]["log"] if "loss" in entry]
    assert [entry["loss"] for entry in lines] == pytest.approx([entry["nll"] for entry in lines], rel=1e-6)
    error = apart(ranks[0]["half", "nll"][:1], alone("nll")[0].gradients[:1])
    assert 1e-3 < error < 0.3  # bfloat16 products, as with autocast


def test_a_loss_that_is_not_finite_stops_every_rank_and_one_names_the_row(ranks):
    _, row, _ = with_one_bad_row()
    errors = [note["error"] for note in ranks[1]]
    assert all(error.startswith(f"NonFiniteLossError: step {row // 4 + 1} is not made") for error in errors)
    named, other = errors[row % 2], errors[1 - row % 2]  # rows go to the ranks in turn
    assert f"on rank {row % 2}. It comes from row {row} of the dataset" in named
    assert other.endswith(f"on rank {row % 2}, which names the batch")


def test_evaluation_on_two_ranks_counts_every_row_once(ranks):
    assert [note["eval_loss"] for note in ranks[1]] == [
        pytest.approx(evaluated(Trainer, rows()[:5], size=5), rel=1e-6)
    ] * 2
