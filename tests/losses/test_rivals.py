"""Other people's losses through our own head: where they end, the gradient their papers print, and their edges."""

import math

import numpy as np
import pytest
import torch

from widen.data.targets import LOSS_WEIGHTS, Sequences
from widen.losses import DCO, Rows, parse, weighted_nll
from widen.theory import optima
from widen.train.objective import Objective

P = np.array([0.4, 0.3, 0.2, 0.07, 0.03])
REF = np.array([0.1, 0.25, 0.3, 0.15, 0.2])
RIVALS = {
    "gem:beta=0.7": lambda p: optima.gem(p, beta=0.7),
    "tofu:gamma=3,beta=0.8": lambda p: optima.tofu(p, gamma=3, beta=0.8),
    "focal:gamma=2": lambda p: optima.focal(p, gamma=2),
    "smooth:eps=0.1": lambda p: optima.smooth(p, eps=0.1),
    "entropy:bonus=0.3": lambda p: optima.entropy(p, bonus=0.3),
    "eaft": optima.eaft,
    "dco:n=4": lambda p: optima.dco(p, n=4),
    "asft:kl=2": lambda p: optima.asft(p, ref=REF, kl=2),
    "anchor:kl=0.4": lambda p: optima.anchor(p, ref=REF, kl=0.4),
    "nll:steps=3 then gem:beta=0.7": lambda p: optima.gem(p, beta=0.7),
    "focal:gamma=2 * gem:beta=0.8": lambda p: optima.tofu(p, gamma=2, beta=0.8),
}


def gradient_by_head(loss, logits_BCV, target_BC, *, weights_BC=None):
    """Gradient of the summed loss with respect to the logits, through the head: the hidden states are the logits, the head is 1."""
    objective = loss if isinstance(loss, Objective) else Objective(parse(loss))
    z_NV = logits_BCV.detach().flatten(0, 1).requires_grad_()
    head = torch.eye(z_NV.shape[1], dtype=z_NV.dtype)
    columns = {} if weights_BC is None else {LOSS_WEIGHTS: weights_BC}
    columns |= {"ref_logq": torch.tensor(REF).log()[target_BC]}
    out = objective.through_head(z_NV, head, Sequences(target_BC, columns=columns), num_tokens=1.0)
    out.loss.backward()
    objective.state = objective.weight.observe(objective.weight.seen(objective.state), objective.state)
    return z_NV.grad.view_as(logits_BCV), out


@pytest.mark.parametrize("loss", RIVALS)
def test_descent_through_the_head_reaches_the_optimum_of_the_theory(loss):
    """Every token is a sequence of its own, met as often as P says. Dividing by q and the mean weight changes the speed alone."""
    expected = RIVALS[loss](P)
    objective, p = Objective(parse(loss)), torch.tensor(P)
    target_BC, z = torch.arange(5)[:, None], torch.zeros(5, dtype=torch.float64)
    for _ in range(60 if "asft" in loss else 45):
        each, out = gradient_by_head(objective, z.expand(5, 1, 5), target_BC, weights_BC=p[:, None])
        z = z - 0.4 * each.sum((0, 1)) / (z.softmax(0) * out.w_N.sum())
    np.testing.assert_allclose(z.softmax(0).numpy(), expected, atol=1e-6)


def token_logp(z, target):
    return z.log_softmax(-1).gather(-1, target[..., None])[..., 0]


def gem_published(z, target, beta=0.7):
    """GEM, linear h: the log-probability of the data minus that of draws from the model at temperature beta."""
    generated = (z.detach() / beta).softmax(-1)
    return -(token_logp(z, target) - (generated * z.log_softmax(-1)).sum(-1)).sum()


def tofu_published(z, target, gamma=3.0, beta=0.8):
    q = token_logp(z.detach(), target).exp()
    focal = (1 - q) ** gamma - gamma * q * (1 - q) ** (gamma - 1) * q.log()
    return -(focal * beta * token_logp(z / beta, target)).sum()


def eaft_published(z, target):
    """At most 20 tokens here, so that the entropy of the likeliest 20 is that of all."""
    p = z.detach().softmax(-1).topk(min(20, z.shape[-1])).values
    return -(-(p * p.log()).sum(-1) / math.log(20) * token_logp(z, target)).sum()


PUBLISHED = {
    "gem:beta=0.7": gem_published,
    "tofu:gamma=3,beta=0.8": tofu_published,
    "focal:gamma=2": lambda z, y: -((1 - token_logp(z, y).exp()) ** 2 * token_logp(z, y)).sum(),
    "focal:gamma=0.5": lambda z, y: -((1 - token_logp(z, y).exp()) ** 0.5 * token_logp(z, y)).sum(),
    "smooth:eps=0.1": lambda z, y: torch.nn.functional.cross_entropy(
        z.flatten(0, 1), y.flatten(), label_smoothing=0.1, reduction="sum"
    ),
    "entropy:bonus=0.3": lambda z, y: (
        -token_logp(z, y).sum() - 0.3 * torch.distributions.Categorical(logits=z).entropy().sum()
    ),
    "eaft": eaft_published,
    "dco:n=16": lambda z, y: -(1 - (1 - token_logp(z, y).sum(-1).exp()) ** 16).log().sum(),
    "dft": lambda z, y: -(token_logp(z, y).detach().exp() * token_logp(z, y)).sum(),
}


@pytest.mark.parametrize("loss", PUBLISHED)
def test_the_gradient_is_that_of_the_published_loss(loss):
    torch.manual_seed(0)
    z = (2 * torch.randn(6, 2, 5, dtype=torch.float64)).requires_grad_()
    target = torch.randint(5, (6, 2))
    value = PUBLISHED[loss](z, target)
    (expected,) = torch.autograd.grad(value, z)
    found, out = gradient_by_head(loss, z, target)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    if loss.startswith(
        ("smooth", "entropy", "tofu", "eaft", "dft")
    ):  # of the others the weight differs from the loss by a factor
        torch.testing.assert_close(out.loss, value.detach(), rtol=1e-9, atol=1e-12)
        assert -out.sums[0].item() == pytest.approx(value.item(), rel=1e-9)


def test_summed_over_all_targets_asft_has_the_gradient_of_dft_and_the_published_kl():
    """The authors' KL(reference || model) is a sum over the vocabulary; ours keeps the target's term of it."""
    torch.manual_seed(0)
    z, every = torch.randn(5, dtype=torch.float64, requires_grad=True), torch.arange(5)[:, None]
    found, _ = gradient_by_head("asft:kl=0.3", z.expand(5, 1, 5), every)
    logp = z.log_softmax(0)
    dft = -(logp.detach().exp() * logp).sum()
    kl = torch.nn.functional.kl_div(logp, torch.tensor(REF), reduction="sum")
    (expected,) = torch.autograd.grad(dft + 0.3 * kl, z)
    torch.testing.assert_close(found.sum((0, 1)), expected, rtol=1e-9, atol=1e-12)


def test_anchor_has_the_gradient_of_nll_plus_the_squared_log_ratio():
    torch.manual_seed(0)
    z, y = torch.randn(6, 2, 5, dtype=torch.float64, requires_grad=True), torch.randint(5, (6, 2))
    ratio = token_logp(z, y) - torch.tensor(REF).log()[y]
    (expected,) = torch.autograd.grad(-token_logp(z, y).sum() + 0.2 / 2 * ratio.square().sum(), z)
    found, _ = gradient_by_head("anchor:kl=0.2", z, y)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_anchored_optima_lie_between_the_data_and_the_reference():
    np.testing.assert_allclose(optima.anchor(P, ref=REF, kl=0), P)
    np.testing.assert_allclose(optima.anchor(P, ref=REF, kl=1e5), REF, atol=1e-4)
    np.testing.assert_allclose(optima.asft(P, ref=REF, kl=1e-9), [1, 0, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(optima.asft(P, ref=REF, kl=1e9), P * REF / (P * REF).sum(), atol=1e-6)
    assert optima.anchor([0.5, 0.5, 0.0], ref=[0.2, 0.3, 0.5], kl=1.0)[2] == 0
    with pytest.raises(ValueError, match="ref"):
        optima.asft([0.5, 0.5], ref=[1.0, 0.0], kl=1.0)


def test_dco_keeps_its_digits_for_answers_of_any_length():
    loss, p = DCO(n=1000.0), torch.tensor([1e-300, 1e-12, 1e-3, 0.5, 1 - 1e-9], dtype=torch.float64)
    direct = [1.0, 1 - 999e-12 / 2, 1000e-3 * 0.999**999 / (1 - 0.999**1000), 0.0, 0.0]
    torch.testing.assert_close(loss.factor(p.log()), torch.tensor(direct, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    w, _ = loss.apply(Rows(torch.full((1, 500), -20.0)), torch.ones(1, 500, dtype=torch.bool), ())
    assert (w == 1).all()  # exp(-10,000) is 0 in any dtype


def test_losses_that_look_beyond_log_q_are_refused_where_only_log_q_is_known():
    logq, mask = torch.zeros(1, 1), torch.tensor([[True]])
    with pytest.raises(ValueError, match="log-probabilities of the targets do not determine"):
        weighted_nll(logq, mask, parse("gem"), (), num_tokens=1)
    with pytest.raises(ValueError, match="rows has no column 'entropy'"):
        weighted_nll(logq, mask, parse("eaft"), (), num_tokens=1)
    value, _ = weighted_nll(
        logq - 1, mask, parse("eaft"), (), num_tokens=1, entropy_BL=torch.full((1, 1), math.log(20))
    )
    assert value.item() == pytest.approx(1.0)


def test_a_loss_gets_the_columns_it_needs_and_no_others():
    seen = []

    class Spy(type(parse("nll"))):
        needs = frozenset({"entropy", "colour"})

        def weigh(self, rows):
            seen.append(rows)
            return rows.entropy * rows["colour"]

    target_BC = torch.tensor([[1, 2], [3, -100]])
    objective = Objective(Spy())
    colour = torch.tensor([[1.0, 2.0], [0.0, 9.0]])
    sequences = Sequences(target_BC, columns={"colour": colour})
    out = objective.through_head(torch.randn(4, 3), torch.randn(5, 3), sequences, num_tokens=3)
    torch.testing.assert_close(out.w_N, out.entropy_N * colour.flatten())
    assert ["entropy" in seen[0], "colour" in seen[0], "logq" in seen[0], "position" in seen[0]] == [
        True,
        True,
        False,
        False,
    ]
    assert list(seen[0].extra) == ["colour"]
