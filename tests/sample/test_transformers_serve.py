"""Against a real `transformers serve` on 127.0.0.1, with a tiny random model made here."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec

import pytest
import torch
from small_models import llama
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.server import ServerEngine
from widen.sample.fill import collect
from widen.sample.prompts import Prompt
from widen.sample.samples_file import read_samples

pytestmark = pytest.mark.slow
PROMPTS = [Prompt(text="w3 w4"), Prompt(text="w7")]


def save_model(folder, *, special=(), **sizes):
    """A model folder that any server can open: weights, config, a tokenizer of words with a chat template, and more special tokens."""
    model = llama(vocab=64, **sizes)
    model.save_pretrained(folder)
    words = {"<s>": 0, "</s>": 1} | {f"w{i}": i for i in range(2, 64)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    made.add_special_tokens({"additional_special_tokens": list(special)})
    made.chat_template = "{% for m in messages %}{{ m['content'] }} w9 {% endfor %}"
    made.save_pretrained(folder)
    return model


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(url, process, log, seconds):
    for _ in range(int(seconds * 5)):
        if process.poll() is not None:
            pytest.fail(f"the server ended: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(url + "/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"no answer within {seconds} s: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        pytest.skip("needs the server of transformers: pip install 'transformers[serving]'")
    folder = tmp_path_factory.mktemp("model")
    model, port, log = save_model(folder), free_port(), folder / "log.txt"
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder), "--device", "cpu"]
    command += ["--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    env = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, process, log, 120)
        yield url, model
    finally:
        process.kill()
        process.wait()


def test_transformers_serve_samples_once_it_is_told_how(served, tmp_path):
    """By itself it stays greedy at every temperature; with the settings as a generation config it samples, and takes its filters."""
    url, _ = served
    settings = [Settings(decoding=Decoding.parse(spec), max_tokens=5) for spec in ("t=1", "t=1,top_k=2", "t=0")]
    engine = ServerEngine([url], in_flight=4)
    files = collect(engine, PROMPTS, settings, num=4, folder=tmp_path)
    found = [read_samples(path) for path in files]
    assert [len(f) for f in found] == [8, 8, 8]
    assert len({s.text for s in found[0]}) > 4
    assert all(len({s.text for s in found[2] if s.prompt == p.id}) == 1 for p in PROMPTS)  # greedy is greedy
    assert all(s.prompt_tokens == len(next(p for p in PROMPTS if p.id == s.prompt).text.split()) for s in found[0])
    assert all(1 <= s.num_tokens <= 5 and s.logq is None for f in found for s in f)
    seen = engine.capabilities[url]
    assert (seen.dialect, seen.n, seen.logprobs) == ("transformers", False, False)
    assert {"temperature", "top_k"} <= seen.honoured
    assert any("ignores n" in note for note in found[0].header["notes"])


def test_its_greedy_text_is_the_models(served, tmp_path):
    from small_models import Words

    from widen.sample.engines.local import LocalEngine

    url, model = served
    greedy = [Settings(decoding=Decoding(temperature=0.0), max_tokens=5)]
    (theirs,) = collect(ServerEngine([url]), PROMPTS, greedy, num=1, folder=tmp_path / "server")
    (ours,) = collect(LocalEngine(model, Words()), PROMPTS, greedy, num=1, folder=tmp_path / "local")
    assert {s.prompt: s.text for s in read_samples(theirs)} == {s.prompt: s.text for s in read_samples(ours)}


def test_what_it_lacks_is_refused(served, tmp_path):
    for spec, words in (("t=1,top_n_sigma=1", "it has no top_n_sigma"), ("t=1,kl_sigma=2", "two streams")):
        with pytest.raises(ValueError, match=words):
            collect(
                ServerEngine([served[0]]), PROMPTS, [Settings(decoding=Decoding.parse(spec))], num=1, folder=tmp_path
            )
    with pytest.raises(ValueError, match="takes prompts as text"):
        collect(
            ServerEngine([served[0]]), [Prompt(ids=(2, 3))], [Settings(decoding=Decoding())], num=1, folder=tmp_path
        )


def test_transformers_serve_applies_its_chat_template(served, tmp_path):
    url, model = served
    settings = Settings(decoding=Decoding(temperature=0.0), max_tokens=6, chat=True, system="w5")
    (path,) = collect(ServerEngine([url]), PROMPTS[:1], [settings], num=1, folder=tmp_path)
    (sample,) = read_samples(path)
    ids = [5, 9, 3, 4, 9]  # the template by hand, which adds no first token
    assert sample.prompt_tokens == len(ids)
    for _ in range(6):
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    drawn = [f"w{i}" for i in ids[5:] if i > 1]  # without special tokens
    assert sample.text.split() == drawn
