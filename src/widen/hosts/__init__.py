"""Other people's trainers with our losses: Transformers' Trainer and TRL's SFTTrainer take ``loss="cdiv:alpha=1.4"`` and keep the rest.

Read ``weighted_loss.py`` first: what any ``transformers.Trainer`` subclass gains. The loss itself is `widen.train.objective`, as in
every trainer. ``fused_head.py`` reaches the head inside the model's own forward; ``refuse.py`` says what cannot work and why.

``ms_swift.py``, ``axolotl.py``, ``verl.py`` and ``torchtitan.py`` are plug-ins for these frameworks.

Nothing is imported here: each of these modules needs the package after which it is named.
"""
