"""From a method of `methods.toml` and a cell of a table to the run that fills it."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reproduce.runs import Run, Store
from reproduce.training import n_records

METHODS_FILE = Path(__file__).parent / "methods.toml"
DELTA = 1e-5
EPOCHS = 400
"""Of the paper's runs; marks that depend on epochs refer to these even in shorter runs."""
BATCH_SIZE = 1000
SEARCH_EPOCHS, SEARCH_SEED = 100, 0
LABELS = {15.0: 1.33, 5.0: 4.76}
"""What the paper prints for a noise multiplier, whatever the data set."""
SELECTION_LABELS = {15.0: 2.88, 5.0: 8.91}
"""What it prints there for the best of Poisson(20) such runs."""


@dataclass(frozen=True)
class Method:
    """One entry of `methods.toml`; without `datasets` it is for all of them, `epochs` go before the experiment's.

    Seeds below `first_seed` are left out, since they chose the parameters.
    """

    name: str
    title: str
    estimator: str
    parameters: Mapping[str, Any]
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_noise: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rates: Sequence[float] = ()
    first_rate: float | None = None
    rows: str = "unit"
    datasets: Sequence[str] = ()
    epochs: int | None = None
    first_seed: int = 0

    @property
    def ours(self) -> bool:
        """Whether it is one of the package's own rows."""
        return self.name.startswith("ours")

    @property
    def iterative(self) -> bool:
        """Whether it trains in epochs."""
        return not self.estimator.startswith("SSP")


@dataclass(frozen=True)
class Cell:
    """A method on a data set at a noise level, with changes of its own."""

    method: Method
    dataset: str
    noise_multiplier: float
    changes: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = EPOCHS

    @property
    def label(self) -> float | None:
        """The epsilon that the paper prints, None for a noise level it has no name for."""
        return LABELS.get(self.noise_multiplier)

    def run(self, seed: int, rate: float | None = None) -> Run:
        """The run of a seed, counted from the method's first; `rate` replaces a learning rate that is searched."""
        by_dataset = self.method.by_dataset.get(self.dataset, {})
        by_noise = self.method.by_noise.get(f"{self.noise_multiplier:g}", {})
        given: dict[str, Any] = {**self.method.parameters, **by_dataset, **by_noise, **self.changes}
        given["delta"] = DELTA
        if rate is not None:
            given["learning_rate"] = rate
        if self.method.iterative:
            given["epochs"] = self.epochs
        if "epsilon" not in given:
            given.setdefault("noise_multiplier", self.noise_multiplier)
        for name, value in given.items():
            if isinstance(value, str) and value.startswith("<"):
                given[name] = self._filled(value, given)
        return Run(self.dataset, self.method.estimator, given, self.method.first_seed + seed, self.method.rows)

    def _filled(self, mark: str, given: Mapping[str, Any]) -> float:
        if mark == "<label>":
            return LABELS[self.noise_multiplier]
        if mark == "<label, a fit per class>":
            return per_class_noise(LABELS[self.noise_multiplier])
        if mark == "<selection label, a fit per class>":
            return per_class_noise(SELECTION_LABELS[self.noise_multiplier])
        # Rounded, so that a digit at the end of a computed number does not make another run; epsilon is rounded down.
        if mark == "<exact>":
            return math.floor(1e4 * exact_epsilon(self.dataset, self.noise_multiplier)) / 1e4
        b = given.get("batch_size", BATCH_SIZE)
        if mark == "<equal noise>":
            return equal_noise(self.dataset, self.noise_multiplier, b)
        if mark == "<equal base>":
            return float(f"{equal_contraction(self.dataset, self.noise_multiplier, b) / given['learning_rate']:.5g}")
        raise ValueError(
            "mark must be <label>, <label, a fit per class>, <selection label, a fit per class>, <exact>, "
            f"<equal noise> or <equal base>; got {mark}. Correct the TOML file."
        )

    def search(self, store: Store) -> tuple[Run | None, float | None]:
        """The next run of the search for a learning rate, or None and the best rate (None where none is searched).

        From `first_rate`, or the middle of the grid, which are for clipping norm 1, uphill in test accuracy, one seed,
        few epochs, until both neighbours of the best are worse.
        """
        if not self.method.rates or "learning_rate" in self.changes:
            return None, None
        rates = sorted(self.method.rates)
        short = replace(self, epochs=min(self.epochs, SEARCH_EPOCHS))
        runs = [short.run(SEARCH_SEED, rate) for rate in rates]
        # Clipped gradients and noise are as long as the clipping norm.
        first = (self.method.first_rate or rates[len(rates) // 2]) / runs[0].parameters.get("clipping_norm", 1.0)
        start = min(range(len(rates)), key=lambda i: abs(math.log(rates[i] / first)))
        scores = {i: found["accuracy"] for i, run in enumerate(runs) if (found := store.result(run)) is not None}
        following = climb(len(rates), start, scores)
        if following is not None:
            return runs[following], None
        return None, rates[best_of(scores)]


def best_of(scores: Mapping[int, float]) -> int:
    """Index of the largest score, the first of several."""
    return max(sorted(scores), key=lambda i: scores[i])


def climb(size: int, start: int, scores: Mapping[int, float]) -> int | None:
    """Next index to try on the way uphill, None at the top: both neighbours of the best were tried."""
    if start not in scores:
        return start
    top = best_of(scores)
    return next((i for i in (top + 1, top - 1) if 0 <= i < size and i not in scores), None)


def per_class_noise(epsilon: float, delta: float = DELTA, classes: int = 10) -> float:
    """Noise multiplier of a release with the noise of one of several AdaSSP fits that share the budget by sums.

    Each fit makes three releases, with noise of sqrt(log(6 / delta)) / (epsilon / 3) times a sensitivity (Wang 2018). A
    release's noise is half the multiplier times its sensitivity, which is for replacing a record here.
    """
    return float(f"{2 * 3 * math.sqrt(math.log(6 * classes / delta)) * classes / epsilon:.6g}")


@functools.cache
def exact_epsilon(dataset: str, noise_multiplier: float) -> float:
    """Exact epsilon of the paper's DP-SGD run on that data set, under replace-one adjacency (THEORY section 4)."""
    from noisycgd.accounting import poisson_profile

    profile = poisson_profile(n_records(dataset), BATCH_SIZE, noise_multiplier, epochs=EPOCHS, delta=DELTA)
    return float(profile.epsilon(DELTA))


@functools.cache
def equal_noise(dataset: str, noise_multiplier: float, batch_size: int) -> float:
    """Noise multiplier with which DP-SGD has the same epsilon at another batch size, rounded up."""
    from noisycgd.accounting import calibrate_poisson
    from noisycgd.types import EpsilonDelta

    if batch_size == BATCH_SIZE:
        return noise_multiplier
    target = EpsilonDelta(exact_epsilon(dataset, noise_multiplier), DELTA)
    return math.ceil(1e4 * calibrate_poisson(n_records(dataset), batch_size, target, epochs=EPOCHS)) / 1e4


@functools.cache
def equal_contraction(dataset: str, noise_multiplier: float, batch_size: int = BATCH_SIZE) -> float:
    """The eta * l2 with which NoisyCGD's formula gives DP-SGD's epsilon: the paper's recipe for choosing l2."""
    from noisycgd.planning import equal_base_contraction

    noise = equal_noise(dataset, noise_multiplier, batch_size)
    return equal_base_contraction(n_records(dataset), batch_size, EPOCHS, noise, DELTA).contraction


@functools.cache
def methods(path: Path = METHODS_FILE) -> dict[str, Method]:
    """All methods by name.

    Raises
    ------
    ValueError
        If an entry holds something unknown, or is like one that does not stand above it.
    """
    with path.open("rb") as file:
        entries = tomllib.load(file)
    found: dict[str, Method] = {}
    for name, entry in entries.items():
        try:
            model = vars(found[entry.pop("like")]) if "like" in entry else {"parameters": {}}
            parameters = {**model["parameters"], **entry.get("parameters", {})}
            found[name] = Method(**{**model, **entry, "parameters": parameters, "name": name})
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{name} must hold known fields, and be like an entry above it; got {error}. Correct {path.name}."
            ) from None
    return found
