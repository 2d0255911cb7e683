"""Make one cell again and ask whether the committed runs could have been its siblings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from reproduce.experiments import Experiment
from reproduce.methods import Cell
from reproduce.runs import Store
from reproduce.summary import deviation

LEVEL = 0.99


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
        If there are fewer than two values: nothing then tells how much runs differ.
    """
    n = len(values)
    if n < 2:
        raise ValueError(f"committed runs of the cell must be at least 2; got {n}. Run more seeds first.")
    mean, sd = float(np.mean(values)), deviation(np.asarray(values))
    half = float(t.ppf((1 + level) / 2, n - 1)) * sd * math.sqrt(1 + 1 / n)
    return Interval(mean - half, mean + half)


def committed(experiment: Experiment, cell: Cell, store: Store) -> list[float]:
    """Accuracies of a cell's finished runs."""
    return [result["accuracy"] for result in experiment.results(cell, store)]


def repeat(cell: Cell, store: Store, verbose: bool = False) -> dict[str, Any]:
    """Make the cell's run of seed 0 again, at the learning rate of its search; the result is not kept.

    Noise is never seeded, so it is a new draw of the same experiment.
    """
    from reproduce.training import make

    following, rate = cell.search(store)
    if following is not None:
        raise ValueError("the cell's learning rate must have been searched; got an unfinished search. Run it first.")
    return make(cell.run(0, rate), verbose)
