"""What the finished runs of a cell say, in the numbers that tables and figures print."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduce.experiments import Experiment, Printed
from reproduce.methods import Cell
from reproduce.runs import Run, Store

LARGEST_EPSILON = 1000.0
"""Beyond it a number is no longer worth printing."""
_WORDS = {
    "n_hyperplanes": "{} hyperplanes",
    "batch_size": "batches of {}",
    "width": "{} units",
    "learning_rate": "learning rate {:.3g}",
}


@dataclass(frozen=True, eq=False)
class Summary:
    """A cell and its finished runs; accuracies in per cent.

    Attributes
    ----------
    cell : Cell
    title : str
        The method's, with what varies.
    results : list of dict
        Of the finished runs, seed by seed.
    wanted : int
        Number of seeds that the config asks for.
    run : Run or None
        The first seed's; None while the learning rate is still searched.
    printed : Printed or None
        The paper's number.
    """

    cell: Cell
    title: str
    results: list[dict[str, Any]]
    wanted: int
    run: Run | None
    printed: Printed | None

    @property
    def n(self) -> int:
        """Finished runs."""
        return len(self.results)

    @property
    def seeds(self) -> str:
        """Finished runs, and how many there will be if that differs."""
        return str(self.n) if self.n >= self.wanted else f"{self.n} of {self.wanted}"

    @property
    def label(self) -> float | None:
        """The epsilon that the paper prints, None for a noise level it has no name for."""
        return self.cell.label

    @property
    def epsilon(self) -> float | None:
        """Of the runs, None without any or if they promise nothing."""
        return None if not self.n or self.status == "void" else max(r["epsilon"] for r in self.results)

    @property
    def status(self) -> str:
        """What epsilon is worth; empty without runs."""
        return str(self.results[0]["status"]) if self.n else ""

    @property
    def noise_multiplier(self) -> float | None:
        """With which the runs were made; None without runs."""
        return self.results[0]["noise_multiplier"] if self.n else None

    @property
    def peak_rate(self) -> float | None:
        """Largest learning rate of the runs' plans; None without runs, and of methods without steps."""
        # The oldest lines do not have it.
        return next((r["peak_rate"] for r in self.results if r.get("peak_rate") is not None), None)

    @property
    def learning_rate(self) -> float | str | None:
        """Given or found by the search; "auto" if left to the software, None where there is none or not yet."""
        if self.run is None or not self.cell.method.iterative:
            return None
        rate: float | str = self.run.parameters.get("learning_rate", "auto")
        return rate

    @property
    def at_edge(self) -> bool:
        """Whether a search ended at an end of its grid, so that a better rate may lie beyond."""
        rates = self.cell.method.rates
        searched = bool(rates) and "learning_rate" not in self.cell.changes
        return searched and self.learning_rate in (min(rates), max(rates))

    def values(self, field: str = "accuracy") -> NDArray[np.float64]:
        """(n,) per cent; empty if the runs lack the field."""
        return np.array([100 * r[field] for r in self.results if field in r])

    @property
    def mean(self) -> float:
        """Mean accuracy; there must be a run."""
        return float(self.values().mean())

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.printed is None or not self.n else self.printed.difference(self.mean)


Groups = list[tuple[tuple[str, float], list[Summary]]]


def deviation(values: NDArray[np.float64]) -> float:
    """Standard deviation of a sample, NaN for fewer than two values."""
    return float(values.std(ddof=1)) if values.size > 1 else math.nan


def standard_error(values: NDArray[np.float64]) -> float:
    """Of the mean, NaN for fewer than two values."""
    return deviation(values) / math.sqrt(max(values.size, 1))


def summaries(experiment: Experiment, store: Store) -> list[Summary]:
    """All cells of an experiment, in the config's order."""
    return [summarised(experiment, cell, store) for cell in experiment.cells()]


def by_panel(found: Sequence[Summary]) -> Groups:
    """Cells by data set and noise level."""
    groups = itertools.groupby(found, key=lambda one: (one.cell.dataset, one.cell.noise_multiplier))
    return [(key, list(group)) for key, group in groups]


def summarised(experiment: Experiment, cell: Cell, store: Store) -> Summary:
    """One cell."""
    following, rate = cell.search(store)
    return Summary(
        cell=cell,
        title=", ".join([cell.method.title, *(in_words(*pair) for pair in varied(experiment, cell).items())]),
        results=experiment.results(cell, store),
        wanted=experiment.n_seeds(cell.dataset),
        run=cell.run(0, rate) if following is None else None,
        printed=experiment.printed(cell.method.name, cell.dataset, cell.noise_multiplier),
    )


def varied(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """What tells the cell from the others of its method."""
    return {name: cell.changes[name] for name in experiment.varied(cell.method, cell.dataset)}


def in_words(name: str, value: Any) -> str:
    """A parameter in a title."""
    return _WORDS.get(name, name.replace("_", " ") + " {}").format(value)


def privacy(summary: Summary, epsilon: float | None = None) -> str:
    """Epsilon rounded up, of a run unless it is given, and what it is worth."""
    if not summary.n:
        return "–"
    if summary.epsilon is None:
        return "not private"
    epsilon = summary.epsilon if epsilon is None else epsilon
    # Nothing to speak of was promised, so there is nothing to prove.
    return upward(epsilon) + f" {summary.status}" * (epsilon <= LARGEST_EPSILON)


def upward(epsilon: float, decimals: int = 4) -> str:
    """Epsilon rounded up, so that it stays a bound in print."""
    if epsilon > LARGEST_EPSILON:
        return f"> {LARGEST_EPSILON:g}"
    return str(Decimal(repr(float(epsilon))).quantize(Decimal(10) ** -decimals, ROUND_CEILING))


def spread(values: NDArray[np.float64], digits: int = 2) -> str:
    """Mean ± standard deviation; the mean alone of a single value."""
    mean = f"{values.mean():.{digits}f}"
    return mean if values.size < 2 else f"{mean} ± {deviation(values):.{digits}f}"


def printed(number: Printed | None) -> str:
    """What the paper prints, as it prints it."""
    if number is None:
        return "–"
    if number.spread is None:
        return f"{number.value:.1f}"
    # Some of its spreads have more digits than its means.
    return f"{number.value:.1f} ± {max(f'{number.spread:.1f}', f'{number.spread:g}', key=len)}"


def rate(summary: Summary) -> str:
    """Learning rate in a cell of a table."""
    found = summary.learning_rate
    if found is None:
        return "–"
    if isinstance(found, float):
        return f"{found:.3g}" + " (edge)" * summary.at_edge
    return found if summary.peak_rate is None else f"{found}, {summary.peak_rate:.3g}"
