"""What may be tried: a grid or distributions of parameters, public and fixed before any record is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import ParameterGrid

from noisycgd._validation import ParameterTypeError, message, refuse

RATE_FRACTION = "learning_rate_fraction"
"""A learning rate as a share of the largest one whose steps contract, in (0, 1]."""

_BUDGET = ("epsilon", "delta", "mu", "noise_multiplier")
_FACTS = ("classes", "target_range", "allow_unproven", "verbose")
_EXAMPLE = 'As in {"n_hyperplanes": [32, 64], "learning_rate_fraction": [0.3, 1.0]}.'


class Candidates:
    """Checked candidates, as scikit-learn's searches take them.

    Parameters
    ----------
    candidates : dict or list of dict
        Parameter names to lists of values, or to distributions with a method `rvs(random_state=...)`. With lists alone
        it is a grid, of which each combination is equally likely. Otherwise one of the dicts is drawn, and each of its
        parameters on its own.
    estimator : estimator
        Whose parameters they are.

    Raises
    ------
    ParameterError, ParameterTypeError
        If the form is another, a list is empty, or a name is unknown or not for tuning.
    """

    def __init__(self, candidates: Any, estimator: BaseEstimator) -> None:
        parts = [candidates] if isinstance(candidates, Mapping) else candidates
        if (
            not isinstance(parts, Sequence)
            or isinstance(parts, str)
            or not all(isinstance(part, Mapping) for part in parts)
        ):
            raise ParameterTypeError(message("candidates", "a dict or a list of dicts", candidates, _EXAMPLE))
        if not parts:
            refuse("candidates", "at least one dict", candidates, _EXAMPLE)
        known = estimator.get_params(deep=False)
        for part in parts:
            for name, values in part.items():
                _check_name(name, known)
                _check_values(name, values)
            if RATE_FRACTION in part and "learning_rate" in part:
                refuse("learning_rate", f"left out beside {RATE_FRACTION}", part["learning_rate"])
        self._parts = [{name: _fixed(values) for name, values in part.items()} for part in parts]

    @property
    def is_grid(self) -> bool:
        """Whether all combinations can be listed."""
        return not any(hasattr(values, "rvs") for part in self._parts for values in part.values())

    def grid(self) -> Iterator[dict[str, Any]]:
        """All combinations of a grid; a combination listed twice counts twice."""
        return iter(ParameterGrid(self._parts))

    def draw(self, generator: np.random.Generator) -> dict[str, Any]:
        """One random candidate, independent of the records."""
        if self.is_grid:
            grid = ParameterGrid(self._parts)
            chosen: dict[str, Any] = grid[int(generator.integers(len(grid)))]
            return chosen
        part = self._parts[int(generator.integers(len(self._parts)))]
        return {name: _drawn(part[name], generator) for name in sorted(part)}

    def possible(self, name: str, default: Any) -> list[Any]:
        """Every listed value of a parameter, and its default where a dict leaves it out; a distribution has none."""
        found: list[Any] = []
        for part in self._parts:
            values = part.get(name, [default])
            found += [] if hasattr(values, "rvs") else list(values)
        return found


def drawn_seed(state: np.random.RandomState) -> int:
    """A seed from a generator."""
    return int(state.randint(2**32, dtype=np.uint64))


def _fixed(values: Any) -> Any:
    """A seed for each generator: trials that share one would tell how many there were before."""
    if hasattr(values, "rvs") or not any(isinstance(value, np.random.RandomState) for value in values):
        return values
    return [drawn_seed(value) if isinstance(value, np.random.RandomState) else value for value in values]


def _drawn(values: Any, generator: np.random.Generator) -> Any:
    value = (
        values.rvs(random_state=generator) if hasattr(values, "rvs") else values[int(generator.integers(len(values)))]
    )
    return value.item() if isinstance(value, np.generic) else value


def _check_name(name: Any, known: Mapping[str, Any]) -> None:
    if name in _BUDGET:
        way_out = "Every trial gets its noise from the selection's own epsilon and delta."
        refuse("candidates", "about parameters other than privacy's", name, way_out)
    if name in _FACTS:
        refuse("candidates", "about parameters that shape a model", name, "Set it on the estimator.")
    allowed = {*known, RATE_FRACTION} if "learning_rate" in known else {*known}
    if name not in allowed:
        names = ", ".join(sorted(allowed.difference(_BUDGET, _FACTS)))
        refuse("candidates", f"about parameters of the estimator ({names})", name)


def _check_values(name: str, values: Any) -> None:
    if hasattr(values, "rvs"):
        if name == "method":
            refuse("candidates for method", "a list", values, "The budget depends on which methods may be drawn.")
        return
    listed = isinstance(values, Sequence | np.ndarray | range) and not isinstance(values, str)
    if not listed:
        raise ParameterTypeError(message(f"candidates for {name}", "a list or a distribution", values, _EXAMPLE))
    if not len(values):
        refuse(f"candidates for {name}", "at least one value", values, _EXAMPLE)
