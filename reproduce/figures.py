"""Pictures, without pyplot: line styles and markers tell the curves apart; colour only helps to find our own."""

from __future__ import annotations

import contextlib
import io
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from noisycgd.data.datasets import DATASETS
from reproduce.classes import per_class
from reproduce.curves import BAR, Point, curve
from reproduce.methods import DELTA
from reproduce.summary import LARGEST_EPSILON, Groups, Summary, by_panel, standard_error
from reproduce.tables import in_print, panel_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE = "#1a5fb4"
_OURS: tuple[dict[str, Any], ...] = (
    {"linestyle": "-", "marker": "v", "color": _BLUE, "markerfacecolor": "white"},
    {"linestyle": "--", "marker": "P", "color": _BLUE},
    {"linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "X", "color": _BLUE, "markerfacecolor": "white"},
)
_OTHERS: tuple[dict[str, Any], ...] = (
    {"linestyle": "-", "marker": "o", "color": "0.0"},
    {"linestyle": "--", "marker": "s", "color": "0.0", "markerfacecolor": "white"},
    {"linestyle": "-.", "marker": "^", "color": "0.35"},
    {"linestyle": ":", "marker": "D", "color": "0.35", "markerfacecolor": "white"},
    {"linestyle": (0, (8, 3)), "marker": "*", "color": "0.4"},
    {"linestyle": (0, (1, 1, 5, 1)), "marker": "<", "color": "0.5", "markerfacecolor": "white"},
)
_BARS = f"Bars: {BAR:g} standard errors; a single seed has none."
_MARKS = 8
"""Markers and error bars on a curve, about."""


def line_styles(found: Sequence[Summary], by_method: bool = False) -> dict[str, dict[str, Any]]:
    """Title of each curve -> its style, from the package's own or from the others' in turn."""
    unused = {True: itertools.cycle(_OURS), False: itertools.cycle(_OTHERS)}
    styles: dict[str, dict[str, Any]] = {}
    for one in found:
        title = title_of(one, by_method)
        if title not in styles:
            styles[title] = {"markersize": 5.5, "linewidth": 1.4, **next(unused[one.cell.method.ours])}
    return styles


def title_of(one: Summary, by_method: bool) -> str:
    """What a cell's curve is called: a method's cells may be curves of their own, or points of one."""
    return one.cell.method.title if by_method else one.title


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """The default style of matplotlib defaults, whatever the user's is, and ids in an SVG that do not change."""
    from matplotlib import style

    with style.context(["default", {"svg.hashsalt": "noisycgd", "font.family": "DejaVu Sans"}]):
        yield


def image(figure: Figure, kind: str) -> bytes:
    """PNG or SVG; the same figure gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    stream = io.BytesIO()
    with plain():
        FigureCanvasAgg(figure)
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        figure.savefig(stream, format=kind, dpi=150, metadata=metadata)
    return stream.getvalue()


def grouped(found: Sequence[Summary]) -> Groups:
    """Cells of a panel: by data set and noise level, those without any run left out."""
    return [(key, group) for key, group in by_panel(found) if any(one.n for one in group)]


def axes_of(groups: Groups, height: float = 4.6) -> tuple[Figure, list[Axes]]:
    """Axes side by side, one per group, under a heading that names the data and delta; room for a legend below."""
    from matplotlib.figure import Figure

    names = {dataset for (dataset, _), _ in groups}
    heading = f"delta = {in_print(DELTA)}"
    if len(names) == 1:
        heading = f"{DATASETS[next(iter(names))].title}, {heading}"
    figure = Figure(figsize=(5.2 * max(len(groups), 1.4), height), layout="constrained", facecolor="white")
    drawn = figure.subplots(1, len(groups), squeeze=False)[0].tolist()
    for axes, ((dataset, noise), _) in zip(drawn, groups, strict=True):
        title = panel_title(noise) if len(names) == 1 else f"{DATASETS[dataset].title}, {panel_title(noise)}"
        axes.set_title(title, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9)
    figure.suptitle(heading, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure, drawn


def legend(figure: Figure, drawn: Sequence[Axes], labels: Sequence[str], note: str) -> None:
    """All curves once, below the panels, and above them the note; in two columns where they fit."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    handles = dict(pair for axes in drawn for pair in zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    shown = [label for label in dict.fromkeys(labels) if label in handles]
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for columns in range(min(len(drawn), 2), 0, -1):
        made = figure.legend(
            [handles[label] for label in shown],
            shown,
            loc="outside lower left",
            ncols=columns,
            frameon=False,
            fontsize=9,
            handlelength=3.6,
            title=textwrap.fill(note, int(16 * figure.get_figwidth())),
            title_fontsize=8.5,
            alignment="left",
        )
        if columns == 1 or made.get_window_extent(renderer).width <= figure.bbox.width:
            return
        made.remove()


def labelled(groups: Groups, by_method: bool = False) -> dict[str, str]:
    """Title of each curve -> what the legend says: its numbers of seeds, and the status unless it is proved."""
    cells: dict[str, list[Summary]] = {}
    for _, group in groups:
        for one in group:
            if one.n:
                cells.setdefault(title_of(one, by_method), []).append(one)
    labels = {}
    for title, ones in cells.items():
        seeds = " and ".join(dict.fromkeys(one.seeds for one in ones))
        private = [one for one in ones if one.epsilon is None or one.epsilon <= LARGEST_EPSILON]
        words = dict.fromkeys(one.status.replace("void", "not private") for one in private if one.status != "proved")
        labels[title] = f"{title} ({', '.join([f'{seeds} seed' + 's' * (seeds != '1'), *words])})"
    return labels


def curves_figure(found: Sequence[Summary], note: str = "", against: str = "epsilon") -> Figure | None:
    """Accuracy along training against epsilon or the epoch, a panel per data set and noise level; None without runs."""
    groups = grouped(found)
    if not groups:
        return None
    labels, styles = labelled(groups), line_styles(found)
    with plain():
        figure, drawn = axes_of(groups)
        for axes, (_, group) in zip(drawn, groups, strict=True):
            curves = [curve(one) for one in group]
            for i, (one, points) in enumerate(zip(group, curves, strict=True)):
                if points:
                    _draw_curve(axes, points, against, (i, len(group)), label=labels[one.title], **styles[one.title])
            axes.set_xlabel("epsilon (nats, replace-one)" if against == "epsilon" else "epochs", fontsize=9)
            axes.set_xlim(left=0)
            _focus(axes, curves)
        drawn[0].set_ylabel("test accuracy (%)", fontsize=9)
        points_are = "Each point is a release of its own that was not made: a run that stopped there."
        notes = [note, points_are * (against == "epsilon"), _BARS, "The steep start is left out."]
        legend(figure, drawn, list(labels.values()), " ".join(filter(None, notes)))
    return figure


def _draw_curve(axes: Axes, points: Sequence[Point], against: str, place: tuple[int, int], **style: Any) -> None:
    x = [point.epsilon if against == "epsilon" else point.epoch for point in points]
    every = max(1, len(points) // _MARKS)
    # Each curve has its markers elsewhere, so that they do not hide one another.
    marked = ((len(points) - 1 - place[0] * every // place[1]) % every, every)
    axes.errorbar(
        x, [p.accuracy for p in points], yerr=[p.bar for p in points], errorevery=marked, markevery=marked,
        capsize=2.5, elinewidth=1.1, **style,
    )  # fmt: skip


def _focus(axes: Axes, curves: Sequence[Sequence[Point]]) -> None:
    """Leave out the steep start below, where it would squeeze all that differs into a line."""
    late = [p for points in curves for p in points if 5 * p.epoch >= points[-1].epoch]
    if late:
        ends = [p.accuracy + sign * np.nan_to_num(p.bar) for p in late for sign in (-1, 1)]
        low, high = float(min(ends)), float(max(ends))
        margin = 0.08 * max(high - low, 1.0)
        axes.set_ylim(max(low - margin, 0.0), min(high + margin, 100.0))


def parameter_figure(found: Sequence[Summary], name: str, note: str = "") -> Figure | None:
    """Accuracy of the finished runs against a parameter, one curve per method; None without runs."""
    groups = grouped(found)
    if not groups:
        return None
    labels, styles = labelled(groups, by_method=True), line_styles(found, by_method=True)
    with plain():
        figure, drawn = axes_of(groups)
        for axes, (_, group) in zip(drawn, groups, strict=True):
            for title, label in labels.items():
                ones = [one for one in group if title_of(one, by_method=True) == title and one.n]
                if ones:
                    axes.errorbar(
                        [one.cell.changes[name] for one in ones], [one.mean for one in ones],
                        yerr=[BAR * standard_error(one.values()) for one in ones], label=label, capsize=2.5,
                        elinewidth=1.1, **styles[title],
                    )  # fmt: skip
            values = sorted({one.cell.changes[name] for one in group})
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.minorticks_off()
            axes.set_xlabel(name.replace("_", " "), fontsize=9)
        drawn[0].set_ylabel("test accuracy (%)", fontsize=9)
        legend(figure, drawn, list(labels.values()), f"{note} {_BARS}".strip())
    return figure


def classes_figure(found: Sequence[Summary], note: str = "") -> Figure | None:
    """Mean accuracy of each class, one marker per method; None without runs."""
    groups = grouped(found)
    if not groups:
        return None
    labels, styles = labelled(groups), line_styles(found)
    titles = list(labels)
    n_classes = max(len(DATASETS[dataset].classes) for (dataset, _), _ in groups)
    with plain():
        figure, drawn = axes_of(groups, height=1.6 + 0.065 * n_classes * (len(titles) + 2))
        for axes, ((dataset, _), group) in zip(drawn, groups, strict=True):
            names = DATASETS[dataset].class_names
            for one in group:
                if not one.n:
                    continue
                i = titles.index(one.title)
                # Methods stand one above another within the band of a class.
                heights = [c + 0.75 * ((i + 0.5) / len(titles) - 0.5) for c in range(len(names))]
                marker = styles[one.title] | {"linestyle": "none"}
                axes.plot(per_class(one), heights, label=labels[one.title], **marker)
            for c in range(1, len(names)):
                axes.axhline(c - 0.5, color="0.8", linewidth=0.8)
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.grid(False, axis="y")
            axes.set_xlabel("test accuracy of the class (%)", fontsize=9)
        drawn[0].set_ylabel("class", fontsize=9)
        legend(figure, drawn, list(labels.values()), note)
    return figure
