"""Judging on a Ray cluster: verdicts come back by content, a node that dies loses nothing."""

import json
import sys
from types import SimpleNamespace

import pytest

from widen.judge import Limits, MathQAPython, Program, judge_programs, ray_sandbox
from widen.judge.worker import Outcome

PROGRAMS = [Program(problem=f"p{i % 6}", source=f"answer = {i}", tests=(float(i % 6),)) for i in range(30)]


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'widen\[ray\]'"), ray_sandbox.RaySandbox("auto"):
        pass


def test_a_node_with_other_versions_is_refused(monkeypatch):
    fake = SimpleNamespace(
        is_initialized=lambda: True,
        remote=lambda **_: lambda function: SimpleNamespace(remote=lambda limits, jobs: len(jobs)),
        cluster_resources=lambda: {"CPU": 2.0},
        wait=lambda tasks, num_returns: (tasks[:1], tasks[1:]),
        get=lambda task: ("gpu7", {"python": "3.9.1"}, [Outcome({})] * task),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    with (
        ray_sandbox.RaySandbox("auto") as sandbox,
        pytest.raises(ValueError, match=r"node gpu7 has {'python': '3\.9\.1'}, .* they must agree"),
    ):
        judge_programs(MathQAPython(), PROGRAMS, sandbox=sandbox)


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.filterwarnings("ignore")
def test_a_node_that_dies_while_it_judges_loses_no_verdict_and_repeats_none_in_the_file(tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'widen[ray]'")
    from ray.cluster_utils import Cluster

    slow = [
        Program(problem=p.problem, source=f"import time\ntime.sleep(0.3)\n{p.source}", tests=p.tests) for p in PROGRAMS
    ]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        killed = []

        def progress(done, total):
            busy = ray.available_resources().get("CPU", 0) == 0  # both nodes are judging
            if done >= 4 and busy and not killed:
                cluster.remove_node(node, allow_graceful=False)
                killed.append(done)

        path = tmp_path / "verdicts.jsonl"
        with ray_sandbox.RaySandbox(cluster.address, limits=Limits(wall_seconds=20.0), shard=2) as sandbox:
            assert len({one["NodeID"] for one in ray.nodes() if one["Alive"]}) == 2
            verdicts = judge_programs(MathQAPython(), slow, sandbox=sandbox, verdicts_path=path, progress=progress)
            again = judge_programs(MathQAPython(), slow, sandbox=sandbox, verdicts_path=path)
    finally:
        cluster.shutdown()
    assert killed
    assert [one.passed for one in verdicts] == [i < 6 for i in range(30)]
    assert again == verdicts
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 30
