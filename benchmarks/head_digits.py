"""Rounding errors of the head's gradients in bfloat16, simulated without a GPU: torch rounds where each method rounds.

    python benchmarks/head_digits.py        seconds on a CPU

Prints the relative distance of dX and dW from float64's, for a weight of 1 (NLL) and for c-Div 1.4. The tolerance of the kernels' error
tests in bfloat16 is wider than these differences.
"""

import torch

N, V, D, FIRST = 1024, 8192, 256, 4096  # the first block of a row, whose largest logit is c
HALF = torch.bfloat16


def rounded(x):
    return x.to(HALF).float()


def distance(a, b):
    return ((a.double() - b).norm() / b.norm()).item()


def products(residual_NV, hidden_ND, head_VD, weight_N):
    """dX and dW where the weight goes on hidden states and dX, as in `Gradients.add`."""
    dx = rounded(rounded(residual_NV @ head_VD / N) * weight_N[:, None])
    return dx, rounded(residual_NV.T @ rounded(hidden_ND * weight_N[:, None]) / N)


def ways(z_NV, target_N, hidden_ND, head_VD, w_N):
    row_N = torch.arange(N)
    p_NV = z_NV.softmax(1)
    p_NV[row_N, target_N] -= 1
    whole_NV = rounded(p_NV * w_N[:, None] / N)
    yield "eager", (rounded(whole_NV @ head_VD), rounded(whole_NV.T @ hidden_ND))
    yield "two reads", products(rounded(p_NV), hidden_ND, head_VD, w_N)
    c_N = z_NV[:, :FIRST].amax(1).maximum(z_NV[row_N, target_N])
    e_NV = (z_NV - c_N[:, None]).exp()
    total_N = e_NV.sum(1)
    e_NV[row_N, target_N] -= total_N
    e_NV = rounded(e_NV)
    yield "one read, 1 / sum", products(e_NV, hidden_ND, head_VD, w_N / total_N)
    factor_N = p_NV[row_N, target_N] / e_NV[row_N, target_N]
    yield "one read, the target's entry exact", products(e_NV, hidden_ND, head_VD, w_N * factor_N)


def main():
    g = torch.Generator().manual_seed(0)
    print("| weight | way | dX | dW |\n|---|---|---|---|")
    for name, power in (("NLL", 0.0), ("c-Div 1.4", -0.4)):
        hidden_ND = rounded(torch.randn(N, D, generator=g))
        head_VD = rounded(2 * torch.randn(V, D, generator=g) / D**0.5)
        target_N = torch.randint(0, V, (N,), generator=g)
        exact_NV = hidden_ND.double() @ head_VD.double().T
        z_NV = rounded(hidden_ND @ head_VD.T)
        w64_N, w_N = ((power * z.log_softmax(1).gather(1, target_N[:, None])[:, 0]).exp() for z in (exact_NV, z_NV))
        r_NV = exact_NV.softmax(1)
        r_NV[torch.arange(N), target_N] -= 1
        r_NV *= w64_N[:, None] / N
        exact = r_NV @ head_VD.double(), r_NV.T @ hidden_ND.double()
        for way, got in ways(z_NV, target_N, hidden_ND, head_VD, w_N):
            dx, dw = (distance(a, b) for a, b in zip(got, exact, strict=True))
            print(f"| {name} | {way} | {dx:.5f} | {dw:.5f} |")


if __name__ == "__main__":
    main()
