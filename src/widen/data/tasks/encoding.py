"""An example as tokens: what is a target and what is not, where a text begins and ends, and what happens to one that is too long.

    first token(s) + prompt | completion + end         labels: -100 up to the bar, the tokens themselves after it

Prompt and completion are tokenised apart and joined. Sampling tokenises the prompt alone, and a tokenizer run over the joined text may
merge the last characters of the prompt with the first of the completion into one token: the model would then be trained after a prompt
that it never sees when it is asked, and part of that token would be lost from the targets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .definition import Example

__all__ = ["IGNORED", "Encoded", "encode"]

IGNORED = -100
"""The label of a token that is no target; transformers' own convention."""


class Encoded(NamedTuple):
    """Token ids and labels, of one length; how many tokens were cut off the prompt's start and the completion's end; and the weight of each
    token in the loss, 0 for those of the prompt, or None."""

    input_ids: list[int]
    labels: list[int]
    prompt_cut: int = 0
    completion_cut: int = 0
    loss_weights: list[float] | None = None


def encode(example: Example, tokenizer: Any, *, max_length: int, first_token: int | None = None) -> Encoded:
    """Tokens of prompt and completion, targets marked.

    The prompt is ``tokenizer(prompt)``, with the first token that the tokenizer adds, exactly as sampling feeds it; an empty prompt
    is the first token alone. The completion ends with the tokenizer's end token, which is a target.

    What is longer than ``max_length`` keeps its beginning: the completion is cut at its end, and then has no end token, since the
    text does not end there. A prompt leaves at least half of the room to the completion (or as much as it needs, if that is
    less): a longer one loses the tokens after its first, so that what stands next to the completion stays.

    Args:
      tokenizer: of transformers, or anything called as one, with ``eos_token_id``.
      max_length: tokens at most, 2 or more.
      first_token: what a text begins with where the prompt is empty and neither the tokenizer adds nor names one; else its end token.

    Returns:
      Ids and labels with at least one target.
    """
    if max_length < 2:
        raise ValueError(f"max_length={max_length}: must be at least 2, one token to start from and one to learn")
    end = tokenizer.eos_token_id
    if end is None:
        raise ValueError("the tokenizer has no end token: a model trained without one never learns to stop")
    prompt = list(tokenizer(example.prompt).input_ids)
    if prompt[-1:] == [end] and _adds_end(tokenizer, end):
        # Sampling feeds the prompt in the same way: taking the token off here alone would train on other prompts than are asked.
        raise ValueError(
            "the tokenizer adds its end token to every text, so that each prompt would end before its completion: set add_eos_token to "
            "false in its tokenizer_config.json, or take the end off the post_processor in its tokenizer.json"
        )
    if not prompt:
        known = (token for token in (tokenizer.bos_token_id, first_token) if token is not None)
        prompt = [next(known, end)]
    completion = [*tokenizer(example.completion, add_special_tokens=False).input_ids, end]
    room = max_length - min(len(completion), max_length // 2)
    prompt_cut = max(0, len(prompt) - room)
    if prompt_cut:
        prompt = prompt[:1] + prompt[1 + prompt_cut :]
    kept = completion[: max_length - len(prompt)]
    labels = [IGNORED] * len(prompt) + kept
    given = example.loss_weights
    if isinstance(given, tuple) and len(given) != len(completion):
        raise ValueError(
            f"'loss_weights' has {len(given)} numbers, and the completion has {len(completion)} tokens, its end token included; legal: one "
            "number, or one per token"
        )
    each = given[: len(kept)] if isinstance(given, tuple) else [given] * len(kept) if given is not None else None
    weights = None if each is None else [0.0] * len(prompt) + list(each)
    return Encoded(prompt + kept, labels, prompt_cut, len(completion) - len(kept), weights)


def _adds_end(tokenizer: Any, end: int) -> bool:
    whole, bare = list(tokenizer("a").input_ids), list(tokenizer("a", add_special_tokens=False).input_ids)
    return whole[-1:] == [end] and bare[-1:] != [end]
