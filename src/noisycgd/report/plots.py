"""The picture of a guarantee: its privacy profile and what it leaves to the best membership test."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from noisycgd._drawing import default_style
from noisycgd._validation import delta_in_print, rounded_up
from noisycgd.accounting import GaussianProfile, MixtureProfile, composition_mu
from noisycgd.guarantee import THREATS, Guarantee
from noisycgd.types import Adjacency, Order, PrivacyProfile, Status, ThreatModel
from noisycgd.verification import profile_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_STATUS = {
    Status.PROVED: "Every condition of the theorem was enforced.",
    Status.CONDITIONAL: "Holds only if the stated assumptions are true.",
    Status.UNPROVEN: "A number for comparison, not a guarantee.",
    Status.VOID: "No privacy at all: the noise was predictable.",
}
_ADJACENCY = {Adjacency.REPLACE_ONE: "replacing one", Adjacency.ADD_REMOVE: "adding or removing one"}

# Told apart by dashes and width alone, so that a photocopy still reads.
_RELEASED: dict[str, Any] = {"color": "black", "linestyle": "-", "linewidth": 1.8}
_PUBLISHED: dict[str, Any] = {"color": "0.35", "linestyle": (0, (5, 2)), "linewidth": 1.3}
_NOTHING: dict[str, Any] = {"color": "0.55", "linestyle": (0, (1, 2)), "linewidth": 1.3}
_STATED: dict[str, Any] = {
    "color": "black",
    "linestyle": "none",
    "marker": "o",
    "markersize": 6,
    "markerfacecolor": "white",
}
_RULE: dict[str, Any] = {"color": "0.8", "linewidth": 0.8, "zorder": 0}

_COMPONENTS = 400
"""Mixtures are drawn with at most this many components, which keeps the picture under a second."""
_SMALLEST_DELTA = 1e-306
_WIDEST = 4.0
"""Width of the left panel in units of the epsilon at which the better curve ends."""
_EXAMPLE_RATE = 0.01


def guarantee_figure(guarantee: Guarantee) -> Figure:
    """Draw a guarantee in two panels, without pyplot and in matplotlib's default style, whatever the user's is.

    Left: the smallest delta at each epsilon of the released model, the stated (epsilon, delta), and the curve that
    would hold if every step were published (composition, mu = 2 sqrt(E) / nm; THEORY section 2). Right: the least
    false-negative rate of a membership test at each false-positive rate, with the line of a test that knows nothing.
    The title gives the status in words, the adjacency and the threat model.

    Parameters
    ----------
    guarantee : Guarantee
        Its profile is drawn; of very many positions, groups take their largest mu. A void guarantee is
        drawn as no privacy, whatever its numbers are.

    Returns
    -------
    matplotlib.figure.Figure
        9 x 4.6 inches, with an Agg canvas; shows nothing by itself.

    Raises
    ------
    ParameterError
        If the mus or weights make no profile.
    """
    with default_style():
        return _drawn(guarantee)


def guarantee_png(guarantee: Guarantee) -> bytes:
    """`guarantee_figure` as a PNG of 1350 x 690 pixels; the same guarantee gives the same bytes."""
    stream = io.BytesIO()
    with default_style():
        # Without this entry the file would name the version of matplotlib.
        guarantee_figure(guarantee).savefig(stream, format="png", dpi=150, metadata={"Software": None})
    return stream.getvalue()


def _drawn(guarantee: Guarantee) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.6), facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
    figure.subplots_adjust(left=0.085, right=0.985, bottom=0.21, top=0.79, wspace=0.2)
    released = _released_profile(guarantee)
    published = _published_profile(guarantee)
    _draw_profile(left, guarantee, released, published)
    _draw_tradeoff(right, released, published)
    for axes in (left, right):
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        if guarantee.status is not Status.PROVED:
            axes.text(
                0.5, 0.5, guarantee.status.upper(), transform=axes.transAxes, ha="center", va="center", rotation=20,
                fontsize=24, fontweight="bold", color="0.88", zorder=0,
            )  # fmt: skip
    lines = {str(line.get_label()): line for axes in (left, right) for line in axes.lines}
    shown = [line for label, line in lines.items() if not label.startswith("_")]
    figure.legend(handles=shown, loc="lower center", ncols=4, frameon=False, fontsize=9, handlelength=2.6)
    figure.text(0.02, 0.955, _headline(guarantee), fontsize=12, fontweight="bold", va="center")
    figure.text(0.02, 0.875, _facts(guarantee), fontsize=9, color="0.25", va="center", linespacing=1.4)
    return figure


def _headline(guarantee: Guarantee) -> str:
    if guarantee.status is Status.VOID:
        return "No differential privacy — VOID"
    stated = f"(ε = {rounded_up(guarantee.epsilon)}, δ = {delta_in_print(guarantee.delta)})"
    return f"{stated}-differential privacy — {guarantee.status.upper()}"


def _facts(guarantee: Guarantee) -> str:
    threat = THREATS[guarantee.threat_model]
    return (
        f"{_STATUS[guarantee.status]} Neighbouring data differ by {_ADJACENCY[guarantee.adjacency]} of "
        f"{guarantee.n_records:,} records.\n"
        f"{threat[0].upper()}{threat[1:]}. Accounting: {guarantee.accounting}."
    )


def _released_profile(guarantee: Guarantee) -> PrivacyProfile | None:
    """Profile of the released model, None if nothing is promised."""
    if guarantee.status is Status.VOID or (guarantee.mu is not None and not math.isfinite(guarantee.mu)):
        return None
    if guarantee.order is not Order.PERMUTED or guarantee.selection is not None or not guarantee.position_mus:
        return profile_of(guarantee)
    mus, weights = np.array(guarantee.position_mus), np.array(guarantee.position_weights)
    if mus.size > _COMPONENTS:
        # Even bins of mu and not of positions: the few worst positions decide where delta is small.
        bins = np.floor((mus - mus.min()) / max(np.ptp(mus), np.finfo(float).tiny) * (_COMPONENTS - 1)).astype(int)
        tops, totals = np.zeros(_COMPONENTS), np.bincount(bins, weights, _COMPONENTS)
        np.maximum.at(tops, bins, mus)
        mus, weights = tops, totals
    return MixtureProfile(tuple(mus), tuple(weights))


def _published_profile(guarantee: Guarantee) -> PrivacyProfile | None:
    """Profile if every step were published, None where that is no comparison."""
    hidden = guarantee.threat_model is ThreatModel.FINAL_MODEL and guarantee.status is not Status.VOID
    # The steps of the best trial alone are no comparison to a selection.
    if not hidden or guarantee.noise_multiplier <= 0 or guarantee.selection is not None:
        return None
    mu = composition_mu(guarantee.epochs, guarantee.noise_multiplier)
    return GaussianProfile(mu) if math.isfinite(mu) else None


def _draw_profile(
    axes: Axes, guarantee: Guarantee, released: PrivacyProfile | None, published: PrivacyProfile | None
) -> None:
    delta = guarantee.delta
    start = 1.0 if released is None else float(released.delta(0.0))
    bottom = max(1e-3 * min(delta, start or delta), _SMALLEST_DELTA)
    ends = [profile.epsilon(bottom) for profile in (released, published) if profile is not None]
    ends = [end for end in (*ends, 1.05 * guarantee.epsilon) if 0 < end < math.inf]
    # The comparison may be worse by orders of magnitude; then it leaves the picture and the promise stays readable.
    right = min(max(ends), _WIDEST * min(ends)) if ends else 1.0
    epsilons = np.linspace(0.0, right, 400)
    values = np.ones_like(epsilons) if released is None else _positive(released.delta(epsilons))
    axes.axhline(delta, **_RULE)
    axes.plot(epsilons, values, label="released model", **_RELEASED)
    if published is not None:
        label = f"if every step were published (ε = {rounded_up(published.epsilon(delta), 4)})"
        axes.plot(epsilons, _positive(published.delta(epsilons)), label=label, **_PUBLISHED)
    if released is not None:
        axes.plot([guarantee.epsilon], [delta], label="stated (ε, δ)", clip_on=False, zorder=5, **_STATED)
    axes.set_yscale("log")
    axes.set_ylim(bottom, 2.0)
    axes.set_xlim(0.0, right)
    axes.locator_params(axis="x", nbins=6)
    axes.ticklabel_format(axis="x", scilimits=(-3, 5))
    axes.set_xlabel("ε (nats)", fontsize=10)
    axes.set_ylabel("smallest δ (probability)", fontsize=10)


def _draw_tradeoff(axes: Axes, released: PrivacyProfile | None, published: PrivacyProfile | None) -> None:
    # Even in normal quantiles, since that is where a Gaussian trade-off curve is straight.
    rates = np.concatenate([[0.0], ndtr(np.linspace(-7.0, 7.0, 281)), [1.0]])
    missed = np.where(rates == 0.0, 1.0, 0.0) if released is None else released.tradeoff(rates)
    axes.plot(rates, missed, clip_on=False, **_RELEASED)
    if published is not None:
        axes.plot(rates, published.tradeoff(rates), clip_on=False, **_PUBLISHED)
    # On top, so that a curve close to it does not hide it.
    axes.plot([0.0, 1.0], [1.0, 0.0], label="a test that knows nothing", zorder=4, **_NOTHING)
    power = 1.0 if released is None else 1.0 - float(released.tradeoff(_EXAMPLE_RATE))
    axes.text(
        1.0, 0.99,
        f"At {_EXAMPLE_RATE:.0%} false positives,\nthe best test finds a\nmember with probability\n"
        f"at most {math.ceil(1000.0 * power) / 1000.0:.3f}.",
        ha="right", va="top", fontsize=9, color="0.25", linespacing=1.4,
    )  # fmt: skip
    axes.set_aspect("equal")
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("false-positive rate of a membership test", fontsize=10)
    axes.set_ylabel("least false-negative rate", fontsize=10)


def _positive(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Zeros, which a logarithmic axis cannot show, become gaps."""
    return np.where(values > 0, values, np.nan)
