"""Two real processes: the head inside DDP and inside FSDP2 gives the gradient that one process gets on the whole batch.

Run by test_head_ranks.py, one process a rank: ``python ranks.py RANK FILE`` (FILE is where the ranks meet).
"""

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from widen.data.rows import Rows
from widen.head import linear_logprob, weighted_linear_nll

V, D, N = 37, 16, 48


class Square:
    token_local = True

    def weigh(self, rows):
        return (-0.4 * rows.logq).exp()


class Head(nn.Module):
    """Calls the fused head in its own forward, where FSDP2 has gathered the parameters."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.fused = nn.Parameter(torch.randn(V, D) / 4), nn.Parameter(torch.zeros(V)), fused

    def forward(self, hidden_ND, target_N, num_tokens):
        kw = {"bias": self.bias, "impl": "chunked", "workspace": 8 * 4 * V * 2}
        if self.fused:
            one_N = torch.ones_like(target_N)
            return weighted_linear_nll(
                hidden_ND,
                self.weight,
                target_N,
                Square(),
                position_N=one_N,
                length_N=one_N,
                num_tokens=num_tokens,
                **kw,
            ).loss
        logq_N = linear_logprob(hidden_ND, self.weight, target_N, **kw)
        return -(Square().weigh(Rows(logq_N.detach())) * logq_N).sum() / num_tokens


class Model(nn.Module):
    """Embedding, a layer, the head; ``tied`` shares the head with the embedding."""

    def __init__(self, fused: bool, tied: bool) -> None:
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(V, D), nn.Linear(D, D), Head(fused)
        if tied:
            self.embed.weight = self.head.weight

    def forward(self, token_N, target_N, num_tokens):
        return self.head(self.body(self.embed(token_N)).tanh(), target_N, num_tokens)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    full = {}
    for name, p in model.named_parameters():
        g = p.grad
        full[name.removeprefix("module.")] = g.full_tensor() if hasattr(g, "full_tensor") else g
    return full


def main(rank: int, meeting: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    for wrap in ("ddp", "fsdp2"):
        for fused in (True, False):
            for tied in (False, True) if wrap == "ddp" else (False,):
                torch.manual_seed(0)
                model = Model(fused, tied)
                alone = copy.deepcopy(model)
                token_N, target_N = torch.randint(0, V, (N,)), torch.randint(0, V, (N,))
                target_N[5:20] = -100  # unequal counts: a mean per rank would be wrong
                n = int((target_N != -100).sum())
                if wrap == "ddp":
                    model = DistributedDataParallel(model)
                else:
                    fully_shard(model.head)
                    fully_shard(model)
                mine = slice(rank * N // 2, (rank + 1) * N // 2)
                # Both average over ranks, hence the world size; FSDP2 reduces as DDP does.
                (model(token_N[mine], target_N[mine], n) * 2).backward()
                alone(token_N, target_N, n).backward()
                expected = gradients(alone)
                for name, g in gradients(model).items():
                    torch.testing.assert_close(
                        g, expected[name], msg=lambda m, at=(wrap, fused, tied, name): f"{at}: {m}"
                    )
    dist.barrier()
    dist.destroy_process_group()
    print("agreed", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(int(sys.argv[1]), sys.argv[2])
