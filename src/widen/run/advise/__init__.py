"""Advice for a wish: which training loss and which decoding to use for a model, a data set and a wish such as "recall at precision >= 0.9".

`wish.py` reads the wish, `request.py` holds all that is asked, `split.py` splits the data, `plan.py` estimates time and memory, `search.py`
trains and scores, `advice.py` compares the finalists on test prompts and `engines.py` writes a decoding for other software.
"""
