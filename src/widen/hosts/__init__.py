"""Other people's trainers with our losses: Transformers' Trainer and TRL's SFTTrainer take ``loss="cdiv:alpha=1.4"`` and keep the rest.

Read ``weighted_loss.py`` first: what any ``transformers.Trainer`` subclass gains. The loss itself is `widen.train.objective`, as in
every trainer. ``fused_head.py`` reaches the head inside the model's own forward; ``refuse.py`` says what cannot work and why.

Nothing is imported here: ``widen.hosts.transformers`` needs transformers, ``widen.hosts.trl`` needs trl.
"""
