"""Fine-tuning a real model, tiny: what is written, what is equal to what, what is never done twice."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_pretrained import save_model, save_sums, tiny_training

from widen.run.finetune import Lora, Source
from widen.run.finetune.stage import fine_tune
from widen.run.finetune.token_data import inputs
from widen.run.folder import folder_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_training(tmp_path_factory.mktemp("tiny"), batch_size=8)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One folder of runs for the whole module: what several tests compare against is trained once."""
    return tmp_path_factory.mktemp("runs")


def run(config, root, **changes):
    return fine_tune(config, root, device="cpu", **changes)


def log(folder):
    return [json.loads(line) for line in folder.log.read_text().splitlines()]


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder.checkpoint / "model.safetensors")


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_run_folder_holds_config_environment_inputs_log_and_model_and_nothing_to_resume(base, root):
    folder = run(base, root)
    assert sorted(p.name for p in folder.path.iterdir()) == [
        ".lock",
        "checkpoint",
        "config.json",
        "env.json",
        "inputs.json",
        "log.jsonl",
        "summary.json",
    ]
    experiment = json.loads(folder.config.read_text())["experiment"]
    assert experiment["model"]["loss"] == "nll"
    assert [line["step"] for line in log(folder)] == [0, 1, 2]
    assert {"loss", "nll", "grad_norm", "lr", "weight_mean", "weight_ess", "weight_zero_share"} <= set(log(folder)[0])
    facts = inputs(folder)
    assert (facts.examples, facts.left_out, facts.completions_cut) == (24, 0, 0)
    assert log(folder)[0]["nll"] > log(folder)[2]["nll"]


def test_the_first_loss_is_the_nll_of_the_model_on_the_first_batch_as_torch_computes_it(base, root):
    """Batch of all examples, so that order does not matter: prompts masked, one mean over all targets."""
    from transformers import AutoModelForCausalLM

    from widen.data.tasks import encode, read
    from widen.run.finetune.model_files import load_tokenizer

    folder = run(replace(base, batch_size=24, micro_batch=8, max_steps=1), root)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(base.model), load_tokenizer(base.model)
    total, count = 0.0, 0
    for example in read("mathqa_python", base.train.path).examples:
        one = encode(example, tokenizer, max_length=base.max_length)
        with torch.no_grad():
            logq = model(torch.tensor([one.input_ids])).logits[0].double().log_softmax(-1)
        for at, label in enumerate(one.labels):
            if label != -100:
                total, count = total - float(logq[at - 1, label]), count + 1
    assert log(folder)[0]["loss"] == pytest.approx(total / count, rel=1e-5)
    assert inputs(folder).targets == count


def test_packing_accumulation_and_grouping_of_lengths_change_the_layout_and_not_the_loss(base, root):
    loss = (
        "truncr:drop=0.2,window=16 * lambda_pr:lam=0.5,gamma=0.01"  # one that knows sequences, one that knows positions
    )
    start = replace(base, loss=loss, batch_size=24, micro_batch=24, epochs=2)
    runs = [start, replace(start, packing=True, micro_batch=6), replace(start, group_by_length=True)]
    logs = [log(run(config, root)) for config in runs]
    for other in logs[1:]:
        assert [line["loss"] for line in other] == pytest.approx([line["loss"] for line in logs[0]], rel=1e-4)
        assert [line["nll"] for line in other] == pytest.approx([line["nll"] for line in logs[0]], rel=1e-4)


def test_same_seed_same_bytes_and_another_seed_another_run(base, root, tmp_path):
    config = replace(base, lora=Lora(rank=2, dropout=0.1), max_steps=1)
    first, again = run(config, root), run(config, tmp_path)
    assert first.path.name == again.path.name
    assert tree(first.path) == tree(again.path)
    other = run(replace(config, seed=1), root)
    assert log(other)[0]["loss"] != log(first)[0]["loss"]


def test_a_finished_run_is_not_touched_again(base, root):
    folder = run(base, root)
    before = {p: p.stat().st_mtime_ns for p in folder.path.rglob("*")}
    assert run(replace(base, save_steps=7), root).path == folder.path
    assert {p: p.stat().st_mtime_ns for p in folder.path.rglob("*")} == before


def test_what_comes_before_is_trained_once_and_both_losses_start_from_it(base, root):
    gold, cdiv = (replace(base, loss=loss, after=base, max_steps=1, lr=1e-12) for loss in ("gold", "cdiv:alpha=1.4"))
    run(gold, root)
    shared = folder_of(root, base)
    before = {p: p.stat().st_mtime_ns for p in shared.path.rglob("*")}
    run(cdiv, root)
    assert {p: p.stat().st_mtime_ns for p in shared.path.rglob("*")} == before
    untrained = json.loads((folder_of(root, base).path / "inputs.json").read_text())["weights"]
    for config in (gold, cdiv):
        folder = folder_of(root, config)
        assert json.loads((folder.path / "inputs.json").read_text())["weights"] != untrained
        moved = max(
            float((a - b).abs().max()) for a, b in zip(weights(folder).values(), weights(shared).values(), strict=True)
        )
        assert moved < 1e-9


def test_an_adapter_is_merged_into_the_model_and_kept_beside_it(base, root):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = run(replace(base, lora=Lora(rank=2, targets="q_proj,v_proj"), gradient_checkpointing=True, lr=0.1), root)
    tokens = torch.arange(3, 20)[None]
    start = AutoModelForCausalLM.from_pretrained(base.model)
    with torch.no_grad():
        untrained = start(tokens).logits
        beside = PeftModel.from_pretrained(start, folder.path / "adapter")(tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(folder.checkpoint)(tokens).logits
    torch.testing.assert_close(merged, beside, rtol=1e-4, atol=1e-5)
    assert float((merged - untrained).abs().max()) > 1e-3
    changed = {n for n, w in weights(folder).items() if not torch.equal(w, start.state_dict().get(n, w))}
    assert all("q_proj" in name or "v_proj" in name for name in changed)


def test_tied_weights_stay_tied_and_settings_that_could_not_be_saved_are_mended(base, root, tmp_path):
    from transformers import AutoModelForCausalLM

    model = save_model(tmp_path / "tied", tie_word_embeddings=True)
    settings = tmp_path / "tied" / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"temperature": 0.6, "do_sample": False}))
    folder = run(replace(base, model=model, max_steps=1), root)
    loaded = AutoModelForCausalLM.from_pretrained(folder.checkpoint)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert (loaded.generation_config.temperature, loaded.generation_config.do_sample) == (0.6, True)


def test_a_step_larger_than_the_data_takes_all_of_it(base, root):
    folder = run(replace(base, batch_size=64, micro_batch=16, epochs=2), root)
    assert [line["step"] for line in log(folder)] == [0, 1]


def test_held_out_data_is_scored_by_its_nll_after_every_epoch(base, root):
    config = replace(base, loss="cdiv:alpha=1.4", evaluate=replace(base.train, limit=5), epochs=2, packing=True)
    scored = [(line["step"], line["eval_nll"]) for line in log(run(config, root)) if "eval_nll" in line]
    assert [step for step, _ in scored] == [2, 5]
    assert scored[1][1] < scored[0][1] < 6


def test_early_stopping_keeps_the_best_model_and_says_so(base, root, tmp_path, caplog):
    said, tied = [], save_model(tmp_path / "tied", tie_word_embeddings=True)
    plain = replace(base, model=tied, lr=0.3, max_grad_norm=0.0, evaluate=replace(base.train, limit=5))
    stopped = run(replace(plain, eval_steps=1, patience=1, epochs=4), root, say=said.append)
    evals = [line["eval_nll"] for line in log(stopped) if "eval_nll" in line]
    assert 2 <= len(evals) < 12
    assert evals[-1] > evals[-2] == min(evals)
    assert any(f"step {len(evals)}: evaluation NLL {evals[-1]:.3f}" in text for text in said)
    assert f"evaluation NLL {min(evals):.3f}, the lowest: the model after step {len(evals) - 1} is saved" in said[-1]
    assert "missing keys" not in caplog.text  # tied weights are written once
    best = run(replace(plain, max_steps=len(evals) - 1), root)
    card = (stopped.checkpoint / "README.md").read_text()
    assert card == (best.checkpoint / "README.md").read_text()
    assert all(torch.equal(mine, weights(best)[name]) for name, mine in weights(stopped).items())


def test_weights_keep_the_dtype_that_the_model_had_or_take_the_one_asked_for(base, root, tmp_path):
    from transformers import AutoModelForCausalLM

    model = save_model(tmp_path / "half")
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).save_pretrained(model)
    for asked, kept in (("auto", torch.bfloat16), ("float16", torch.float16)):
        folder = run(replace(base, model=model, save_dtype=asked, max_steps=1), root)
        assert {one.dtype for one in weights(folder).values()} == {kept}
    assert (
        replace(base, save_dtype="trained", report_to="wandb").key == base.key != replace(base, save_dtype="auto").key
    )


@pytest.mark.parametrize("precision", ["bf16", "pure_bf16"])
def test_lower_precision_trains_about_the_same_and_keeps_the_dtype_of_its_weights(base, root, precision):
    folder = run(replace(base, precision=precision), root)
    assert log(folder)[-1]["nll"] == pytest.approx(log(run(base, root))[-1]["nll"], rel=0.02)
    kinds = {tensor.dtype for tensor in weights(folder).values()}
    assert kinds == {torch.bfloat16 if precision == "pure_bf16" else torch.float32}


class Stop(Exception):
    """Stands for whatever ends a process."""


def stop_at(step):
    def progress(_, done, total):
        if done == step:
            raise Stop

    return progress


def test_a_run_stopped_anywhere_goes_on_to_the_same_bytes(base, root, tmp_path, monkeypatch):
    """Between two checkpoints, then when all steps are made and nothing is written: window, optimizer, order and log all go on."""
    from widen.run.finetune import stage as finetuning

    config = replace(base, loss="truncr:drop=0.2,window=12", epochs=2.5, evaluate=replace(base.train, limit=4))
    whole = run(config, root)
    often = replace(config, save_steps=2)
    with pytest.raises(Stop):
        run(often, tmp_path, progress=stop_at(5))
    folder = folder_of(tmp_path, config)
    assert [p.name for p in (folder.path / "resume").iterdir()] == ["checkpoint-4"]
    (folder.path / "resume" / "checkpoint-7").mkdir()  # a later one that a kill left half written
    with monkeypatch.context() as patched:
        patched.setattr(finetuning, "_write", lambda *_: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            run(often, tmp_path)
    assert not folder.checkpoint.exists()
    run(often, tmp_path)
    assert tree(folder.path) == tree(whole.path)


def test_a_run_does_not_go_on_with_other_data_under_the_same_name(base, tmp_path):
    data = save_sums(tmp_path / "sums.jsonl")
    config = replace(base, train=replace(base.train, path=data), save_steps=1)
    with pytest.raises(Stop):
        run(config, tmp_path / "runs", progress=stop_at(2))
    save_sums(tmp_path / "sums.jsonl", count=23)
    with pytest.raises(ValueError, match="its training data changed; restore it, or remove the folder"):
        run(config, tmp_path / "runs")


def test_a_finished_run_and_what_was_trained_first_are_refused_with_other_data_under_the_same_name(base, tmp_path):
    """Same bytes, or other bytes with the same examples: nothing to do. Without the file, as on another machine: as it is."""
    data = tmp_path / "sums.jsonl"
    save_sums(data)
    config = replace(base, train=replace(base.train, path=str(data)), max_steps=1)
    root, gold = tmp_path / "runs", replace(config, loss="gold", after=config)
    folder = run(config, root)
    text = data.read_text()
    data.write_text(text.replace('"question"', '"id": 1, "question"'))
    assert run(config, root).path == folder.path
    save_sums(data, count=23)
    for changed in (config, gold):
        with pytest.raises(
            ValueError, match=r"sums\.jsonl: its training data changed since; .*another --out, or remove"
        ):
            run(changed, root)
    assert str(folder.path) in _refusal(config, root)
    assert not folder_of(root, gold).path.exists()
    data.write_text("")
    assert "its training data changed" in _refusal(config, root)
    data.unlink()
    assert run(config, root).path == folder.path
    data.write_text(text)
    assert run(gold, root).checkpoint.exists()


def test_runs_that_kept_no_digest_of_their_file_are_compared_by_their_tokens(base, tmp_path):
    data = tmp_path / "sums.jsonl"
    save_sums(data)
    config = replace(base, train=replace(base.train, path=str(data)), max_steps=1)
    folder = run(config, tmp_path / "runs")
    kept = json.loads((folder.path / "inputs.json").read_text())
    del kept["sources"], kept["sha256"]  # an older file has neither
    (folder.path / "inputs.json").write_text(json.dumps(kept))
    assert run(config, tmp_path / "runs").path == folder.path
    save_sums(data, count=23)
    assert "its training data changed" in _refusal(config, tmp_path / "runs")


def _refusal(config, root):
    with pytest.raises(ValueError) as refused:
        run(config, root)
    return str(refused.value)


def test_bad_records_are_listed_before_anything_is_written_or_left_out_and_counted(base, tmp_path):
    good = (tmp_path / "sums.jsonl", save_sums(tmp_path / "sums.jsonl"))[0].read_text()
    bad = "".join('{"question": "what", "program": 3}\n' for _ in range(12))
    (tmp_path / "sums.jsonl").write_text(good + bad + '{"question": "what is 1 ?"}\n')
    config = replace(base, train=replace(base.train, path=str(tmp_path / "sums.jsonl")), model="no/such-model")
    with pytest.raises(ValueError) as refused:
        run(config, tmp_path / "runs")
    text = str(refused.value)
    assert "13 of 37 records cannot be learnt from (--skip-bad leaves them out)" in text
    assert "sums.jsonl, line 25: 'program' must be text, got int (and 11 more records like it)" in text
    assert "line 37: there is no completion to learn: no field 'program' or 'code'; it has 'question'" in text
    assert not (tmp_path / "runs").exists()
    folder = run(replace(config, model=base.model, max_steps=1), tmp_path / "runs", skip_bad=True)
    assert (inputs(folder).examples, inputs(folder).left_out) == (24, 13)
    assert "13 bad records left out" in str(inputs(folder))


def test_examples_longer_than_the_models_positions_are_refused_and_a_larger_limit_alone_is_not(base, tmp_path):
    short = save_model(tmp_path / "short", max_position_embeddings=16)
    config = replace(base, model=short, max_steps=1)
    with pytest.raises(
        ValueError, match=r"max_length=80: the longest example has \d+ tokens.*16 positions; take --max-length 16"
    ):
        run(config, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    run(replace(base, max_length=4096, max_steps=1), tmp_path / "runs")


def test_tokens_that_the_model_has_no_embedding_for_are_refused(base, tmp_path):
    small = save_model(tmp_path / "small", vocab_size=200)
    with pytest.raises(ValueError, match=r"has the token .* with number 3\d\d, and the model an embedding of 200"):
        run(replace(base, model=small), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_padding_token_beyond_the_embedding_is_refused(base, tmp_path):
    from tiny_pretrained import make_tokenizer

    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "<new>"})
    model = save_model(tmp_path / "model", vocab_size=len(tokenizer) - 1)
    tokenizer.save_pretrained(model)
    with pytest.raises(ValueError, match=r"has the token '<new>' with number \d+, and the model an embedding of"):
        run(replace(base, model=model), tmp_path / "runs")


def test_a_folder_without_a_tokenizer_is_said_to_have_none(base, tmp_path):
    model = save_model(tmp_path / "model")
    for file in (tmp_path / "model").glob("*token*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"model': the folder holds no tokenizer \(tokenizer\.json"):
        run(replace(base, model=model), tmp_path / "runs")


def test_the_bad_data_of_a_later_stage_stops_the_first_one_too(base, tmp_path):
    config = replace(base, after=base, evaluate=Source(task="jsonl", path=str(tmp_path / "none.jsonl")))
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl: there is no such file"):
        run(config, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_run_is_a_model_for_sampling_and_for_further_training_and_a_page_reads_it(base, root):
    from widen.report.load import load
    from widen.run.finetune.model_files import load_tokenizer, resolved
    from widen.sample import Decoding, LocalEngine, Prompt, Settings

    folder = run(base, root)
    engine = LocalEngine.load(str(folder.checkpoint), device="cpu")
    settings = [Settings(decoding=Decoding.parse("t=1"), max_tokens=4, seed=0)]
    (drawn,) = engine.draw([Prompt(text="# what is 1 + 2 ?\n")], settings, num=3)
    assert len(drawn.samples) == 3
    assert resolved(str(folder.path)) == str(folder.checkpoint)
    assert load_tokenizer(str(folder.path)).eos_token_id == 1
    shown = load(folder.path)
    assert (shown.loss, shown.seed, len(shown.log)) == ("nll", 0, 3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"precision": "fp16"}, "needs a GPU"),
        ({"model": "/no/such/folder"}, "cannot load the tokenizer of '/no/such/folder'"),
        ({"lora": Lora(targets="nowhere")}, r"lora\.targets='nowhere'"),
    ],
)
def test_what_cannot_work_here_is_said_in_a_sentence(base, tmp_path, changes, sentence):
    with pytest.raises(ValueError, match=sentence) as refused:
        run(replace(base, **changes), tmp_path)
    assert len(str(refused.value).splitlines()) == 1
