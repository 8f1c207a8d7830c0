"""The seccomp filters, read by an interpreter of classic BPF written here: exactly the named calls pass, with the
named arguments only.
"""

import errno
import platform
import re
import struct
from pathlib import Path

import pytest

from widen.judge import seccomp
from widen.judge.seccomp import CHECKED, PROCESSES, PROGRAM, ZYGOTE, numbers

ARCHES = ("x86_64", "aarch64")
EPERM, ENOSYS = seccomp.REFUSE | errno.EPERM, seccomp.REFUSE | errno.ENOSYS


def verdict(program: bytes, arch: str, number: int, *args: int) -> int:
    """What the kernel would return: load word, AND, jumps, return are the only instructions in use."""
    words = [*args, *[0] * (6 - len(args))]
    data = struct.pack("<IIQ6Q", number, seccomp.AUDIT_ARCH[arch], 0, *words)
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, when, otherwise, k = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x05:
            at += k
        elif operation == 0x15:
            at += when if accumulator == k else otherwise
        elif operation == 0x35:
            at += when if accumulator >= k else otherwise
        elif operation == 0x06:
            return k
        else:
            raise AssertionError(f"instruction {operation:#x}")


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("processes", [False, True])
def test_exactly_the_named_calls_pass(arch, processes):
    program = seccomp.program_filter(arch, processes=processes)
    allowed = set(numbers(arch, PROGRAM).values()) | (set(numbers(arch, PROCESSES).values()) if processes else set())
    checked = set(numbers(arch, CHECKED).values())
    for number in set(range(600)) - checked:
        assert (verdict(program, arch, number) == seccomp.ALLOW) == (number in allowed), number
        assert verdict(program, arch, number) in (seccomp.ALLOW, EPERM)


@pytest.mark.parametrize("arch", ARCHES)
def test_arguments_decide_where_the_call_alone_does_not(arch):
    number = numbers(arch, CHECKED)
    program = seccomp.program_filter(arch, processes=False)
    thread, fork, new_user = 0x003D0F00, 0x01200011, 0x10000000
    assert verdict(program, arch, number["clone"], thread) == seccomp.ALLOW
    assert verdict(program, arch, number["clone"], fork) == EPERM
    assert verdict(program, arch, number["clone3"], 0) == ENOSYS
    assert verdict(program, arch, number["prlimit64"], 0) == seccomp.ALLOW
    assert verdict(program, arch, number["prlimit64"], 1) == EPERM
    assert verdict(program, arch, number["ioctl"], 0, 0x5401) == seccomp.ALLOW
    assert verdict(program, arch, number["ioctl"], 0, 0x5412) == EPERM  # TIOCSTI: typing on another's terminal
    assert verdict(program, arch, number["fcntl"], 3, 1) == seccomp.ALLOW
    assert verdict(program, arch, number["fcntl"], 3, 8) == EPERM  # F_SETOWN: signals to another process
    assert verdict(program, arch, number["prctl"], 15) == seccomp.ALLOW
    assert verdict(program, arch, number["prctl"], 22) == EPERM
    many = seccomp.program_filter(arch, processes=True)
    assert verdict(many, arch, number["clone"], fork) == seccomp.ALLOW
    assert verdict(many, arch, number["clone"], fork | new_user) == EPERM
    zygote = seccomp.zygote_filter(arch)
    assert verdict(zygote, arch, number["clone"], fork | new_user) == EPERM
    assert verdict(zygote, arch, numbers(arch, ZYGOTE)["unshare"], 0x20000) == seccomp.ALLOW
    assert verdict(zygote, arch, numbers(arch, ZYGOTE)["unshare"], new_user) == EPERM


@pytest.mark.parametrize("arch", ARCHES)
def test_a_foreign_architecture_is_killed_by_every_filter(arch):
    foreign = "aarch64" if arch == "x86_64" else "x86_64"
    for program in (
        seccomp.program_filter(arch, processes=False),
        seccomp.examiner_filter(arch),
        seccomp.zygote_filter(arch),
    ):
        assert verdict(program, foreign, 0) == seccomp.KILL
    if arch == "x86_64":
        assert verdict(program, arch, 0x40000000) == seccomp.KILL  # the x32 numbers


@pytest.mark.parametrize("arch", ARCHES)
def test_a_program_may_do_nothing_that_the_zygote_may_not(arch):
    zygote = seccomp.zygote_filter(arch)
    for program in (seccomp.program_filter(arch, processes=True), seccomp.examiner_filter(arch)):
        for number in range(600):
            if verdict(program, arch, number) == seccomp.ALLOW:
                assert verdict(zygote, arch, number) == seccomp.ALLOW


def test_a_large_filter_jumps_far():
    rules = {2 * number: seccomp.argument(0, (number,)) for number in range(300)}
    program = seccomp.assemble("x86_64", rules)
    for number in range(300):
        assert verdict(program, "x86_64", 2 * number, number) == seccomp.ALLOW
        assert verdict(program, "x86_64", 2 * number, number + 1) == EPERM
        assert verdict(program, "x86_64", 2 * number + 1) == EPERM


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86's header")
def test_numbers_are_the_kernels():
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("needs the kernel's headers: apt-get install linux-libc-dev")
    kernel = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())}
    for name, number in numbers("x86_64", PROGRAM, CHECKED, PROCESSES, ZYGOTE).items():
        assert kernel[name] == number


def test_an_unknown_machine_is_refused(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(ValueError, match="vax"):
        seccomp.machine()
