"""Exact mathematics on finite distributions: the PR-curve, temperature, the losses' optima, and bounds.

numpy and scipy only. Every formula of the paper's sections 2, 4 and 5 and of its appendices A to C is a function here, with
the paper's label in its docstring. PAPER.md lists where the printed form is wrong.

    curve          the PR-curve of two distributions: points, area, divergences
    steps          what temperature, and any decoding, samples from
    sparsity       what temperature can reach         frontier    what any monotone decoding can reach
    artificial     the case of section 4, solved      truncated   the same under truncation
    exact          likelihoods and curves of an autoregressive model on a support that can be listed
    continuations  which next tokens are right after every prefix of such a support
    sampled        what samples show: expected unique recall, Monte Carlo precision
    optima         what each loss converges to        bounds      what a small loss guarantees

Shapes: n atoms, S sequences, L target positions, V vocabulary, T temperatures or other decodings, N samples.
"""

from . import optima
from .artificial import ArtificialCase, Conditionals
from .bounds import (
    PRGuarantee,
    cdiv_learning_rate_limit,
    cdiv_safe_learning_rate,
    cdiv_scale,
    gamma_proxy,
    position_weights,
    sequence_divergence_bound,
    sequence_precision_bound,
    softmax_curvature,
    trunc_guarantee,
    trunc_guarantee_paper,
    truncr_guarantee,
)
from .continuations import Continuations, valid_continuations
from .curve import PRCurve, PRPoints, SupportPrecisionRecall, pr_curve, pr_curve_from_logs, support_precision_recall
from .exact import exact_curves, exact_log_likelihood, token_log_likelihood
from .frontier import decoding_frontier
from .sampled import (
    Bounds,
    Estimate,
    expected_unique_recall,
    monte_carlo_precision,
    monte_carlo_precision_from_model,
    unique_recall_bounds,
)
from .sparsity import (
    acceptable_counts,
    log_sparsity,
    logit_range,
    sparsity_bound,
    sparsity_bound_attained,
    sparsity_bound_paper,
    tight_temperature,
)
from .steps import decoded_log, tempered, tempered_log
from .truncated import Thresholds, TruncatedCase, exact_thresholds

__all__ = [
    "ArtificialCase",
    "Bounds",
    "Conditionals",
    "Continuations",
    "Estimate",
    "PRCurve",
    "PRGuarantee",
    "PRPoints",
    "SupportPrecisionRecall",
    "Thresholds",
    "TruncatedCase",
    "acceptable_counts",
    "cdiv_learning_rate_limit",
    "cdiv_safe_learning_rate",
    "cdiv_scale",
    "decoded_log",
    "decoding_frontier",
    "exact_curves",
    "exact_log_likelihood",
    "exact_thresholds",
    "expected_unique_recall",
    "gamma_proxy",
    "log_sparsity",
    "logit_range",
    "monte_carlo_precision",
    "monte_carlo_precision_from_model",
    "optima",
    "position_weights",
    "pr_curve",
    "pr_curve_from_logs",
    "sequence_divergence_bound",
    "sequence_precision_bound",
    "softmax_curvature",
    "sparsity_bound",
    "sparsity_bound_attained",
    "sparsity_bound_paper",
    "support_precision_recall",
    "tempered",
    "tempered_log",
    "tight_temperature",
    "token_log_likelihood",
    "trunc_guarantee",
    "trunc_guarantee_paper",
    "truncr_guarantee",
    "unique_recall_bounds",
    "valid_continuations",
]
