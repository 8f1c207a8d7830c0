"""Exact scores: the probability of every right answer of every problem, by teacher forcing. Nothing is drawn.

A small model is scored on the problems of its task. A real model is scored on prompts whose right answers are listed (task ``answers``).
A text counts in the tokens that the tokenizer makes of it; other tokenisations of the same text are not counted. If an answer has several
spellings, its probability is the sum over them.

Precision is the mass on right answers, recall the expected share of them seen in n samples. Both are averaged over problems, and so are
the area under the PR curve and the curve itself. The model runs once per problem, and once over a prompt that all answers share; every
decoding re-normalises the same logits.

One record has no decoding: ``separation``, measured on the model's own distribution. Its value is the probability that a right next
token has a larger ratio q / max q than a wrong one. Its detail holds

    threshold           the min-p value that keeps most right mass while it drops most wrong tokens
    valid_below_noise   share of right mass that does not exceed the most probable wrong token of its context
    histogram           ``edges`` of the ratio, and the shares of ``valid`` and ``invalid`` tokens between them

Shapes: T decodings, A answers of a problem, S their spellings, L target positions, N prefixes of the spellings, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widen.data.batch import pad
from widen.data.tasks import IGNORED, Example, encode, spellings
from widen.metrics import separation
from widen.metrics.exact_points import ExactPoint, exact_points
from widen.models.convert import load_pretrained
from widen.models.likelihood import log_likelihood_from_logits, next_logits
from widen.sample.decoding import Decoding
from widen.sample.prompts import Prompt
from widen.theory import valid_continuations
from widen.train.settings import Configuration

from ..experiment import Experiment
from ..folder import RunFolder
from ..questions import Question, prompts_for
from ..record import Record, write_records
from ..sampling import weights_of
from ..score_settings import ExactScore
from .job import ScoreJob
from .score_files import Measured, records_for, score_name

CONTEXT_LOGITS = 1 << 23
"""The separation uses about this many logits (64 MB), but at least one context of each problem. If there are more contexts, each problem
draws as many."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, are spread over [0, 1) however many there are."""
MAX_LENGTH = 4096
"""Most tokens of a prompt with an answer."""


def score_exactly(job: ScoreJob) -> list[Record]:
    """Records at every decoding, and one of the separation."""
    folder, experiment, questions, tools = job
    assert isinstance(experiment.score, ExactScore)
    small = isinstance(experiment.model, Configuration)
    logits, problems = (
        _small(folder, experiment, tools.device) if small else _real(folder, experiment, questions, tools.device)
    )
    decodings = [setting.decoding for setting in experiment.settings]
    points, contexts = [], []
    for done, answers in enumerate(problems, start=1):
        logits_SLV = logits(answers)
        points.append(_points(logits_SLV, answers, decodings, experiment.score))
        most = max(1, CONTEXT_LOGITS // (logits_SLV.shape[-1] * len(problems)))
        contexts.append(_contexts(logits_SLV, answers, most, done * GOLDEN % 1))
        if len(problems) > 1:
            tools.progress(f"score {experiment.name}, seed {experiment.model_seed}", done, len(problems))
    records = [
        record
        for decoding, of_problems in zip(decodings, zip(*points, strict=True), strict=True)
        for record in _records(experiment, decoding, of_problems)
    ]
    records += _separation(experiment, contexts)
    write_records(folder, score_name(experiment), records)
    return records


class Listed(NamedTuple):
    """The right answers of one problem as tokens, one row per spelling.

    Args:
      tokens_SL: [S, 1 + L]; the first token is context only.
      mask_SL: [S, L], True where a token after the first is a target.
      answer_S: the number of the answer that each row spells.
      prompt: tokens that come before every row.
    """

    tokens_SL: NDArray[np.int64]
    mask_SL: NDArray[np.bool_]
    answer_S: NDArray[np.int64]
    prompt: tuple[int, ...] = ()


Logits = Callable[[Listed], Tensor]
"""Next-token logits of every row of a problem, [S, L, V]."""


def _small(folder: RunFolder, experiment: Experiment, device: str) -> tuple[Logits, list[Listed]]:
    if not folder.is_trained:
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run `widen train` or `widen run` first")
    assert isinstance(experiment.model, Configuration)
    model = load_pretrained(folder.checkpoint).to(device)
    batches = [problem.answers for problem in experiment.model.data.problems()]
    problems = [
        Listed(one.tokens_BL.numpy(), one.target_mask.numpy(), np.arange(len(one.tokens_BL))) for one in batches
    ]
    return lambda answers: next_logits(model, answers.tokens_SL), problems


def _real(
    folder: RunFolder, experiment: Experiment, questions: Sequence[Question], device: str
) -> tuple[Logits, list[Listed]]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = str(weights_of(experiment, folder))
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=experiment.dtype, trust_remote_code=False).to(device)
    prompts = prompts_for(questions, tokenizer if experiment.chat else None)
    problems = [_tokens(one, prompt, tokenizer) for one, prompt in zip(questions, prompts, strict=True)]

    @torch.no_grad()
    def logits(answers: Listed) -> Tensor:
        # Padding is on the right, so a causal model does not see it.
        ids_SL = torch.from_numpy(answers.tokens_SL[:, :-1].copy()).to(device)
        if not answers.prompt:
            return model(ids_SL, use_cache=False).logits  # type: ignore[no-any-return]
        shared = model(torch.tensor([answers.prompt], device=device), use_cache=True).past_key_values
        shared.batch_repeat_interleave(len(ids_SL))
        return model(ids_SL, past_key_values=shared, use_cache=True).logits  # type: ignore[no-any-return]

    return logits, problems


def _tokens(question: Question, prompt: Prompt, tokenizer: Any) -> Listed:
    """One row per spelling of a right answer: the prompt, then the answer and the end of the text, which are the targets."""
    answers = question.example.facts.get("answers")
    if not answers:
        raise ValueError(
            f"prompt {question.example.prompt[:60]!r} has no list of right answers; exact scores need the task 'answers'"
        )
    rows = [(number, text) for number, answer in enumerate(answers) for text in spellings(answer)]
    encoded = [
        encode(Example(prompt.text, text, {}), tokenizer, max_length=MAX_LENGTH, prompt_ids=prompt.ids)
        for _, text in rows
    ]
    if any(one.prompt_cut or one.completion_cut for one in encoded):
        raise ValueError(f"prompt {question.example.prompt[:60]!r} and an answer are longer than {MAX_LENGTH} tokens")
    starts = [one.labels.count(IGNORED) for one in encoded]
    batch = pad([one.input_ids for one in encoded], prompt_lengths=starts, pad_id=tokenizer.eos_token_id)
    before = starts[0] - 1  # the last token of the prompt predicts the first of the answer
    tokens_SL, mask_SL = batch.tokens_BL.numpy()[:, before:], batch.target_mask.numpy()[:, before:]
    return Listed(tokens_SL, mask_SL, np.array([number for number, _ in rows]), tuple(encoded[0].input_ids[:before]))


def _points(logits_SLV: Tensor, answers: Listed, decodings: Sequence[Decoding], score: ExactScore) -> list[ExactPoint]:
    """One point per decoding."""
    log_q_TS = log_likelihood_from_logits(
        logits_SLV,
        answers.tokens_SL,
        [decoding.exact_steps for decoding in decodings],
        mask=answers.mask_SL,
    )
    log_q_TA = np.full((len(log_q_TS), answers.answer_S.max() + 1), -np.inf)
    np.logaddexp.at(log_q_TA.T, answers.answer_S, log_q_TS.T)
    return exact_points(
        np.full(log_q_TA.shape[1], -np.log(log_q_TA.shape[1])),
        log_q_TA,
        temperatures=[decoding.temperature for decoding in decodings],
        lams=score.lams,
        num_samples=score.num_samples,
    )


def _contexts(logits_SLV: Tensor, answers: Listed, most: int, start: float) -> tuple[NDArray[np.float64], ...]:
    """Prefixes of the right answers, at most so many: P(next token) [N, V], the model's logits [N, V], the weight of each prefix [N].

    P is uniform over answers, and over the spellings of each. The weight is the prefix's probability. If there are more than ``most``
    prefixes, they are drawn by their probability, at evenly spaced points of its running sum. ``start`` is where the first point lies in
    its interval, from 0 to 1. The weights keep their sum.
    """
    mask_SL = answers.mask_SL
    first = int(mask_SL.any(axis=0).argmax())  # all answers follow the same prompt
    x_SL = np.where(mask_SL, answers.tokens_SL[:, 1:], -1)[:, first:]
    of_A = np.bincount(answers.answer_S)
    found = valid_continuations(x_SL, 1.0 / (len(of_A) * of_A[answers.answer_S]))
    kept, weight_N = np.arange(len(found.mass)), found.mass
    if len(kept) > most:
        sums = found.mass.cumsum()
        drawn = sums.searchsorted((np.arange(most) + start) / most * sums[-1], side="right")
        kept, draws = np.unique(drawn.clip(max=len(kept) - 1), return_counts=True)
        weight_N = draws * (sums[-1] / most)
    logits_NV = logits_SLV[found.sequence[kept], found.position[kept] + first].double().cpu().numpy()
    return found.dense(logits_NV.shape[1], kept), logits_NV, weight_N


def _separation(experiment: Experiment, contexts: Sequence[tuple[NDArray[np.float64], ...]]) -> list[Record]:
    """The record of the separation, over the contexts of all problems."""
    reference, logits, weights = (np.concatenate(parts) for parts in zip(*contexts, strict=True))
    found = separation.separation_scores(reference, logits, weights=weights)
    bins = separation.ratio_histogram(reference, logits, weights=weights)
    detail = {
        "threshold": found.threshold,
        "valid_below_noise": found.below_noise,
        "histogram": {"edges": list(bins.edges), "valid": list(bins.right), "invalid": list(bins.wrong)},
    }
    values = {"separation": Measured(found.auc, n=found.contexts)}
    return records_for(experiment, None, values, {"separation": detail})


def _records(experiment: Experiment, decoding: Decoding, points: Sequence[ExactPoint]) -> list[Record]:
    """Records of one decoding, as means over problems. Precision and recall of each of several problems are kept for paired comparisons."""

    def mean(name: str) -> Any:
        return np.mean([getattr(point, name) for point in points], axis=0).tolist()

    first, problems = points[0], len(points)
    values = {
        "precision": Measured(mean("precision"), n=problems),
        "recall": Measured(mean("recall"), n=first.num_samples),
        "auc": Measured(mean("auc"), n=problems),
        **{
            f"recall@lam={lam:g}": Measured(r, n=problems) for lam, r in zip(first.lams, mean("recall_at"), strict=True)
        },
    }
    detail: dict[str, dict[str, Any]] = {
        "precision": {},
        "recall": {"ceiling": mean("recall_ceiling")},
        "auc": {"curve_precision": mean("curve_precision"), "curve_recall": mean("curve_recall")},
    }
    if problems > 1:
        for name in ("precision", "recall"):
            detail[name]["by_problem"] = [round(getattr(one, name), 6) for one in points]
    return records_for(experiment, decoding, values, detail)
