"""Advice for a wish: which training loss and which decoding to use for a model, a data set and a wish such as "recall at precision >= 0.9".

`wish.py` reads the wish, `split.py` splits the data, `plan.py` estimates time and memory, `halving.py` drops the worse losses, `search.py`
runs everything, `advice.py` compares the finalists on test prompts and `engines.py` writes a decoding for other software.
"""
