"""The score stage: how each kind of score turns a model or its samples into records.

`listed_answers.py` scores exactly, `neighbours.py` and `slots.py` compare texts, `programs.py` runs programs, `checked.py` calls a user's
checker, `support.py` measures next-token distributions. Each has one function from a `ScoreJob` to records.
"""
