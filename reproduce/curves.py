"""Accuracy along training, averaged over seeds: against epsilon, or against epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reproduce.experiments import Experiment
from reproduce.privacy import epsilon_at
from reproduce.summary import LARGEST_EPSILON, Summary, standard_error, upward
from reproduce.tables import epsilons_explained, identity, markdown, number, panels

BAR = 1.96
"""Half an error bar in standard errors, as in the paper."""
SHOWN = (10, 50, 100, 200, 300, 400)
"""Epochs of the printed table; the CSV has all."""


class Point(NamedTuple):
    """Mean accuracy in per cent after an epoch, half its error bar (NaN from a single seed), and epsilon until then.

    Epsilon is infinite throughout for a run that ends beyond `LARGEST_EPSILON`.
    """

    epoch: int
    accuracy: float
    bar: float
    epsilon: float


def curve(one: Summary) -> list[Point]:
    """Points that all finished runs of a cell have; empty without runs or for methods without epochs."""
    runs = [dict(map(tuple, result["curve"])) for result in one.results]
    if not runs or one.run is None or one.noise_multiplier is None:
        return []
    # Where the whole run has no epsilon to speak of, neither has a part of it.
    private = one.epsilon is not None and one.epsilon <= LARGEST_EPSILON
    points = []
    for epoch in sorted(set.intersection(*(set(run) for run in runs))):
        values = np.array([100 * run[epoch] for run in runs])
        bar = BAR * standard_error(values)
        until = math.inf if not private else epsilon_at(one.run, one.noise_multiplier, epoch, one.peak_rate)
        points.append(Point(epoch, float(values.mean()), bar, until))
    return points


def curve_tables(found: Sequence[Summary]) -> str:
    """One table per data set and noise level: accuracy and epsilon at some epochs."""
    parts = [
        f"Mean test accuracy over seeds in per cent, ± {BAR:g} standard errors of the mean; in brackets the epsilon "
        "of a run that had stopped there: each is a release of its own, which was not made.",
        epsilons_explained(found),
    ]
    for heading, group in panels(found):
        parts += [heading, _table(group)]
    return "\n\n".join(parts)


def _table(found: Sequence[Summary]) -> str:
    curves = [{point.epoch: point for point in curve(one)} for one in found]
    known = sorted(set().union(*curves))
    epochs = [e for e in known if e in SHOWN or e == known[-1]]
    rows = []
    for one, points in zip(found, curves, strict=True):
        cells = [_shown(points[e]) if e in points else "–" for e in epochs] or ["not run"]
        rows.append([one.title, one.seeds, one.status or "–", *(cells if one.n else ["not run"] * len(cells))])
    return markdown(["method", "seeds", "status", *([f"epoch {e}" for e in epochs] or ["accuracy"])], rows)


def _shown(point: Point) -> str:
    bar = "" if math.isnan(point.bar) else f" ± {point.bar:.2f}"
    return f"{point.accuracy:.2f}{bar} ({upward(point.epsilon, 2)})"


def curve_rows(experiment: Experiment, found: Sequence[Summary]) -> list[dict[str, Any]]:
    """Long format: one row per cell and epoch; epsilon is the one until that epoch."""
    rows = []
    for one in found:
        for point in curve(one):
            rows.append(
                {
                    **identity(experiment, one),
                    "n_seeds": one.n,
                    "n_seeds_wanted": one.wanted,
                    "epoch": point.epoch,
                    "accuracy": number(point.accuracy),
                    "error_bar": number(point.bar),
                    "epsilon": point.epsilon,
                }
            )
    return rows
