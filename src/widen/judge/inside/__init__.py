"""Code that runs inside the sandbox, under the judged program's interpreter.

It needs Python 3.9 or later and the standard library, and imports nothing of widen outside this folder.

zygote     pid 1: forks a process per program, keeps the clock, cleans up; never holds a program, a test or an answer
confine    the last steps before hostile code runs: limits, capabilities, seccomp, a fresh /tmp
program    the process that runs the judged program and answers requests
examiner   the process that runs the tests
remote     the examiner's stand-ins for the program's objects
wire       the protocol between program and examiner
"""
