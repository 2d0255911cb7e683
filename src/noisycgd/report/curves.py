"""Comparisons as pictures: line styles tell the curves apart in black and white."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from noisycgd._drawing import default_style
from noisycgd._validation import check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from noisycgd.comparison import Comparison

FORMATS = ("png", "svg")

_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)), (0, (3, 1, 1, 1)))
_GREYS = ("0.0", "0.35", "0.15", "0.5")
_MARKERS = ("", "", "", "", "o", "s", "^", "D")


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw the curves of a comparison on one pair of axes, with a legend in the order of their last values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for i, curve in enumerate(comparison.curves):
        axes.plot(
            curve.x,
            curve.y,
            linestyle=_STYLES[i % len(_STYLES)],
            color=_GREYS[i % len(_GREYS)],
            marker=_MARKERS[i % len(_MARKERS)],
            markevery=max(1, len(curve.x) // 12),
            markersize=4,
            linewidth=1.6,
            label=f"{curve.name} ({curve.threat_model})",
        )
    axes.set_yscale("log" if comparison.log_y else "linear")
    if not comparison.log_y:
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set(xlabel=comparison.x_label, ylabel=comparison.y_label)
    axes.set_title(comparison.title, loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92")
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: -comparison.curves[i].y[-1])
    axes.legend([handles[i] for i in order], [labels[i] for i in order], frameon=False, fontsize="small")
    return figure


def comparison_image(comparison: Comparison, kind: str = "png") -> bytes:
    """The figure as PNG or SVG."""
    check_choice("format of a picture", kind, FORMATS)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    with default_style():
        figure = comparison_figure(comparison)
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()
