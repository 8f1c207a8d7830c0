"""Exact mathematics on finite distributions: the PR-curve, temperature, the losses' optima, and bounds.

numpy and scipy only. Every formula of the paper's sections 2, 4 and 5 and of its appendices A to C is a function here, with
the paper's label in its docstring. PAPER.md lists where the printed form is wrong.

    curve          the PR-curve of two distributions: points, area, divergences
    steps          tempered laws, and the law of any decoding
    sparsity       what temperature can reach         frontier    what any monotone decoding can reach
    artificial     the case of section 4, solved      truncated   the same under truncation
    exact          likelihoods and curves of an autoregressive model on a support that can be listed
    continuations  which next tokens are right after every prefix of such a support
    sampled        what samples show: expected unique recall, Monte Carlo precision
    optima         what each loss converges to        bounds      what a small loss guarantees

Shapes: n atoms, S sequences, L target positions, V vocabulary, T temperatures or other decodings, N samples.
"""

from . import optima as optima
from .artificial import ArtificialCase as ArtificialCase
from .artificial import Conditionals as Conditionals
from .bounds import PRGuarantee as PRGuarantee
from .bounds import cdiv_learning_rate_limit as cdiv_learning_rate_limit
from .bounds import cdiv_safe_learning_rate as cdiv_safe_learning_rate
from .bounds import cdiv_scale as cdiv_scale
from .bounds import gamma_proxy as gamma_proxy
from .bounds import position_weights as position_weights
from .bounds import sequence_divergence_bound as sequence_divergence_bound
from .bounds import sequence_precision_bound as sequence_precision_bound
from .bounds import softmax_curvature as softmax_curvature
from .bounds import trunc_guarantee as trunc_guarantee
from .bounds import trunc_guarantee_paper as trunc_guarantee_paper
from .bounds import truncr_guarantee as truncr_guarantee
from .continuations import Continuations as Continuations
from .continuations import valid_continuations as valid_continuations
from .curve import PRCurve as PRCurve
from .curve import PRPoints as PRPoints
from .curve import SupportPrecisionRecall as SupportPrecisionRecall
from .curve import pr_curve as pr_curve
from .curve import pr_curve_from_logs as pr_curve_from_logs
from .curve import support_precision_recall as support_precision_recall
from .exact import exact_curves as exact_curves
from .exact import exact_log_likelihood as exact_log_likelihood
from .exact import token_log_likelihood as token_log_likelihood
from .frontier import decoding_frontier as decoding_frontier
from .optima import lambda_pr_is_unique as lambda_pr_is_unique
from .optima import lambda_pr_threshold as lambda_pr_threshold
from .sampled import Bounds as Bounds
from .sampled import Estimate as Estimate
from .sampled import expected_unique_recall as expected_unique_recall
from .sampled import monte_carlo_precision as monte_carlo_precision
from .sampled import monte_carlo_precision_from_model as monte_carlo_precision_from_model
from .sampled import unique_recall_bounds as unique_recall_bounds
from .sparsity import acceptable_counts as acceptable_counts
from .sparsity import log_sparsity as log_sparsity
from .sparsity import logit_range as logit_range
from .sparsity import sparsity_bound as sparsity_bound
from .sparsity import sparsity_bound_attained as sparsity_bound_attained
from .sparsity import sparsity_bound_paper as sparsity_bound_paper
from .sparsity import tight_temperature as tight_temperature
from .steps import decoded_log as decoded_log
from .steps import tempered as tempered
from .steps import tempered_log as tempered_log
from .truncated import Thresholds as Thresholds
from .truncated import TruncatedCase as TruncatedCase
from .truncated import exact_thresholds as exact_thresholds
