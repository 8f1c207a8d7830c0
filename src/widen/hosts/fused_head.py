"""The loss inside the model's own forward, where whatever wraps the model has its weights ready.

The fused head needs the weight of ``lm_head``. Outside the forward it may not be there: FSDP2 and ZeRO-3 hold shards and gather them in
hooks of the module's call, autocast acts inside the forward that accelerate wrapped, and DDP prepares only gradients that come out of its
forward. So ``forward`` of the causal LM takes one more argument, a `Request`, and so does ``forward`` of its head: the head's *module* is
called inside the *model's* call, after both sets of hooks. Without that argument both do what they did.

Shapes: B rows, C columns, D hidden, V vocabulary, N = B C places.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widen.data.targets import Sequences, read_sequences
from widen.head import HeadLoss, HostCopy
from widen.losses import NLL
from widen.train.objective import Objective

_KEYWORD = "widen_request"
_NOT_FOR_THE_BACKBONE = ("labels", "shift_labels", "num_items_in_batch", "logits_to_keep", "skip_logits")


class Reply(NamedTuple):
    """What the model returns when it is asked for a loss. The loss comes first, as the trainers read ``outputs[0]``."""

    loss: Float[Tensor, ""]
    aux_loss: Tensor | None = None
    """The balancing loss of a mixture of experts, not multiplied by its coefficient, where the router's logits are asked for."""


class Request:
    """What the head is asked to compute; it fills in ``seen``.

    ``seen`` is no output of the model, because FSDP2's mixed precision casts outputs to bfloat16. This is no dataclass, because FSDP2
    copies the dataclasses among a module's inputs, and what is written into a copy is lost.

    Args:
      objective: the loss and its state.
      sequences: the targets of the micro-batch.
      num_targets: targets of the whole optimizer step.
    """

    def __init__(self, objective: Objective, sequences: Sequences, num_targets: float | Tensor) -> None:
        self.objective, self.sequences = objective, sequences
        # Requested before the layers run and read after them, so that nothing waits.
        self._told = HostCopy(num_targets) if isinstance(num_targets, Tensor) else num_targets
        self.softcap: float | None = None
        self.scale = 1.0
        self.seen: HeadLoss | None = None

    @property
    def num_targets(self) -> float:
        """Targets of the whole step, as a number on the host."""
        return float(self._told.read() if isinstance(self._told, HostCopy) else self._told)

    @property
    def divided_by(self) -> float:
        """What the sum of the loss is divided by: the targets of the step, times the scale of the weights."""
        return self.num_targets * self.objective.divisor

    def answer(self, hidden_BCD: Tensor, head_VD: Tensor, bias_V: Tensor | None) -> Reply:
        """The weighted loss of every target of the micro-batch."""
        if hasattr(head_VD, "placements"):
            raise ValueError(
                f"lm_head.weight is still sharded ({type(head_VD).__name__}) inside the head's own forward: tensor parallelism is not "
                "supported with `loss`; use FSDP2 or DDP"
            )
        hidden_ND = hidden_BCD.flatten(0, 1).to(head_VD.device)
        if len(hidden_ND) != len(self.sequences.target_N):
            raise ValueError(
                f"the model returned {len(hidden_ND)} hidden states for {len(self.sequences.target_N)} labels; adapters that add "
                "virtual tokens (prompt and prefix tuning) are not supported with `loss`"
            )
        if self.scale != 1.0:
            hidden_ND = hidden_ND * self.scale  # a scale on the logits is a scale on what makes them
        out = self.objective.through_head(
            hidden_ND, head_VD, self.sequences, num_tokens=self.divided_by, bias=bias_V, softcap=self.softcap
        )
        self.seen = out._replace(loss=out.loss.detach())
        return Reply(out.loss)


def causal_lm(model: nn.Module) -> Any:
    """The causal LM inside PEFT's wrapper, or the model itself."""
    return cast(Any, model).get_base_model() if hasattr(model, "get_base_model") else model


def add_fused_head(model: nn.Module) -> None:
    """Teach ``model`` (a Hugging Face causal LM, maybe inside PEFT) to answer a `Request`; twice is once."""
    net = causal_lm(model)
    net._widen_logit_shape = _logit_shape(net.config)  # read here, since reading a config at each step is slow
    if hasattr(net, "_widen_forward"):
        return
    net._widen_forward = net.forward  # on the instance, so that a copy of the model copies it too

    @functools.wraps(type(net).forward)  # the Trainer reads the signature to choose the dataset's columns
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        request: Request | None = kwargs.pop(_KEYWORD, None)
        if request is None:
            return self._widen_forward(*args, **kwargs)
        for key in _NOT_FOR_THE_BACKBONE:
            kwargs.pop(key, None)
        body = self.base_model(*args, **kwargs | {"use_cache": False})
        tail: Any = _by_the_head
        if torch.compiler.is_compiling():  # the layers are compiled, the loss runs as it always does
            tail = torch.compiler.disable(tail)
        reply = tail(self, body.last_hidden_state, request)
        if kwargs.get("output_router_logits"):
            reply = reply._replace(aux_loss=_balancing_loss(self, body.router_logits, kwargs.get("attention_mask")))
        return reply

    net.forward = types.MethodType(forward, net)


def _balancing_loss(net: Any, router_logits: Any, attention_mask: Tensor | None) -> Tensor:
    """The balancing loss of a mixture of experts, by the function of the model's own module."""
    compute = getattr(sys.modules[type(net).__module__], "load_balancing_loss_func", None)
    if compute is None:
        raise ValueError(
            f"{type(net).__name__} computes its balancing loss inside its forward, which `loss` replaces; set router_aux_loss_coef to 0"
        )
    found: Tensor = compute(router_logits, net.num_experts, net.num_experts_per_tok, attention_mask)
    return found


def _by_the_head(net: Any, hidden_BCD: Tensor, request: Request) -> Any:
    """Call the head's module, so that its own hooks run."""
    head = net.get_output_embeddings()
    _teach(head)
    request.softcap, request.scale = net._widen_logit_shape
    return head(hidden_BCD, **{_KEYWORD: request})


def ask(model: Any, inputs: dict[str, Any], request: Request) -> Reply:
    """Run ``model``, however wrapped, and take its answer; refused if its forward was replaced since."""
    answer = model(**inputs, **{_KEYWORD: request})
    if not isinstance(answer, Reply) or request.seen is None:
        raise RuntimeError(
            f"{type(model).__name__} did not compute the loss it was asked for: something replaced its forward after the trainer was "
            "made (a fused cross entropy, another patch); it would have trained on its own loss"
        )
    return answer


def target_logq(model: Any, inputs: dict[str, Any], labels: Tensor) -> Float[Tensor, "B C"]:
    """Log-probability of the token after each place by the fused head; 0 where no target follows."""
    request = Request(Objective(NLL()), read_sequences({"labels": labels}), 1.0)
    ask(model, inputs, request)
    assert request.seen is not None
    return request.seen.logq_N.view_as(labels)


def _teach(head: nn.Module) -> None:
    """Let the head answer too. Done at each call, as PEFT and FSDP2 exchange modules after the trainer was made."""
    copies = getattr(head, "modules_to_save", None)  # PEFT keeps a trained copy beside the frozen one
    linear = cast(Any, copies[cast(Any, head).active_adapter] if isinstance(copies, nn.ModuleDict) else head)
    if hasattr(linear, "_widen_forward"):
        return
    linear._widen_forward = linear.forward

    @functools.wraps(nn.Linear.forward)
    def forward(self: Any, hidden: Tensor, **kwargs: Any) -> Any:
        request: Request | None = kwargs.pop(_KEYWORD, None)
        return self._widen_forward(hidden) if request is None else request.answer(hidden, self.weight, self.bias)

    linear.forward = types.MethodType(forward, linear)


def _logit_shape(config: Any) -> tuple[float | None, float]:
    """Soft cap and scale that the architecture puts on its logits, by the names that architectures have for them."""
    text = config.get_text_config()
    names = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
    cap = next((float(found) for name in names if (found := getattr(text, name, None))), None)
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        if getattr(text, name, None) is not None:
            return cap, float(getattr(text, name))
    divisor = getattr(text, "logits_scaling", None)
    scale = 1.0 if divisor is None else float(divisor) if text.model_type == "hyperclovax" else 1 / float(divisor)
    return cap, scale
