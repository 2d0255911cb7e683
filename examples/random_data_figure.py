"""The picture of `random_data.py`: three panels in black and white, with what the theorem assumes in words."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ASSUMED = (
    "The theorem assumes standard normal X, c = n/d ≥ 1 fixed and d large enough, P = O(n log n / d), no l2, gradients "
    "bounded by a constant L, and luck of probability 1 − γ − (2n)⁻⁸.\n"
    "Its Õ also takes the distance from the start to a solution for a constant. With L constant and labels of size one "
    "that distance grows as √n, and the bound does not fall with n."
)
PANELS = (
    (
        "1  Fewest hyperplanes that fit any labels",
        ("records n", "hyperplanes P"),
        "Median and range over draws. P d ≥ n is necessary, and so is\n"
        "an open gate for each record: about log₂ n iid gates for any c.\n"
        "Antithetic pairs (u, −u), the package's default, need no log.",
    ),
    (
        "2  Condition number, in units of (√c + 1)²",
        ("columns d", "κ / (√c + 1)²"),
        "Median and range over draws; κ = λmax(XX') / λmin(Σ). The\n"
        "bound wants d large: the more records per column, the later it\n"
        "holds, and then by a factor of up to 3.5.",
    ),
    (
        "3  Training loss of private gradient descent",
        ("√n ε", "mean loss above the best in the ball"),
        "c = 2, P = 2c log n, iid gates, labels ±1 by fair coins, L = 1,\n"
        "δ = 1e-5; steps and step size are those of the proof. The ball\n"
        "of radius 3√n holds a solution, that of radius 1 does not.\n"
        "Open marks: no private expected loss lies below the bars.",
    ),
)
# Told apart by dashes, marks and fills, so that a photocopy still reads.
LINE: dict[str, Any] = {"color": "black", "linewidth": 0.9, "markersize": 5.5}
DOTS: dict[str, Any] = {"color": "0.45", "linestyle": ":", "linewidth": 1.3, "zorder": 1}
DASHES: dict[str, Any] = {"color": "0.45", "linestyle": (0, (5, 2)), "linewidth": 1.2, "zorder": 1}
THIN: dict[str, Any] = {"color": "0.75", "linewidth": 1.0, "zorder": 0}
BARS: dict[str, Any] = {"color": "0.75", "linestyle": "none", "marker": "_", "markersize": 13, "markeredgewidth": 3}
MARKS = "os^D"


def figure_png(planes: Sequence[Any], conditioning: Sequence[Any], runs: Sequence[Any]) -> bytes:
    """PNG of 1890 x 952 pixels from the rows of the three experiments, in matplotlib's default style."""
    with style.context("default"):
        made = Figure(figsize=(13.5, 6.8), facecolor="white")
        panels = made.subplots(1, 3)
        made.subplots_adjust(left=0.045, right=0.99, bottom=0.25, top=0.81, wspace=0.19)
        made.text(0.012, 0.955, "The utility theorem on random data, step by step", fontsize=14, fontweight="bold")
        made.text(0.012, 0.932, ASSUMED, fontsize=9.5, color="0.25", linespacing=1.4, va="top")
        for ax, (title, (x, y), note) in zip(panels, PANELS, strict=True):
            ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
            ax.set_title(title, loc="left", fontsize=11)
            ax.text(0.0, -0.17, note, transform=ax.transAxes, fontsize=9, color="0.25", linespacing=1.4, va="top")
            ax.spines[["top", "right"]].set_visible(False)
        _draw_planes(panels[0], planes)
        _draw_conditioning(panels[1], conditioning)
        _draw_losses(panels[2], runs)
        stream = io.BytesIO()
        # Without this entry the file would name the version of matplotlib.
        made.savefig(stream, format="png", dpi=140, metadata={"Software": None})
    return stream.getvalue()


def _draw_planes(ax: Axes, planes: Sequence[Any]) -> None:
    for c, mark in zip(_values(planes, "c"), MARKS, strict=False):
        for gates, face in (("iid", "black"), ("antithetic", "white")):
            rows = [row for row in planes if (row.c, row.gates) == (c, gates)]
            _ranges(ax, rows, "n", "P", 1.0, marker=mark, markerfacecolor=face, label=f"{gates}, c = {c}")
        ax.plot([row.n for row in rows], [row.lemma for row in rows], label="2κ log(n/γ), the lemma" * (c == 1), **DOTS)
        ax.text(rows[-1].n, 1.06 * rows[-1].lemma, f"c = {c}", fontsize=8.5, ha="right", va="bottom")
    records = _values(planes, "n")
    half = [math.log2(n / math.log(2)) for n in records]
    ax.plot(records, half, label="half of the draws leave every\nrecord an open gate", **DASHES)
    ax.set_xticks(records, [str(n) for n in records])
    ax.set_xticks([], minor=True)
    ax.set_ylim(1.5, 4000)
    ax.legend(frameon=False, fontsize=8.5, ncols=2, loc="center", bbox_to_anchor=(0.5, 0.47), columnspacing=1.0)


def _draw_conditioning(ax: Axes, conditioning: Sequence[Any]) -> None:
    for c, mark in zip(_values(conditioning, "c"), MARKS, strict=False):
        rows = [row for row in conditioning if row.c == c]
        _ranges(ax, rows, "d", "kappa", (math.sqrt(c) + 1) ** 2, marker=mark, label=f"c = {c}")
    ax.axhline(10 * math.sqrt(2), label="bound of the lemma, 10√2", **DOTS)
    ax.axhline(4, label="limit for large d, 4", **DASHES)
    widths = _values(conditioning, "d")
    ax.set_xticks(widths, [str(d) for d in widths])
    ax.set_xticks([], minor=True)
    ax.set_ylim(1, 400)
    ax.legend(frameon=False, fontsize=8.5)


def _draw_losses(ax: Axes, runs: Sequence[Any]) -> None:
    records = _values(runs, "n")
    for n, mark in zip(records, MARKS, strict=False):
        first = n == records[0]
        for radius, face in (("interpolating", "white"), ("constant", "black")):
            rows = [row for row in runs if (row.n, row.radius) == (n, radius)]
            x = math.sqrt(n) * np.array([row.epsilon for row in rows])
            label = f"n = {n}" * (face == "black")
            ax.plot(x, [row.excess for row in rows], marker=mark, markerfacecolor=face, label=label, **LINE)
            ax.plot(x, [row.zero for row in rows], label="predicting zero" * (first and face == "black"), **DOTS)
        ax.plot(x, [row.floor for row in rows], label="floor of privacy" * first, **BARS)
        if first:
            ax.text(x[0], 1.09 * rows[0].zero, "ball of radius 1", fontsize=8.5)
    ax.text(x[-1], 0.55, "ball of radius 3√n", fontsize=8.5, ha="right")
    proof = [row.proof for row in rows]
    ax.plot(x, proof, label="proof, radius 1", **DASHES)
    ax.plot(x, x[0] * proof[0] / x, label="slope of 1 / (√n ε)", **THIN)
    ax.set_ylim(2e-3, 2.0)
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: not labels[i].startswith("n ="))
    ax.legend(
        [handles[i] for i in order], [labels[i] for i in order], frameon=False, fontsize=8.5, ncols=2, loc="lower left"
    )


def _values(rows: Sequence[Any], name: str) -> list[Any]:
    return sorted({getattr(row, name) for row in rows})


def _ranges(ax: Axes, rows: Sequence[Any], x: str, y: str, unit: float, **look: Any) -> None:
    """Medians with their ranges, moved sideways a little so that the ranges of several c stay apart."""
    side = 1.05 ** (math.log2(rows[0].c) - 1)
    at, mid, low, high = (np.array([getattr(row, name) for row in rows]) for name in (x, y, "low", "high"))
    ax.errorbar(side * at, mid / unit, [(mid - low) / unit, (high - mid) / unit], **LINE, **look)
