"""A loss of your own: five lines, no registration. You can pass the object wherever you can pass a spec string.

Save the class in a file my_losses.py, and you can name it on the command line and in config files: --loss "my_losses:Unsure(power=3.0)".
"""

from dataclasses import dataclass

import torch

from widen.losses import Rows, TokenWeight, weighted_nll


@dataclass(frozen=True, kw_only=True)
class Unsure(TokenWeight):
    """NLL with the detached weight (1 - q)^power: less weight on what the model already knows.

    This is not focal loss, which also differentiates its factor (1 - q)^gamma; `widen.losses.Focal` has that gradient.
    """

    power: float = 2.0

    def weigh(self, rows):
        return (-torch.expm1(rows.logq)) ** self.power


torch.manual_seed(0)
logits = torch.randn(2, 6, 100, requires_grad=True)  # 2 sequences, 6 tokens, a vocabulary of 100
target = torch.randint(100, (2, 6))
mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])  # the second sequence has 4 target tokens and 2 of padding

logq = logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
loss, _ = weighted_nll(logq, mask, Unsure(), (), num_tokens=mask.sum())
loss.backward()

weights, _ = Unsure().apply(Rows(logq.detach()), mask, ())
print(f"loss {loss.item():.3f}, mean weight {weights[mask].mean():.3f}, largest {weights.max():.3f}")
assert (logits.grad[1, 4:] == 0).all()
