"""Make one cell again and ask whether the committed runs could have been its siblings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from reproduce.experiments import Experiment
from reproduce.methods import Cell
from reproduce.runs import Store
from reproduce.summary import deviation, varied

LEVEL = 0.99
LEAST = 3
"""Runs that an interval needs: from two it is 156 standard deviations wide and holds whatever comes."""


class Interval(NamedTuple):
    """Where a further run is expected to lie."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, float) and self.low <= value <= self.high


def prediction_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Interval that holds one more value of the same normal law with probability `level` (Student's t).

    Raises
    ------
    ValueError
        If there are fewer than three values: too little then tells how much runs differ.
    """
    n = len(values)
    if n < LEAST:
        raise ValueError(f"committed runs of the cell must be at least {LEAST}; got {n}. Run more seeds first.")
    mean, sd = float(np.mean(values)), deviation(np.asarray(values))
    half = float(t.ppf((1 + level) / 2, n - 1)) * sd * math.sqrt(1 + 1 / n)
    return Interval(mean - half, mean + half)


def find_cell(
    experiment: Experiment, method: str, dataset: str, noise_multiplier: float, where: Sequence[str] = ()
) -> Cell:
    """The one cell of an experiment that is meant; `where` holds NAME=VALUE of what varies within a method.

    Raises
    ------
    ValueError
        If there is none, or several.
    """
    wanted = (method, dataset, noise_multiplier)
    cells = [c for c in experiment.cells() if (c.method.name, c.dataset, c.noise_multiplier) == wanted]
    if not cells:
        raise ValueError(
            f"method, dataset and noise multiplier must be a cell of {experiment.name}; got {wanted}. See `show`."
        )
    named = [
        ([f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in varied(experiment, c).items()], c)
        for c in cells
    ]
    found = [c for names, c in named if set(where) <= set(names)]
    if len(found) != 1:
        known = "; ".join(" ".join(f"--where {name}" for name in names) for names, _ in named)
        raise ValueError(f"where must leave one cell; got {len(found)}. Give one of: {known or 'nothing'}.")
    return found[0]


def committed(experiment: Experiment, cell: Cell, store: Store) -> list[float]:
    """Accuracies of a cell's finished runs."""
    return [result["accuracy"] for result in experiment.results(cell, store)]


def repeat(cell: Cell, store: Store, verbose: bool = False) -> dict[str, Any]:
    """Make the cell's run of the first seed that has none, at the learning rate of its search; it is not kept.

    A seed that was run shares its hyperplanes with a committed run, so it would come closer than a further run does.
    """
    from reproduce.training import make

    following, rate = cell.search(store)
    if following is not None:
        raise ValueError("the cell's learning rate must have been searched; got an unfinished search. Run it first.")
    further = (cell.run(seed, rate) for seed in itertools.count())
    return make(next(run for run in further if store.result(run) is None), verbose)
