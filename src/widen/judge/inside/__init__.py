"""Code that runs inside the sandbox, under the judged program's interpreter.

It needs Python 3.9 or later and the standard library, and imports nothing of widen outside this folder.
"""
