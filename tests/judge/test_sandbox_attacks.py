"""Every attack of the measured list, run for real and in bounded measure, must be stopped; and the self-test must
notice when a wall is missing.
"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress

import pytest
from sandbox_shared import LIMITS, MIB, assertions, contest, descendants, gone, is_root, only, processes_allowed, shared

from widen.judge import Limits, Sandbox, SandboxUnavailable, interpreter, profile, seccomp
from widen.judge.cgroup import memory_group
from widen.judge.selftest import ATTACKS, attack, stopped
from widen.judge.worker import Job, Worker

pytestmark = pytest.mark.sandbox


def run(source, sandbox=None):
    """The outcome of one program without tests: what it printed is in the detail."""
    exam = {"outputs": ["nothing prints this"], "tolerance": 0.0, "ignore_case": False}
    ((_, outcome),) = (sandbox or shared()).stream(deque([Job(source, exam, inputs=("",))]))
    return outcome


def said(outcome):
    return outcome.report["detail"]


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_the_attack_is_stopped(name):
    ((_, outcome),) = shared().stream(deque([attack(name, shared())]))
    assert stopped(outcome), outcome


def test_the_self_test_ran_every_attack_before_the_sandbox_served():
    assert set(ATTACKS) == set(shared().protections.attacks_stopped)


def test_a_secret_of_the_caller_is_nowhere_inside_and_no_process_is_left_behind(monkeypatch):
    only(monkeypatch)
    monkeypatch.setenv("WIDEN_TEST_SECRET", "hush-4711")
    look = "import os, glob\nprint(dict(os.environ), [open(p,'rb').read() for p in glob.glob('/proc/*/environ')])"
    with Sandbox(limits=LIMITS, workers=1) as sandbox:
        assert "PATH" in said(run(look, sandbox))
        assert "hush-4711" not in said(run(look, sandbox))
        below = {sandbox._pool[0].process.pid} | descendants(sandbox._pool[0].process.pid)
        assert len(below) >= 3  # bubblewrap, pid 1 and its examiner
        # The host sees what bubblewrap and pid 1 were started with; the caller's environment must not be in it.
        for pid in below:
            with (
                suppress(PermissionError),
                open(f"/proc/{pid}/environ", "rb") as environ,
            ):  # pid 1 hides it even from us
                assert b"hush-4711" not in environ.read()
    assert gone(below, within=5.0)


def test_an_endless_loop_is_killed():
    verdict = contest("while True: pass", ("", ""))
    assert (verdict.status, verdict.detail) == ("timeout", "over 1 s of processor time")


@pytest.mark.slow  # two seconds of processor time, by its nature
def test_a_loop_that_ignores_the_first_signal_is_killed_all_the_same():
    outcome = run("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert outcome.ending["exit"] == -9
    assert not outcome.ending["timed_out"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the back door is x86's own")
def test_the_door_of_another_architecture_kills():
    source = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")      # mov eax, 20 (getpid of i386); int 0x80; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print("through")
"""
    verdict = contest(source, ("", "through"))
    assert verdict.status == "forbidden"


def test_threads_work_though_processes_do_not():
    source = """
import threading
def f(n):
    out = []
    workers = [threading.Thread(target=out.append, args=(i,)) for i in range(n)]
    [w.start() for w in workers]; [w.join() for w in workers]
    return sorted(out)
"""
    assert assertions(source, "assert f(8) == [0, 1, 2, 3, 4, 5, 6, 7]").passed


def test_a_thread_bomb_is_stopped():
    source = "import threading, time\nfor i in range(400): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert contest(source, ("", "")).status == "error"


def test_nothing_is_shared_with_the_next_program(monkeypatch):
    only(monkeypatch)
    flags = """
import fcntl, os
def f(x):
    for fd in range(64):
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
        except OSError:
            pass
    return 0
"""
    words = """
import os, struct
def f(x):
    os.write(4, (struct.pack(">I", 16) + b'["value", 2, []]') * 10_000)      # more than the pipe and one reading hold
"""
    large = "def f(x):\n    return 'y' * 300_000"
    with Sandbox(limits=LIMITS, workers=1) as sandbox:
        for hostile in (flags, words) * 2:
            assert not assertions(hostile, "assert f(1) == 1", sandbox=sandbox).passed
            assert assertions(large, "assert len(f(1)) == 300_000", sandbox=sandbox).passed
            assert assertions("def f(x): return 3", "assert f(1) == 3", sandbox=sandbox).passed


def test_random_numbers_differ_between_programs():
    source = "import random\nprint(random.random())"
    assert said(run(source)) != said(run(source))


def test_a_daemon_that_holds_stdout_neither_stalls_nor_survives():
    source = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("done")
"""
    many = processes_allowed()
    outcome = run(source, many)
    assert "printed 'done\\n'" in said(outcome)
    assert not outcome.ending["timed_out"]
    assert outcome.ending["seconds"] < 5.0
    assert outcome.ending["swept"] >= 1
    assert len(descendants(many._pool[0].process.pid)) <= 2  # pid 1 and its examiner


CHILDREN = """
import os, time
reader, writer = os.pipe()
for child in range(8):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        held = []
        try:
            while len(held) < LIMIT // 4:
                held.append(b"x" * (1 << 20))
                os.write(writer, b"m")
        except MemoryError:
            pass
        time.sleep(60)
time.sleep(0.3)
os.set_blocking(reader, False)
total = len(os.read(reader, 1 << 16))
print("together at most", LIMIT if 0 < total <= LIMIT else total)
"""


def test_with_processes_allowed_the_budget_is_shared():
    many = processes_allowed()
    assert set(ATTACKS) == set(many.protections.attacks_stopped)  # the fork bomb among them
    limit = LIMITS.memory_bytes >> 20
    verdict = contest(f"LIMIT = {limit}" + CHILDREN, ("", f"together at most {limit}"), sandbox=many)
    assert verdict.passed, verdict


def test_a_program_may_start_processes_where_they_are_allowed():
    source = """
import os, sys
def f():
    pid = os.spawnv(os.P_NOWAIT, sys.executable, ["python", "-c", "raise SystemExit(7)"])
    return os.waitpid(pid, 0)[1] >> 8
"""
    assert assertions(source, "assert f() == 7", sandbox=processes_allowed()).passed


def allow_everything(*args, **kwargs):
    return struct.pack("<HBBI", 0x06, 0, 0, seccomp.ALLOW)


def open_it():
    with Sandbox(limits=LIMITS, workers=1):
        pass


def refused(monkeypatch, *names):
    """The sandbox does not open, and names each of these attacks."""
    only(monkeypatch, *names)
    with pytest.raises(SandboxUnavailable) as error:
        open_it()
    assert [name for name in names if f"{name} (" not in str(error.value)] == []


def test_without_seccomp_the_sandbox_refuses_to_serve(monkeypatch):
    monkeypatch.setattr(seccomp, "program_filter", allow_everything)
    monkeypatch.setattr(seccomp, "zygote_filter", allow_everything)
    refused(monkeypatch, "fork bomb", "trace others", "network", "run another program", "kill others")


def test_without_a_limit_the_sandbox_refuses_to_serve(monkeypatch):
    honest = Limits.bounds
    lost = ("memory_bytes", "tmp_bytes", "tmp_files")
    monkeypatch.setattr(
        Limits,
        "bounds",
        lambda self: {**honest(self), **{name: 16 * honest(self)[name] for name in lost}, "file_bytes": 1 << 30},
    )
    refused(monkeypatch, "memory bomb", "fill /tmp", "a file a name")


def test_a_leaking_environment_a_readable_host_and_a_visible_package_are_noticed(monkeypatch):
    monkeypatch.setitem(profile._ENVIRONMENT, "TOKEN", "hush")
    honest = interpreter._base_binds
    monkeypatch.setattr(interpreter, "_base_binds", lambda *a: [*honest(*a), ("/etc/passwd", "/etc/passwd")])
    monkeypatch.setattr(interpreter, "_installed", lambda binds: ())
    refused(monkeypatch, "environment", "read secrets", "packages that were not named")


def test_without_bubblewrap_it_refuses_and_says_how_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        open_it()


def test_an_old_bubblewrap_is_refused(monkeypatch, tmp_path):
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.4.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxUnavailable, match=r"0\.4\.1"):
        open_it()


def test_memory_of_all_together_is_capped_where_a_cgroup_is_ours():
    class Unbounded(Limits):
        def bounds(self):
            return {**super().bounds(), "memory_bytes": 1 << 40}

    limits = Unbounded(memory_bytes=64 * MIB, wall_seconds=20.0)
    worker = Worker(profile.find_bubblewrap(), interpreter.find_interpreter(None, ()), limits, 0)
    try:
        if worker.group is None:
            pytest.skip("no memory cgroup is ours here")
        exam = {"outputs": ["629145600"], "tolerance": 0.0, "ignore_case": False}
        worker.submit(Job("held = b'x' * (600 << 20)\nprint(len(held))", exam, inputs=("",)))
        deadline = time.monotonic() + 30
        outcome, alive = None, True
        while outcome is None and alive and time.monotonic() < deadline:
            time.sleep(0.02)
            worker.flush()
            outcome, alive = worker.collect()
        outcome = outcome or worker.lose()
        assert outcome.out_of_memory
        assert not stopped(outcome)
    finally:
        worker.close()


def test_the_group_of_a_killed_judge_is_removed_by_the_next():
    group = memory_group(64 * MIB)
    if group is None:
        pytest.skip("no memory cgroup is ours here")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    orphan = group.folder.parent / f"widen-{dead.pid}-0"
    orphan.mkdir()
    group.close()
    memory_group(64 * MIB).close()
    assert not orphan.exists()
    assert not group.folder.exists()


def test_the_result_says_which_protection_of_memory_holds():
    words = shared().protections.memory
    assert "fork refused" in words
    assert "cgroup" in words
    assert f"{LIMITS.memory_bytes >> 20} MiB" in words


@pytest.mark.skipif(not is_root(), reason="an ordinary user has its own uid")
def test_root_becomes_a_user_that_nobody_has():
    (worker, *_) = shared()._pool
    for pid in {worker.process.pid} | descendants(worker.process.pid):
        assert os.stat(f"/proc/{pid}").st_uid in (
            0,
            *range(60001, 60600),
        )  # /proc shows root for a process that is not dumpable
        with open(f"/proc/{pid}/status") as status:
            uids = next(line for line in status if line.startswith("Uid:")).split()[1:]
        assert all(int(uid) >= 60001 for uid in uids)


def test_the_system_interpreter_serves_too(monkeypatch):
    only(monkeypatch, "fork bomb", "write outside")
    with Sandbox(limits=LIMITS, python="/usr/bin/python3", packages=(), workers=1) as sandbox:
        verdict = assertions("import sys\ndef f():\n    return sys.prefix", "assert f() == '/usr'", sandbox=sandbox)
    assert verdict.passed, verdict


# As root, our own mount hides /tmp, and the user that we become may not enter a folder of root's in /var/tmp.
@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_a_bubblewrap_in_a_folder_of_the_caller_serves_too(monkeypatch, place):
    only(monkeypatch, "inherited descriptors")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        copied = shutil.copy(shutil.which("bwrap"), folder)
        monkeypatch.setenv("PATH", folder, prepend=os.pathsep)
        with Sandbox(limits=LIMITS, workers=1) as sandbox:
            assert sandbox.protections.bubblewrap == copied
            assert assertions("def f():\n    return 1", "assert f() == 1", sandbox=sandbox).passed


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_what_is_no_interpreter_is_refused(python):
    with pytest.raises(ValueError, match="python="), Sandbox(python=python):
        pass


def test_a_package_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no_such_package"), Sandbox(packages=("no_such_package",)):
        pass


def test_programs_see_numpy_and_scipy_and_nothing_else_of_the_environment():
    source = """
import numpy, scipy.special
def f(n):
    return numpy.arange(n).sum(), scipy.special.comb(5, 2, exact=True)
def g():
    try:
        import pytest
    except ImportError:
        return True
"""
    verdict = assertions(source, "assert f(4) == (6, 10)", "assert g()")
    assert verdict.passed, verdict
    assert "pytest" in sys.modules
