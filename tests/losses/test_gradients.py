"""The gradient is the weight times NLL's gradient, the weight carries none, and micro-batches add up."""

import pytest
import torch
from test_weights import SPECS

from widen.losses import NLL, CDiv, LambdaPR, Rows, TaiLr, parse, weighted_nll


def logits_case(seed=0, b=6, length=5, v=7):
    torch.manual_seed(seed)
    return (
        torch.randn(b, length, v, dtype=torch.float64, requires_grad=True),
        torch.randint(v, (b, length)),
        torch.arange(length) < torch.randint(1, length + 1, (b, 1)),
    )


def gathered(logits, target):
    return logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]


@pytest.mark.parametrize("spec", SPECS)
def test_gradient_is_the_weight_times_the_gradient_of_nll(spec):
    """dL/dz = w (softmax(z) - onehot) / n, written out by hand in float64."""
    loss = parse(spec)
    logits, target, mask = logits_case()
    n = int(mask.sum())
    value, _ = weighted_nll(gathered(logits, target), mask, loss, loss.init(), num_tokens=n)
    value.backward()
    q = logits.detach().softmax(-1)
    w, _ = loss.apply(Rows(gathered(logits.detach(), target)), mask, loss.init())
    by_hand = w[..., None] * (q - torch.nn.functional.one_hot(target, 7)) / n
    torch.testing.assert_close(logits.grad, by_hand, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize(
    "loss",
    [NLL(), CDiv(alpha=0.5), CDiv(alpha=1.4), CDiv(alpha=0.0), TaiLr(gamma=0.1), LambdaPR(lam=0.9, gamma=0.1)],
    ids=str,
)
def test_at_a_tenth_the_probability_of_the_target_goes_up(loss):
    """A weight that is not detached multiplies DFT's gradient by 1 + log q: below q = 1/e it turns round, and no value shows it."""
    z = torch.tensor([[[0.0, 9.0]]], dtype=torch.float64).log()
    z[..., 0], z[..., 1] = 0.0, torch.tensor(9.0).log()  # q(target) = 0.1
    z = z.clone().requires_grad_()
    logq = gathered(z, torch.zeros(1, 1, dtype=torch.long))
    assert logq.exp().item() == pytest.approx(0.1)
    value, _ = weighted_nll(logq, torch.tensor([[True]]), loss, loss.init(), num_tokens=1)
    value.backward()
    assert z.grad[0, 0, 0] < 0  # descent raises the logit of the target


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", SPECS)
def test_micro_batches_of_any_sizes_add_up_to_the_batch(spec, dtype):
    """4 = 1+1+1+1 = 3+1 with unequal lengths, over three optimizer steps so that thresholds move."""
    loss = parse(spec)
    torch.manual_seed(3)
    head = torch.randn(9, 6, dtype=dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    grads = {}
    for name, splits in {"whole": [8], "ones": [1] * 8, "uneven": [5, 1, 2]}.items():
        state = loss.init()
        torch.manual_seed(4)
        for _ in range(3):
            hidden = torch.randn(8, 5, 6, dtype=dtype)
            target = torch.randint(9, (8, 5))
            mask = torch.arange(5) < torch.randint(0, 6, (8, 1))
            w = head.clone().requires_grad_()
            for h, t, m in zip(hidden.split(splits), target.split(splits), mask.split(splits), strict=True):
                value, state = weighted_nll(gathered(h @ w.T, t), m, loss, state, num_tokens=int(mask.sum()))
                value.backward()
            state = loss.observe(loss.seen(state), state)
        grads[name] = w.grad
    for name in ("ones", "uneven"):
        assert (grads[name] - grads["whole"]).norm() <= tolerance * grads["whole"].norm()
    assert grads["whole"].norm() > 0
