"""A chat prompt has the same tokens in training, sampling and scoring, whether template or tokenizer write a first token or not."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_pretrained import make_tokenizer, save_model
from transformers import AutoModelForCausalLM

from widen.data.tasks import IGNORED, Example, encode
from widen.run.experiment import Experiment
from widen.run.finetune import Source
from widen.run.folder import folder_of
from widen.run.questions import named, prompts_for
from widen.run.record import read_records
from widen.run.runner import run
from widen.run.score_settings import ExactScore, SupportScore
from widen.run.scoring import support
from widen.run.scoring.score_files import score_name
from widen.sample import LocalEngine, Prompt, read_samples

TURNS = "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}"
ASKED = {"role": "user", "content": "what is 1 + 1 ?"}
FIRST = [(True, True), (True, False), (False, True), (False, False)]


@pytest.fixture(params=FIRST, ids=lambda one: f"tokenizer {one[0]}, template {one[1]}")
def model(request, tmp_path):
    """A model whose tokenizer, whose template, both or neither begin a text with <s>."""
    adds, writes = request.param
    tokenizer = make_tokenizer(adds)
    tokenizer.chat_template = ("<s>" if writes else "") + TURNS
    path = save_model(tmp_path / "model")
    tokenizer.save_pretrained(path)
    turns = f"user:\n{ASKED['content']}</s>assistant:\n"
    return path, tokenizer, [0] * writes + tokenizer(turns, add_special_tokens=False).input_ids


def asked(path, tmp_path, record, **about):
    """The experiment that asks the model this record through its template, after its run."""
    (tmp_path / "test.jsonl").write_text(json.dumps(record) + "\n")
    prompts = Source(task="answers" if "answers" in record else "jsonl", path=str(tmp_path / "test.jsonl"))
    experiment = Experiment(name="chat", model=path, prompts=prompts, chat=True, dtype="float32", **about)
    run("one", [experiment], tmp_path, stages=("sample", "score") if about.get("score") else ("sample",))
    return experiment, folder_of(tmp_path, experiment)


def test_training_learns_to_continue_the_tokens_of_the_template(model):
    _, tokenizer, ids = model
    talk = (ASKED, {"role": "assistant", "content": "2.0"})
    found = encode(Example("", "", {}, messages=talk, given=1), tokenizer, max_length=200)
    assert found.input_ids[: found.labels.count(IGNORED)] == ids


def test_runs_and_widen_sample_continue_the_tokens_of_the_template(model, tmp_path):
    path, _, ids = model
    experiment, folder = asked(path, tmp_path, {"prompt": ASKED["content"]}, num_samples=3, max_tokens=4)
    (setting,) = experiment.settings
    drawn = read_samples(folder.samples(setting.name))
    (prompt,) = drawn.prompts.values()
    engine = LocalEngine.load(path, device="cpu")
    by_template = engine.draw([Prompt(text=ASKED["content"], id=prompt.id)], [replace(setting, chat=True)], num=3)
    by_hand = engine.draw([Prompt(ids=tuple(ids), id=prompt.id)], [setting], num=3)
    assert list(drawn) == next(by_template).samples == next(by_hand).samples


@pytest.mark.parametrize(("adds", "writes"), FIRST)
def test_a_chat_prompt_is_a_text_unless_no_text_has_its_tokens(adds, writes):
    tokenizer = make_tokenizer(adds)
    tokenizer.chat_template = ("<s>" if writes else "") + TURNS
    (prompt,) = prompts_for(named([Example("2.0", "", {})], chat=True), tokenizer)
    own = "<s>" if writes and not adds else ""
    assert prompt.text == ("" if adds and not writes else f"{own}user:\n2.0</s>assistant:\n")


def test_an_exact_score_is_the_probability_after_the_tokens_of_the_template(model, tmp_path):
    path, tokenizer, ids = model
    experiment, folder = asked(path, tmp_path, {"prompt": ASKED["content"], "answers": ["2.0"]}, score=ExactScore())
    answer = [*tokenizer("2.0", add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(path).eval()(torch.tensor([ids + answer])).logits[0].double()
    log_q = logits.log_softmax(-1)[len(ids) - 1 : -1].gather(1, torch.tensor(answer)[:, None]).sum()
    (found,) = (one.value for one in read_records(folder, score_name(experiment)) if one.metric == "precision")
    assert found == pytest.approx(float(log_q.exp()), rel=1e-4, abs=0)


def test_support_sizes_are_measured_after_the_tokens_of_the_template(model, tmp_path, monkeypatch):
    path, tokenizer, ids = model
    seen = []
    real = support.sparsity_of_model
    monkeypatch.setattr(
        support, "sparsity_of_model", lambda m, rows, **about: seen.extend(rows) or real(m, rows, **about)
    )
    asked(path, tmp_path, {"prompt": ASKED["content"], "completion": "2.0"}, score=SupportScore())
    answer = tokenizer("2.0", add_special_tokens=False).input_ids
    assert seen == [[*ids, *answer, tokenizer.eos_token_id]]
