"""Steps of noisy gradient descent: how far each may go, what it contracts, and what a run of them costs."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import UnprovenGuaranteeError, message, rounded_down, rounded_up
from noisycgd.accounting import constant_multipliers, multipliers

# `learning_rate="auto"` peaks at this share of the largest step that contracts by 1 - eta l2 (THEORY section 1).
AUTO_PEAK = 0.97


def multipliers_of(
    rates: NDArray[np.float64],
    contractions: NDArray[np.float64],
    l2: float,
    k: int,
    E: int,
    diameter: float | None = None,
) -> NDArray[np.float64]:
    """(k,) multiplier of each position; by the closed form where the steps are all alike."""
    # What an unproven run claims may expand.
    if np.ptp(rates) == 0 and contractions[0] <= 1 and diameter is None:
        # eta l2 itself where it is what contracts: 1 - c would lose its digits.
        eta_l2 = l2 * rates[0] if contractions[0] == 1 - l2 * rates[0] else 1 - contractions[0]
        return constant_multipliers(k, E, float(eta_l2))
    return multipliers(rates, contractions, k, diameter=diameter)


def refuse_rate(largest_rate: float, beta: float, l2: float, more: str) -> NoReturn:
    """Raise UnprovenGuaranteeError for a learning rate above 2 / beta."""
    raise UnprovenGuaranteeError(
        message(
            "learning_rate",
            f"at most {rounded_down(2 / beta)} (= 2/beta, beta = {rounded_up(beta)}) for the hidden-state guarantee",
            largest_rate,
            f"Lower it; {rounded_down(AUTO_PEAK * 2 / (beta + l2))} is a good choice.{more}",
        )
    )


def contractions_of(rates: NDArray[np.float64], beta: float, l2: float, claim: bool) -> NDArray[np.float64]:
    """c_t of each step; what an unproven run *claims* is the contraction it would have were its steps admissible."""
    strong = np.abs(1 - rates * l2)
    return strong if claim else np.maximum(strong, np.abs(1 - rates * beta))


def noise_gain(rates: NDArray[np.float64], contractions: NDArray[np.float64]) -> float:
    """sqrt(sum_t (eta_t g_t)^2), by which the noise of one step grows into that of the last iterate."""
    with np.errstate(divide="ignore"):
        log_c = np.log(contractions)
    later = np.concatenate([np.cumsum(log_c[:0:-1])[::-1], [0.0]])
    return float(np.sqrt(np.sum(np.exp(2 * (np.log(rates) + later)))))
