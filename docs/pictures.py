"""Draws every picture under docs/img from the package itself: `python docs/pictures.py`. The same input gives the same bytes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

import widen_recipes
from widen import losses
from widen.theory import ArtificialCase

IMG = Path(__file__).parent / "img"
RESULTS = Path(widen_recipes.__file__).parent / "results"
# Okabe and Ito's colours, told apart by every common kind of colour vision; lines also differ in their dashes.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
DASHES = ["-", "--", "-.", ":"]
GREY = "#808080"
STYLE = {
    "svg.hashsalt": "widen",  # ids in the file come from a salted hash: fixed, so that files do not change by themselves
    "svg.fonttype": "none",  # letters stay letters: a few kilobytes instead of fifty
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,  # mid grey reads on the light page and on the dark one
    "xtick.color": GREY,
    "ytick.color": GREY,
    "text.color": GREY,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "xtick.minor.bottom": False,  # eight decades of minor ticks are two thirds of the file
    "ytick.minor.left": False,
    "path.simplify_threshold": 0.3,
}
Q = np.logspace(-8, 0, 161)


def weights(spec: str, *, position: int = 1, length: int = 512) -> np.ndarray:
    """The weight of a token of probability q, for every q of the axis."""
    logq = torch.from_numpy(np.log(Q))
    here = {"position": torch.full(logq.shape, position), "length": torch.full(logq.shape, length)}
    return losses.parse(spec).weigh(losses.Rows(logq, **here)).numpy()


def legend(ax: Axes) -> None:
    """Above the axes, where no line runs."""
    ax.figure.legend(loc="outside upper left", ncols=2)


def label(ax: Axes, x: str, y: str = "weight", *, log: bool = True) -> None:
    """Name the axes, draw the line of NLL at 1, and put the legend above."""
    if log:
        ax.set_xscale("log")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.axhline(1, color=GREY, linewidth=0.7)
    legend(ax)


def token_picture(ax: Axes, specs: list[str]) -> None:
    """Weight against q, one line a spec string."""
    for spec, colour, dash in zip(specs, COLOURS, DASHES, strict=False):
        ax.plot(Q, weights(spec), color=colour, linestyle=dash, label=spec)
    label(ax, "q, the probability of the target token")


def nll(ax: Axes) -> None:
    """NLL: one line at 1."""
    token_picture(ax, ["nll"])
    ax.set_ylim(0, 2)


def gold(ax: Axes) -> None:
    """GOLD beside DFT, and GOLD with a floor."""
    token_picture(ax, ["gold", "dft", "gold:floor=0.05"])


def cdiv(ax: Axes) -> None:
    """c-Div on both sides of NLL, and the cap."""
    token_picture(ax, ["cdiv:alpha=1.4,cap=inf", "cdiv:alpha=1.2,cap=inf", "cdiv:alpha=0.8", "cdiv:alpha=1.4"])
    ax.set_yscale("log")


def tailr(ax: Axes) -> None:
    """TaiLr for three gammas, and the floor of the authors' code."""
    token_picture(ax, ["tailr:gamma=1e-5", "tailr:gamma=1e-3", "tailr:gamma=0.1", "tailr:gamma=1e-3,floor=0.2"])


def focal(ax: Axes) -> None:
    """Focal loss for three exponents."""
    token_picture(ax, ["focal:gamma=0.5", "focal:gamma=2", "focal:gamma=5"])


def pull(spec: str, *, vocab: int = 1000) -> np.ndarray:
    """The gradient of the target's logit over that of NLL, if the other tokens share the rest evenly."""
    loss, q = losses.parse(spec), Q[:-1]
    tau, smooth, entropy = loss.residual.tau, loss.residual.smooth, loss.residual.entropy
    rest = (1 - q) / (vocab - 1)
    h = -q * np.log(q) - (1 - q) * np.log(rest)
    tempered = 1 / (1 + (vocab - 1) * (rest / q) ** (1 / tau))
    residual = tempered - (1 - smooth) - smooth / vocab + entropy * q * (np.log(q) + h)
    return weights(spec)[:-1] * residual / (q - 1)


def pull_picture(ax: Axes, specs: list[str]) -> None:
    """Pull on the target's logit, relative to NLL: the weight of a loss that also changes the residual."""
    for spec, colour, dash in zip(specs, COLOURS, DASHES, strict=False):
        ax.plot(Q[:-1], pull(spec), color=colour, linestyle=dash, label=spec)
    label(ax, "q, the probability of the target token (999 others share the rest)", "pull, relative to NLL")


def gem(ax: Axes) -> None:
    """GEM pulls less once the target is likely."""
    pull_picture(ax, ["gem:beta=0.9", "gem:beta=0.7", "gem:beta=0.5"])


def tofu(ax: Axes) -> None:
    """TOFU beside its two parts."""
    pull_picture(ax, ["tofu:gamma=3,beta=0.8", "gem:beta=0.8", "focal:gamma=3"])


def smooth(ax: Axes) -> None:
    """Label smoothing turns around at q = 1 - eps."""
    pull_picture(ax, ["smooth:eps=0.05", "smooth:eps=0.1", "smooth:eps=0.2"])
    ax.set_ylim(-1, 1.2)


def entropy(ax: Axes) -> None:
    """The entropy bonus pulls likely targets down."""
    pull_picture(ax, ["entropy:bonus=0.01", "entropy:bonus=0.1", "entropy:bonus=0.3"])


def eaft(ax: Axes) -> None:
    """EAFT: weight against the entropy of the context."""
    h = np.linspace(0, 6, 121)
    for spec, colour, dash in zip(["eaft", "eaft:power=0.5", "eaft:power=2"], COLOURS, DASHES, strict=False):
        found = losses.parse(spec).weigh(losses.Rows(entropy=torch.from_numpy(h)))
        ax.plot(h, found.numpy(), color=colour, linestyle=dash, label=spec)
    label(ax, "entropy of the next-token distribution, in nats", log=False)


def reference_picture(ax: Axes, spec: str) -> None:
    """Weight against q, one line for each probability that the reference gives the target."""
    logq = torch.from_numpy(np.log(Q))
    for r, colour, dash in zip((0.5, 0.1, 0.01), COLOURS, DASHES, strict=False):
        rows = losses.Rows(logq, extra={"ref_logq": torch.full_like(logq, np.log(r))})
        ax.plot(Q, losses.parse(spec).weigh(rows).numpy(), color=colour, linestyle=dash, label=f"{spec}, r = {r:g}")
    label(ax, "q, the probability of the target token")


def asft(ax: Axes) -> None:
    """ASFT at the authors' kl."""
    reference_picture(ax, "asft:kl=0.1")


def anchor(ax: Axes) -> None:
    """The anchor."""
    reference_picture(ax, "anchor:kl=0.1")


def dco(ax: Axes) -> None:
    """DCO: weight against the probability of the whole answer."""
    for spec, colour, dash in zip(["dco:n=4", "dco:n=16", "dco:n=256"], COLOURS, DASHES, strict=False):
        found = losses.parse(spec).factor(torch.from_numpy(np.log(Q)))
        ax.plot(Q, found.numpy(), color=colour, linestyle=dash, label=spec)
    label(ax, "probability of the whole answer")


def lambda_pr(ax: Axes) -> None:
    """lambda-PR at the first token of a sequence of 512."""
    token_picture(ax, ["lambda_pr:lam=0.1,gamma=1e-5", "lambda_pr:lam=0.9,gamma=1e-5", "lambda_pr:lam=0.1,gamma=1e-3"])
    ax.set_xlabel("q, the probability of the target token (the first of 512)")


def sequence_picture(ax: Axes, side: str, drops: list[float]) -> None:
    """Weight of whole sequences, ordered from the least to the most likely."""
    scores = torch.linspace(-200.0, -20.0, 401)
    rank = np.linspace(0, 100, 401)
    for drop, colour, dash in zip(drops, COLOURS, DASHES, strict=False):
        kept = losses.keep(scores, drop=drop, side=side).double().numpy()
        ax.plot(rank, kept, color=colour, linestyle=dash, drawstyle="steps-mid", label=f"drop={drop}")
    ax.set_xlabel("sequences, from the least likely (0 %) to the most likely (100 %)")
    ax.set_ylabel("weight")
    legend(ax)


def trunc(ax: Axes) -> None:
    """Trunc keeps the right part."""
    sequence_picture(ax, "high", [0.1, 0.25])


def truncr(ax: Axes) -> None:
    """TruncR keeps the left part."""
    sequence_picture(ax, "low", [0.1, 0.25])


def temperature(ax: Axes) -> None:
    """Precision and recall of the artificial case against temperature."""
    case = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15)
    t = np.linspace(0.1, 4, 200)
    ax.plot(t, [case.precision(10.0, s) for s in t], color=COLOURS[0], linestyle=DASHES[0], label="precision (λ = 10)")
    ax.plot(t, [case.recall(0.7, s) for s in t], color=COLOURS[1], linestyle=DASHES[1], label="recall (λ = 0.7)")
    ax.axvline(1, color=GREY, linewidth=0.7)
    ax.set_xlabel("temperature")
    ax.set_ylim(0, 1.05)
    legend(ax)


def joint(ax: Axes) -> None:
    """Recall at a required precision on the integer task: NLL hot, NLL truncated and heated, c-Div truncated and heated."""
    lines = (RESULTS / "mulmod_joint_best.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    levels = [0.9, 0.95, 0.98]
    chosen = [
        ("NLL, norm 1", "temperature alone", "NLL, temperature alone"),
        ("c-Div 2, norm 1", "temperature alone", "c-Div 2, temperature alone"),
        ("NLL, norm 1", "any decoding", "NLL, best decoding"),
        ("c-Div 2, norm 1", "any decoding", "c-Div 2, best decoding"),
    ]
    for at, (name, family, label) in enumerate(chosen):
        mine = {float(row["level"]): row for row in rows if (row["name"], row["family"]) == (name, family)}
        x = np.arange(len(levels)) + (at - 1.5) * 0.2
        height = [float(mine[level]["recall"]) for level in levels]
        spread = [float(mine[level]["recall_half_width"]) for level in levels]
        ax.bar(x, height, 0.18, yerr=spread, color=COLOURS[at], ecolor=GREY, label=label)
    ax.set_xticks(range(len(levels)), [f"at least {level:.0%} right" for level in levels])
    ax.set_ylim(0.5, 0.78)
    ax.set_ylabel("recall")
    ax.legend(ncols=2, fontsize=8, loc="upper right")


PICTURES: dict[str, Callable[[Axes], None]] = {
    "weight_nll": nll,
    "weight_trunc": trunc,
    "weight_truncr": truncr,
    "weight_gold": gold,
    "weight_cdiv": cdiv,
    "weight_tailr": tailr,
    "weight_lambda_pr": lambda_pr,
    "weight_focal": focal,
    "weight_gem": gem,
    "weight_tofu": tofu,
    "weight_smooth": smooth,
    "weight_entropy": entropy,
    "weight_eaft": eaft,
    "weight_dco": dco,
    "weight_asft": asft,
    "weight_anchor": anchor,
    "temperature": temperature,
    "joint": joint,
}


def main() -> None:
    """Draw everything."""
    IMG.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        with plt.rc_context(STYLE):
            figure, ax = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
            draw(ax)
            figure.savefig(IMG / f"{name}.svg", transparent=True, metadata={"Date": None, "Creator": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
