"""What runs inside the sandbox, under the judged program's own interpreter: Python 3.9 or later, the standard library
only, nothing of widen above this folder.

zygote     pid 1: forks two processes a program, keeps the clock, sweeps up; never holds a program, a test or an answer
confine    the last steps before hostile code runs: limits, capabilities, seccomp, a fresh /tmp
program    the process that runs the judged program and answers calls
examiner   the process that runs the tests, with stand-ins for the program's objects
remote     those stand-ins
wire       frames and plain values between the two
"""
