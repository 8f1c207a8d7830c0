"""`widen sample`: models x temperatures x methods, resumed, and every mistake one sentence."""

import json
import re
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from widen.cli.__main__ import main
from widen.cli.sample import folder_name
from widen.data.mulmod import MulMod
from widen.models.convert import save_pretrained
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.run.experiment import Experiment
from widen.run.folder import RunFolder
from widen.run.value import to_json
from widen.sample import read_samples
from widen.train.settings import Configuration

TASK = MulMod(modulus=7, low=1, high=9, under_representation=None)
SHAPE = LlamaShape(layers=1, dim=16, heads=2, hidden=16, init_std=0.4)


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = main(["sample", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def run_folder(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "nll")
    experiment = Experiment(name="nll", model=replace(Configuration(), data=TASK, model=SHAPE))
    folder.write(folder.config, {"experiment": to_json(experiment)})
    save_pretrained(TinyLlama(SHAPE, seed=3), folder.checkpoint)
    return folder


@pytest.fixture(scope="session")
def hugging_face(tmp_path_factory):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("hf") / "model"
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=20, max_position_embeddings=64, initializer_range=0.4, bos_token_id=0, eos_token_id=1, **sizes
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(
        models.WordLevel({"<s>": 0, "</s>": 1} | {f"w{i}": i for i in range(2, 20)}, unk_token="</s>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    return folder


def write_prompts(path, *texts):
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return path


def test_a_run_of_the_integer_task_needs_no_prompts_and_keeps_its_samples(call, run_folder):
    flags = ["--num", 200, "--temperatures", "0.5", "1", "--methods", "plain", "top_k=3"]
    status, out, err = call(run_folder.path, *flags)
    assert (status, err) == (0, "")
    assert "200" in out
    files = {path.stem.rpartition("-")[0]: path for path in (run_folder.path / "samples").glob("*.jsonl")}
    assert set(files) == {"t0.5", "t1", "t0.5_top_k3", "t1_top_k3"}
    samples = read_samples(files["t1"])
    assert len(samples) == 200
    assert {len(s.text) for s in samples} == {TASK.length}
    assert run_folder.samples(samples.settings.name) == files["t1"]  # the name that the run folder knows
    before = {path: path.read_bytes() for path in files.values()}
    assert call(run_folder.path, *flags)[0] == 0
    assert {path: path.read_bytes() for path in files.values()} == before  # nothing is drawn twice


def test_whole_decodings_take_the_place_of_temperatures_and_methods(call, run_folder):
    assert call(run_folder.path, "--num", 20, "--decodings", "t=1", "t=2,min_p=0.1,order=temperature_last")[0] == 0
    assert {path.stem.rpartition("-")[0] for path in (run_folder.path / "samples").glob("*.jsonl")} == {
        "t1",
        "min_p0.1_t2",
    }
    _, _, err = call(run_folder.path, "--decodings", "t=1", "--temperatures", "1")
    assert "leave out --temperatures and --methods" in err


def test_a_hugging_face_model_with_every_kind_of_method(call, hugging_face, tmp_path):
    prompts = write_prompts(tmp_path / "p.jsonl", "w3 w4", "w5")
    methods = ["plain", "top_p=0.9", "kl_sigma=3", "top_n_sigma=1,order=temperature_last"]
    flags = [
        "--prompts",
        prompts,
        "--num",
        3,
        "--max-tokens",
        4,
        "--methods",
        *methods,
        "--temperatures",
        0.7,
        "--out",
        "here",
    ]
    status, out, err = call(hugging_face, *flags, "--device", "cpu")
    assert (status, err) == (0, "")
    files = sorted((tmp_path / "here").rglob("*.jsonl"))
    assert len(files) == 4
    assert all(len(read_samples(path)) == 6 and path.name in out for path in files)


def test_a_model_folder_gets_a_folder_by_the_last_part_of_its_path_and_paths_stay_apart(tmp_path, monkeypatch):
    here = tmp_path / "here"
    for path in (here / "my-model", tmp_path / "a" / "my-model", tmp_path / "b" / "my-model"):
        path.mkdir(parents=True)
    monkeypatch.chdir(here)
    same = ("my-model", "./my-model", str(here / "my-model"))
    assert {folder_name(one) for one in same} == {"my-model"}
    others = [folder_name(one) for one in (str(tmp_path / "a" / "my-model"), "../b/my-model")]
    assert all(re.fullmatch("my-model-[0-9a-f]{8}", one) for one in others)
    assert len(set(others)) == 2
    assert folder_name("owner/name") == "owner_name"
    assert folder_name("http://gpu1:8000") == "http_gpu1_8000"


def test_a_torn_file_is_repaired_with_a_word_and_completed(call, run_folder):
    call(run_folder.path, "--num", 50)
    (path,) = (run_folder.path / "samples").glob("*.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    status, out, _ = call(run_folder.path, "--num", 50)
    assert status == 0
    assert "its sample is drawn again" in " ".join(out.split())
    assert path.read_bytes() == whole


def test_each_mistake_is_one_sentence(call, run_folder, hugging_face, tmp_path):
    good = write_prompts(tmp_path / "p.jsonl", "w3 w4")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "w3"}\n{"promt": "w4"}\n')
    cases = [
        ([run_folder.path, "--methods", "topp=0.9"], "did you mean 'top_p'?"),
        (
            [run_folder.path, "--temperatures", "0", "--methods", "top_p=0.9"],
            "temperature=0 is greedy and leaves nothing to top_p",
        ),
        ([run_folder.path, "--methods", "kl_sigma=1"], "kl_sigma needs a prompt"),
        ([run_folder.path, "--num", "0"], "num=0: must be at least 1"),
        ([hugging_face, "--device", "cpu"], "needs --prompts FILE"),
        (
            [hugging_face, "--prompts", bad],
            "bad.jsonl, line 2: neither 'prompt' nor 'text' nor 'ids' among its keys: promt",
        ),
        ([hugging_face, "--prompts", tmp_path / "none.jsonl"], "none.jsonl"),
        ([hugging_face, "--prompts", good, "--max-tokens", "63", "--device", "cpu"], "and the model takes 64"),
        ([tmp_path / "nowhere", "--prompts", good], "as a run folder or a Hugging Face model"),
        ([hugging_face, "--prompts", good, "--device", "tpu"], "device='tpu': must be cuda or cpu"),
        ([run_folder.path, "--device", "tpu"], "device='tpu': must be cuda or cpu"),
        ([hugging_face, "--prompts", good, "--dtype", "float99"], "dtype='float99': must be one of auto, float32"),
    ]
    if find_spec("vllm") is None:
        cases.append((["vllm:somewhere", "--prompts", good], "vLLM is not installed here"))
    for arguments, words in cases:
        status, _, err = call(*arguments)
        assert status == 2, arguments
        assert words in err
        assert "Traceback" not in err
        assert err.count("\n") == 1


def test_a_run_without_a_model_and_a_dead_server_say_so(call, run_folder, tmp_path):
    shutil.rmtree(run_folder.checkpoint)
    status, _, err = call(run_folder.path)
    assert status == 2
    assert "has no trained model yet" in err
    status, _, err = call("http://127.0.0.1:9", "--prompts", write_prompts(tmp_path / "p.jsonl", "w3"))
    assert status == 1
    assert "http://127.0.0.1:9 was dropped (it did not answer at the start" in err


def test_a_full_disk_says_what_is_kept(call, run_folder, monkeypatch):
    import errno
    import os

    real, calls = os.pwrite, []

    def full(fd, data, offset):
        calls.append(len(data))
        if len(calls) > 3:  # the header and the first batches fit
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(sys.modules["widen.sample.writer"].os, "pwrite", full)
    status, _, err = call(run_folder.path, "--num", 100, "--batch", 25)
    assert status == 1
    assert "no room left to write; the 50 samples in the file are whole" in err
    assert "50 of 100 samples are in" in err
    monkeypatch.undo()
    assert call(run_folder.path, "--num", 100, "--batch", 25)[0] == 0
    (path,) = (run_folder.path / "samples").glob("*.jsonl")
    assert len(read_samples(path)) == 100


@pytest.fixture
def instruct(hugging_face, tmp_path):
    """The same model with a chat template."""
    folder = tmp_path / "instruct"
    shutil.copytree(hugging_face, folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }} w9 {% endfor %}")
    return folder


def test_an_instruct_model_without_its_chat_template_is_warned_about_once(call, instruct, hugging_face, tmp_path):
    prompts = write_prompts(tmp_path / "p.jsonl", "w3 w4", "w5")
    flags = ["--prompts", prompts, "--num", 2, "--max-tokens", 3, "--device", "cpu", "--temperatures", 1, 2]
    _, out, _ = call(instruct, *flags)
    assert " ".join(out.split()).count("has a chat template, but these prompts go in without it") == 1
    assert "chat template" not in call(hugging_face, *flags)[1]
    assert "chat template" not in call(instruct, *flags, "--chat")[1]


def test_chat_system_and_stop_reach_the_engine(call, instruct, tmp_path):
    prompts = write_prompts(tmp_path / "p.jsonl", "w3 w4")
    flags = ["--num", 2, "--max-tokens", 3, "--device", "cpu", "--out", "here"]
    status, _, err = call(instruct, "--prompts", prompts, *flags, "--system", "w5", "--stop", "w7", r"\n\n")
    assert (status, err) == (0, "")
    (path,) = (tmp_path / "here").rglob("*.jsonl")
    found = read_samples(path)
    assert (found.settings.chat, found.settings.system, found.settings.stop) == (True, "w5", ("w7", "\n\n"))
    assert {one.prompt_tokens for one in found} == {5}  # w5 w9 w3 w4 w9
    talk = tmp_path / "talk.jsonl"
    talk.write_text(json.dumps({"messages": [{"role": "user", "content": "w3"}]}))
    assert call(instruct, "--prompts", talk, *flags, "--out", "talk")[0] == 0  # a conversation needs no --chat
    (path,) = (tmp_path / "talk").rglob("*.jsonl")
    assert {one.prompt_tokens for one in read_samples(path)} == {2}


def test_a_run_that_learnt_texts_is_not_to_be_asked_through_a_template(call, instruct, tmp_path):
    prompts = write_prompts(tmp_path / "p.jsonl", "w3 w4")
    run = RunFolder(tmp_path / "runs" / "tuned")
    run.write(run.config, {"experiment": {"model": {"model": str(instruct)}}})
    shutil.copytree(instruct, run.path / "checkpoint")
    flags = ["--prompts", prompts, "--num", 1, "--max-tokens", 3, "--device", "cpu"]
    for learnt, given, said in (
        (False, [], ""),
        (False, ["--chat"], "another form"),
        (True, [], "Use --chat if it is an Instruct model"),
    ):
        run.write(run.path / "inputs.json", {"chat": learnt})
        _, out, _ = call(run.path, *flags, *given)
        assert said in " ".join(out.split())
        assert said or "chat template" not in out


def test_samples_that_max_tokens_cut_are_counted_in_the_table(call, hugging_face, tmp_path):
    prompts = write_prompts(tmp_path / "p.jsonl", "w3 w4", "w5")
    _, out, _ = call(hugging_face, "--prompts", prompts, "--num", 20, "--max-tokens", 4, "--device", "cpu")
    (path,) = (tmp_path / "runs").rglob("*.jsonl")
    cut = sum(one.finish == "length" for one in read_samples(path))
    assert 0 < cut < 40
    assert f"{cut} of 40 samples were cut at --max-tokens 4" in " ".join(out.split())
    assert f" {cut} ({cut / 40:.0%}) " in out
