"""Models that are made side by side: who is tried again, and who failed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from widen.run.side_by_side import TRIES, run_all


def test_a_model_without_memory_is_tried_again_after_the_others():
    order, said = [], []

    def large():
        order.append("large")
        if order.count("large") == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    tasks = {"large": large, "a": lambda: order.append("a"), "b": lambda: order.append("b")}
    with ThreadPoolExecutor(1) as pool:
        assert run_all(pool, tasks, said.append) == []
    assert order == ["large", "a", "b", "large"]
    assert "large ran out of memory and is tried again after the others" in said
    assert any(text.endswith("large is done") for text in said)
    assert said[-1].startswith("3 of 3 models")


def test_a_model_that_never_fits_fails_after_its_last_try():
    tried = []

    def huge():
        tried.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    with ThreadPoolExecutor(2) as pool:
        assert run_all(pool, {"huge": huge, "a": lambda: None}, lambda text: None) == ["huge: CUDA out of memory"]
    assert len(tried) == TRIES


def test_another_error_is_not_tried_again():
    tried = []

    def wrong():
        tried.append(1)
        raise ValueError("bad data")

    with ThreadPoolExecutor(1) as pool:
        assert run_all(pool, {"wrong": wrong}, lambda text: None) == ["wrong: bad data"]
    assert len(tried) == 1
