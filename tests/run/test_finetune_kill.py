"""Fine-tuning in processes of its own: a real SIGKILL, a second process at the same folder, two processes at one model."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from spread_runs import finish, small_config, start

from widen.run.finetune import fine_tune
from widen.run.finetune.watch import same_spread
from widen.run.folder import folder_of

ALONE = (sys.executable, "-m", "widen.cli")
ACCELERATE = (
    *("--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "29612"),
    *("--mixed_precision", "no", "--dynamo_backend", "no"),
)


@pytest.fixture
def config(tmp_path):
    return replace(small_config(tmp_path), evaluate=None)


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_newest_whole_checkpoint_to_the_same_bytes(config, tmp_path):
    killed = folder_of(tmp_path / "killed", config)
    process = start(config, tmp_path / "killed", ALONE, "cpu")
    deadline = time.monotonic() + 120
    while lines(killed.log) < 9:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not killed.checkpoint.exists()
    assert list((killed.path / "resume").glob("checkpoint-*"))
    seen = []
    fine_tune(config, tmp_path / "killed", device="cpu", progress=lambda _, done, total: seen.append(done))
    assert seen[0] >= 6
    whole = fine_tune(config, tmp_path / "whole", device="cpu")
    assert tree(killed.path) == tree(whole.path)
    assert [json.loads(line)["step"] for line in killed.log.read_text().splitlines()] == list(range(24))


def test_a_folder_that_another_process_is_training_is_refused(config, tmp_path):
    code = "import sys; from widen.disk.lock import hold\nwith hold(sys.argv[1]): print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(folder_of(tmp_path / "runs", config).path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match=f"is in use by process {other.pid} "):
            fine_tune(config, tmp_path / "runs", device="cpu")
        other.stdin.close()


def test_fsdp_that_accelerate_would_not_run_is_refused_and_not_exchanged_for_ddp(config, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="FSDP was asked for, and accelerate would run"):
        fine_tune(config, tmp_path / "runs", device="cpu")


@pytest.mark.parametrize("launched", [False, True], ids=["one process", "torchrun without GPUs"])
def test_fsdp_is_refused_before_anything_is_read_where_there_is_nothing_to_spread_over(
    config, launched, tmp_path, monkeypatch
):
    if launched:
        monkeypatch.setenv("WORLD_SIZE", "1")
    missing = replace(config, fsdp=True, train=replace(config.train, path=str(tmp_path / "missing.jsonl")))
    with pytest.raises(
        ValueError, match=r"fsdp=True \(--fsdp\) spreads a model over the GPUs of processes that torchrun starts"
    ):
        fine_tune(missing, tmp_path / "runs", device="cpu")


@pytest.mark.parametrize("spread", [True, False])
def test_a_checkpoint_of_a_spread_run_is_not_gone_on_with_alone_nor_the_other_way_round(tmp_path, spread):
    checkpoint = tmp_path / "resume" / "checkpoint-4"
    checkpoint.mkdir(parents=True)
    (checkpoint / "whole.json").write_text(json.dumps({"step": 4, "fsdp": not spread}))
    same_spread(checkpoint, spread=not spread)
    same_spread(None, spread=spread)
    with pytest.raises(ValueError, match="continue as the run began, or remove"):
        same_spread(checkpoint, spread=spread)


def test_a_model_is_the_same_run_whether_it_is_spread_or_not(config):
    assert replace(config, fsdp=True).key == config.key


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_two_processes_train_what_one_trains(config, tmp_path, launcher):
    """The batch is that of all processes together; what comes before is trained by both too; one of them writes."""
    config = replace(config, after=replace(config, loss="nll", epochs=1), evaluate=replace(config.train, limit=5))
    launch = {
        "torchrun": (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611"),
        "accelerate": (sys.executable, "-m", "accelerate.commands.launch", *ACCELERATE),
    }[launcher]
    finish(start(config, tmp_path / "two", (*launch, "-m", "widen.cli"), "cpu"))
    for one in (config.after, config):
        both, alone = folder_of(tmp_path / "two", one), folder_of(tmp_path / "one", one)
        fine_tune(one, tmp_path / "one", device="cpu")
        assert sorted(tree(both.path)) == sorted(tree(alone.path))
        two, single = ([json.loads(line) for line in f.log.read_text().splitlines()] for f in (both, alone))
        assert [line["step"] for line in two] == [line["step"] for line in single]
        for name in ("loss", "nll", "eval_nll", "weight_zero_share"):
            found, wanted = ([line[name] for line in lines if name in line] for lines in (two, single))
            assert found == pytest.approx(wanted, rel=1e-3)
        assert json.loads((both.path / "env.json").read_text())["processes"] == 2
