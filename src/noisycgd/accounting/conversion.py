"""From adding or removing a record to replacing one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd.accounting.adjacency import check_convertible
from noisycgd.accounting.gaussian import check_delta, flattened, log_delta, shaped, tradeoff_of_points
from noisycgd.accounting.profile import GaussianProfile, MixtureProfile
from noisycgd.types import Adjacency

if TYPE_CHECKING:
    from noisycgd.accounting.pld import PLDProfile

_POINTS = 2000


@dataclass(frozen=True, eq=False)
class ConvertedProfile:
    """Replace-one profile from any add-remove profile: delta'(epsilon) = (1 + e^(epsilon/2)) delta(epsilon/2).

    Replacing a record is one removal and one addition. Each of the two multiplies probabilities by at most
    e^(epsilon/2) and adds delta(epsilon/2); the second also multiplies the first one's delta, whence the factor
    1 + e^(epsilon/2). It holds for every mechanism, and is loose: where the mechanism is known (a Gaussian,
    Poisson-subsampled DP-SGD) ask for its replace-one profile itself.

    Parameters
    ----------
    base : GaussianProfile, MixtureProfile or PLDProfile
        Profile for adding or removing one record.

    Raises
    ------
    ParameterError
        If `base` is a replace-one profile. It cannot be turned into an add-remove one either: it takes the number of
        records as public, and says nothing about data sets of different sizes.
    """

    base: GaussianProfile | MixtureProfile | PLDProfile

    @property
    def adjacency(self) -> Adjacency:
        """Replace-one."""
        return Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        check_convertible(self.base.adjacency)

    def delta(self, epsilon: ArrayLike) -> Any:
        """delta'(epsilon) at each epsilon >= 0, at most 1."""
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        logs = np.logaddexp(0.0, 0.5 * flat) + self._log_base(0.5 * flat)
        return shaped(np.exp(np.minimum(logs + 2.0**-48 * (1.0 + flat), 0.0)), shape)

    def _log_base(self, epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(self.base, GaussianProfile):
            return log_delta(self.base.mu, epsilon)
        # A delta that no double can hold is at most the least one.
        return np.asarray(np.log(np.maximum(self.base.delta(epsilon), 5e-324)))

    def epsilon(self, delta: float) -> float:
        """An epsilon with `self.delta(epsilon) <= delta`, within 1e-9 (1 + epsilon) of a root; inf if none is found."""
        from scipy.optimize import brentq

        delta = check_delta(delta)
        if self.delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(high) > delta:
            high *= 2.0
            if high > 1e12:
                return math.inf
        root = float(brentq(lambda e: self.delta(e) - delta, 0.0, high, xtol=1e-13, rtol=1e-12))
        nudge = 1e-13 * (1.0 + root)
        while self.delta(root) > delta:
            root, nudge = min(root + nudge, high), 2.0 * nudge
        return root

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate at each `fpr` in [0, 1], from a finite number of epsilons, hence rounded down."""
        shape, flat = flattened("fpr", fpr, 0.0, 1.0)
        epsilons = np.linspace(0.0, min(self.epsilon(1e-9), 700.0), _POINTS)
        return shaped(tradeoff_of_points(epsilons, self.delta(epsilons), flat), shape)
