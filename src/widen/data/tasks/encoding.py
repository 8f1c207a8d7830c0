"""An example as tokens and labels.

    first token(s) + prompt | completion + end         labels: -100 up to the bar, the tokens after it

Prompt and completion are tokenised apart and joined. A tokenizer run over the joined text may merge characters of both into one token,
and the training prompt would differ from the sampling prompt. A conversation is tokenised whole, by the tokenizer's chat template; several
of its turns may be targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from .conversations import chat_tokens
from .definition import Example

IGNORED = -100
"""The label of a token that is not a target, as in transformers."""


class Encoded(NamedTuple):
    """Token ids and labels of one length, how many tokens were cut from the prompt and from the completion, and the weight of each token in
    the loss (0 for the prompt), or None."""

    input_ids: list[int]
    labels: list[int]
    prompt_cut: int = 0
    completion_cut: int = 0
    loss_weights: list[float] | None = None


def encode(
    example: Example,
    tokenizer: Any,
    *,
    max_length: int,
    first_token: int | None = None,
    prompt_ids: Sequence[int] | None = None,
) -> Encoded:
    """Tokens of prompt and completion, with at least one target.

    The prompt is ``tokenizer(prompt)``, as in sampling; an empty prompt is the first token alone. The completion ends with one end
    token, which is a target. A completion that is too long loses its end, and with it the end token. A prompt may take half of
    ``max_length``, or more if the completion is short; a longer one loses the tokens after its first. In a conversation the prompt is what
    comes before the first target, and the rest is the completion.

    Args:
      tokenizer: of transformers, or anything called as one, with ``eos_token_id``.
      max_length: tokens at most, 2 or more.
      first_token: begins a text with an empty prompt if the tokenizer has no first token; None takes the end token.
      prompt_ids: the tokens of the prompt, instead of its text.
    """
    if max_length < 2:
        raise ValueError(f"max_length={max_length}: must be at least 2, one token to start from and one to learn")
    end = tokenizer.eos_token_id
    if end is None:
        raise ValueError("the tokenizer has no end token: a model trained without one never learns to stop")
    if example.messages:
        ids, mask = chat_tokens(example.messages, tokenizer, given=example.given)
        first = mask.index(True)
        prompt, completion, targets = ids[:first], ids[first:], mask[first:]
    else:
        prompt, completion = _texts(example, tokenizer, end, first_token, prompt_ids)
        targets = [True] * len(completion)
    given = example.loss_weights
    if isinstance(given, tuple) and len(given) != sum(targets):
        raise ValueError(
            f"'loss_weights' has {len(given)} numbers, and there are {sum(targets)} target tokens, the end token included; legal: one "
            "number, or one per target token"
        )
    room = max_length - min(len(completion), max_length // 2)
    prompt_cut = max(0, len(prompt) - room)
    if prompt_cut:
        prompt = prompt[:1] + prompt[1 + prompt_cut :]
    kept = completion[: max_length - len(prompt)]
    labels = [IGNORED] * len(prompt)
    labels += [token if target else IGNORED for token, target in zip(kept, targets, strict=False)]
    weights = None
    if given is not None:
        each = iter(given) if isinstance(given, tuple) else repeat(given)
        weights = [0.0 if label == IGNORED else next(each) for label in labels]
    return Encoded(prompt + kept, labels, prompt_cut, len(completion) - len(kept), weights)


def _texts(
    example: Example, tokenizer: Any, end: int, first_token: int | None, prompt_ids: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """The tokens of prompt and completion."""
    prompt = list(tokenizer(example.prompt).input_ids if prompt_ids is None else prompt_ids)
    if prompt[-1:] == [end] and _adds_end(tokenizer, end):
        raise ValueError(
            "the tokenizer adds its end token to every text, so each prompt would end before its completion: set add_eos_token to "
            "false in its tokenizer_config.json, or remove the end from the post_processor in its tokenizer.json"
        )
    if not prompt:
        known = (token for token in (tokenizer.bos_token_id, first_token) if token is not None)
        prompt = [next(known, end)]
    said = list(tokenizer(example.completion, add_special_tokens=False).input_ids)
    return prompt, said if said[-1:] == [end] else [*said, end]  # the text itself may spell the end token


def _adds_end(tokenizer: Any, end: int) -> bool:
    whole, bare = list(tokenizer("a").input_ids), list(tokenizer("a", add_special_tokens=False).input_ids)
    return whole[-1:] == [end] and bare[-1:] != [end]
