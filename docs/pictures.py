"""Draws every picture under docs/img from the package and its tables: `python docs/pictures.py [NAME ...]`.

The same input gives the same bytes.
This file has the weights of the losses, ``picture_ideas.py`` one picture per idea, ``picture_results.py`` those of results, and
``picture_style.py`` the style.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from picture_ideas import AXES_PICTURES, FIGURE_PICTURES
from picture_results import RESULT_PICTURES
from picture_style import COLOURS, DASHES, GREY, STYLE, legend, save

from widen import losses

IMG = Path(__file__).parent / "img"
Q = np.logspace(-8, 0, 161)


def weights(spec: str, *, position: int = 1, length: int = 512) -> np.ndarray:
    """The weight of a token of probability q, for every q of the axis."""
    logq = torch.from_numpy(np.log(Q))
    here = {"position": torch.full(logq.shape, position), "length": torch.full(logq.shape, length)}
    return losses.parse(spec).weigh(losses.Rows(logq, **here)).numpy()


def label(ax: Axes, x: str, y: str = "weight", *, log: bool = True) -> None:
    """Name the axes, draw the line of NLL at 1, and put the legend above."""
    if log:
        ax.set_xscale("log")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.axhline(1, color=GREY, linewidth=0.7)
    legend(ax)


def token_picture(ax: Axes, specs: list[str], *, unnamed: str = "") -> None:
    """Weight against q, one line a spec string. ``unnamed`` is the part that the legend leaves out, where it has no room."""
    for spec, colour, dash in zip(specs, COLOURS, DASHES, strict=False):
        ax.plot(Q, weights(spec), color=colour, linestyle=dash, label=spec.removeprefix(unnamed))
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
    specs = [f"lambda_pr:lam={lam},gamma={gamma}" for lam, gamma in (("0.1", "1e-5"), ("0.9", "1e-5"), ("0.1", "1e-3"))]
    token_picture(ax, specs, unnamed="lambda_pr:")
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
    **AXES_PICTURES,
    **RESULT_PICTURES,
}


NAMES = sorted([*PICTURES, *FIGURE_PICTURES])


def draw(name: str, folder: Path) -> Path:
    """Draw one picture into ``folder``."""
    folder.mkdir(exist_ok=True, parents=True)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(7.2, 3.9), layout="constrained")
        if name in PICTURES:
            PICTURES[name](figure.subplots())
        else:
            FIGURE_PICTURES[name](figure)
        save(figure, folder / f"{name}.svg")
        plt.close(figure)
    return folder / f"{name}.svg"


if __name__ == "__main__":
    for picture in sys.argv[1:] or NAMES:
        draw(picture, IMG)
