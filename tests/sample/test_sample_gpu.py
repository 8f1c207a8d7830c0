"""The local engine on a CUDA device: the samples of the CPU, and the same ones after a restart."""

import gc

import pytest
import torch
from small_models import Words, llama

from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.local import LocalEngine
from widen.sample.prompts import Prompt

pytestmark = pytest.mark.gpu
PROMPTS = [Prompt(text=t) for t in ("w3 w4 w5", "w6", "w7 w8 w9 w2 w3", "w2 w2 w2", "")]
SPECS = [
    "t=0",
    "t=1",
    "t=0.7,top_p=0.8",
    "t=1,eta=0.2",
    "t=1,typical=0.7",
    "t=1,top_n_sigma=1",
    "t=1,kl_sigma=2",
    "t=1,kl_sigma=inf",
]


def drawn(device, dtype=torch.float32, *, batch=64, have=None):
    engine = LocalEngine(llama().to(device, dtype), Words(), batch=batch)
    settings = [Settings(decoding=Decoding.parse(spec), max_tokens=24) for spec in SPECS]
    extra = {} if have is None else {"have": have}
    return {
        (d.settings.name, s.prompt, s.index): s
        for d in engine.draw(PROMPTS, settings, num=20, **extra)
        for s in d.samples
    }


def test_a_gpu_draws_what_the_cpu_draws():
    cpu, gpu = drawn("cpu", torch.float64), drawn("cuda", torch.float64)
    assert {at: s.ids for at, s in cpu.items()} == {at: s.ids for at, s in gpu.items()}
    assert all(gpu[at].logq == pytest.approx(cpu[at].logq, abs=1e-4) for at in cpu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_a_restart_gives_the_same_samples_to_the_last_bit(dtype):
    whole = drawn("cuda", dtype)
    there = {at for i, at in enumerate(whole) if i % 3}
    again = drawn("cuda", dtype, have=lambda s, p, i: (s.name, p, i) in there)
    assert all(again[at] == whole[at] for at in again)


def test_on_a_gpu_an_infinite_sigma_is_plain_sampling():
    found = drawn("cuda", torch.bfloat16)
    plain, guided = (Settings(decoding=Decoding.parse(s), max_tokens=24).name for s in ("t=1", "t=1,kl_sigma=inf"))
    assert all(
        found[guided, prompt, i].ids == found[plain, prompt, i].ids for name, prompt, i in found if name == plain
    )


def test_on_a_gpu_nothing_of_a_batch_stays_in_memory():
    engine = LocalEngine(llama().to("cuda"), Words(), batch=4096)
    settings = [Settings(decoding=Decoding(), max_tokens=64)]
    left = []
    for _ in range(3):
        for drawn_batch in engine.draw(PROMPTS, settings, num=800):
            del drawn_batch
        gc.collect()
        torch.cuda.synchronize()
        left.append(torch.cuda.memory_allocated())
    assert left[2] == left[1] < left[0] + 2**20
