"""What the head refuses, and its messages: each case would otherwise give a wrong number."""

import pytest
import torch
from head_oracle import Power, Problem

from widen import losses
from widen.head import linear_logprob

IMPLS = ["eager", "chunked"]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("wrong", [7, -1])
def test_a_target_outside_the_vocabulary_is_an_error(impl, wrong):
    problem = Problem.make((12, 7, 3), torch.float64, ignored=0.0)
    problem.target[4] = wrong
    for call in (lambda: problem.weighted(Power(), impl=impl), lambda: problem.logprob(impl=impl)):
        with pytest.raises(
            ValueError, match=rf"1 value\(s\) outside the vocabulary, the first {wrong}; legal: 0 <= target < 7"
        ):
            call()


def test_a_loss_over_sequences_is_refused_and_the_way_shown():
    problem = Problem.make((4, 7, 3), torch.float32)
    with pytest.raises(ValueError, match=r"trunc.*is not token-local.*linear_logprob"):
        problem.weighted(losses.parse("trunc:drop=0.2,window=64"))


@pytest.mark.parametrize("answer", [lambda q: q[:-1], lambda q: q.long(), lambda q: 1.0])
def test_a_weight_that_is_not_one_number_a_token_is_refused(answer):
    class Odd:
        token_local = True

        def weigh(self, rows):
            return answer(rows.logq)

    with pytest.raises(ValueError, match="must return one real number per token"):
        Problem.make((4, 7, 3), torch.float32).weighted(Odd())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"softcap": 0.0}, "softcap=0.0 is not positive"),
        ({"accumulate": torch.bfloat16}, "accumulate=torch.bfloat16; legal: None, torch.float32"),
        ({"workspace": 3}, "workspace=3 bytes holds no row of logits; legal: at least 56"),
        ({"num_tokens": -1.0}, "num_tokens=-1 with 4 targets"),
    ],
    ids=lambda x: x if isinstance(x, str) else next(iter(x)),
)
def test_options_out_of_range_are_refused(option, message):
    problem = Problem.make((4, 7, 3), torch.float32, ignored=0.0)
    with pytest.raises(ValueError, match=message):
        problem.weighted(Power(), **option)


def test_an_unknown_implementation_is_refused_with_the_list():
    from widen.head.head_config import choose_impl

    choose = getattr(
        choose_impl, "__wrapped__", choose_impl
    )  # past the type checker of the test run, as a user's call would go
    with pytest.raises(ValueError, match="impl='fast' is unknown; legal: auto, eager, chunked, triton"):
        choose("fast", torch.device("cpu"), torch.float32)


def test_mixed_dtypes_are_refused_outside_autocast():
    with pytest.raises(ValueError, match="must share one dtype outside autocast, got bfloat16, float32"):
        linear_logprob(torch.randn(2, 3), torch.randn(5, 3).bfloat16(), torch.tensor([0, 1]))


def test_triton_on_a_cpu_is_refused_not_replaced():
    with pytest.raises(ValueError, match=r"impl='triton' needs"):
        linear_logprob(torch.randn(2, 3), torch.randn(5, 3), torch.tensor([0, 1]), impl="triton")


def test_a_second_backward_through_one_loss_is_refused():
    problem = Problem.make((8, 7, 3), torch.float32)
    loss = problem.weighted(Power(), impl="chunked").loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"hands its gradient over once.*linear_logprob"):
        loss.backward()


def test_a_dtensor_is_refused_with_the_way_out():
    class Sharded(torch.Tensor):
        device_mesh = "a mesh"

    head = torch.randn(5, 3).as_subclass(Sharded)
    with pytest.raises(ValueError, match="head_VD is a DTensor; call the head inside the forward"):
        linear_logprob(torch.randn(2, 3), head, torch.tensor([0, 1]))
