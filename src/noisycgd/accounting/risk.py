"""What a privacy profile means for one record, in plain words.

Under replace-one adjacency every statement is about a fixed question: *which of two given records was used*, asked by
someone who knows all other records and the method, and sees what the profile's threat model shows. Whether a person
took part at all is a different question, because the number of records is public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from noisycgd._validation import check_real, delta_in_print, rounded_up
from noisycgd.accounting.gaussian import check_delta
from noisycgd.types import Adjacency, PrivacyProfile

_QUESTION = {
    Adjacency.REPLACE_ONE: "which of two given records was used in training, when all other records are known",
    Adjacency.ADD_REMOVE: "whether a given record was used in training, when all other records are known",
}
_CLAIM = {
    Adjacency.REPLACE_ONE: "that the first record was used, not the second,",
    Adjacency.ADD_REMOVE: "that the record was used",
}


def membership_advantage(profile: PrivacyProfile) -> float:
    """Largest true-positive rate minus false-positive rate of any membership test.

    It equals delta(0), the total variation distance between the two laws of the output.
    """
    return float(profile.delta(0.0))


def true_positive_rate(profile: PrivacyProfile, fpr: ArrayLike) -> Any:
    """Largest true-positive rate of any membership test with a false-positive rate of at most `fpr`, rounded up.

    Equals 1 - `profile.tradeoff(fpr)`; of the shape of `fpr`, a float for a scalar. Raises ParameterError if a rate
    lies outside [0, 1].
    """
    return 1.0 - profile.tradeoff(fpr)


def log_odds_shift(profile: PrivacyProfile, delta: float) -> float:
    """How far seeing the output can move anyone's log-odds, except with probability `delta`; rounded up.

    Parameters
    ----------
    profile : PrivacyProfile
        Of the mechanism.
    delta : float
        In (0, 1): probability, over the mechanism's randomness, that the bound fails.

    Returns
    -------
    float
        t >= 0 such that, whichever of the two data sets was used, the likelihood ratio of the output in favour of
        either one exceeds e^t with probability at most `delta`. By Bayes' rule posterior odds are then at most e^t
        times the prior odds, for every prior.

    Raises
    ------
    ParameterError, ParameterTypeError
        If `delta` is out of range or no number.

    Notes
    -----
    (epsilon, delta)-DP alone does *not* say that odds grow by at most e^epsilon except with probability delta. What
    holds for the likelihood ratio L under the law P it favours is

        P(L > e^t) (1 - e^(epsilon - t)) <= E_P[max(0, 1 - e^epsilon / L)] = delta(epsilon)   for every epsilon < t,

    and under the other law the probability is smaller by a factor e^t. So t = epsilon(x delta) - log(1 - x) for every
    x in (0, 1); the best x is taken.
    """
    delta = check_delta(delta)

    def shift(logit: float) -> float:
        # log x and log(1 - x) without cancellation at either end.
        log_x, log_rest = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
        share = delta * math.exp(log_x)
        return profile.epsilon(share) - float(log_rest) if share > 0.0 else math.inf

    grid = np.linspace(-32.0, 8.0, 21)
    values = [shift(g) for g in grid]
    best = int(np.argmin(values))
    ends = (grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)])
    refined = minimize_scalar(lambda g: min(shift(g), 1e300), bounds=ends, method="bounded", options={"xatol": 1e-4})
    return min(values[best], shift(float(refined.x))) * (1.0 + 2.0**-40)


def posterior_bound(profile: PrivacyProfile, prior: float, delta: float) -> float:
    """Largest posterior probability that a given record was used, except with probability `delta`; rounded up.

    Parameters
    ----------
    profile : PrivacyProfile
        Of the mechanism.
    prior : float
        Probability in [0, 1] that the record, and not the other one, was used, before the output is seen.
    delta : float
        In (0, 1): probability, over the mechanism's randomness, that the bound fails (`log_odds_shift`).

    Returns
    -------
    float
        At least `prior`, at most 1.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or no number.
    """
    return _posterior(check_real("prior", prior, low=0.0, high=1.0), log_odds_shift(profile, delta))


@dataclass(frozen=True, slots=True)
class RiskSummary:
    """Risk of one record in plain words; `str()` gives one statement a line, numbers rounded up.

    Attributes
    ----------
    adjacency : Adjacency
        Which question the numbers answer.
    epsilon, delta : float
        The guarantee, and the probability with which a posterior may exceed its bound.
    advantage : float
        `membership_advantage`.
    false_positive_rates, true_positive_rates : tuple of float
        Rates asked for, and `true_positive_rate` at each.
    odds_factor : float
        e^t of `log_odds_shift`; inf if it overflows.
    priors, posteriors : tuple of float
        Priors asked for, and `posterior_bound` of each.
    """

    adjacency: Adjacency
    epsilon: float
    delta: float
    advantage: float
    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]
    odds_factor: float
    priors: tuple[float, ...]
    posteriors: tuple[float, ...]

    def __str__(self) -> str:
        lines = [
            f"Question: {_QUESTION[self.adjacency]}.",
            f"The true-positive rate of any test exceeds its false-positive rate by at most "
            f"{_percent(self.advantage)} (guessing: 0 %).",
        ]
        lines += [
            f"A test with a false-positive rate of at most {_exact_percent(fpr)} has a true-positive rate of at most "
            f"{_percent(tpr)} (guessing: {_exact_percent(fpr)})."
            for fpr, tpr in zip(self.false_positive_rates, self.true_positive_rates, strict=True)
        ]
        lines += [
            f"Whoever gave a probability of {_exact_percent(prior)} {_CLAIM[self.adjacency]} gives it at most "
            f"{_percent(posterior)} after seeing the result, except with probability at most "
            f"{delta_in_print(self.delta)} over the training's randomness."
            for prior, posterior in zip(self.priors, self.posteriors, strict=True)
        ]
        return "\n".join(lines)


def risk_summary(
    profile: PrivacyProfile,
    delta: float,
    priors: Sequence[float] = (0.01, 0.1, 0.5),
    fprs: Sequence[float] = (0.001, 0.01, 0.1),
) -> RiskSummary:
    """Risk of one record under a profile.

    Parameters
    ----------
    profile : PrivacyProfile
        Of the mechanism; replace-one unless it states another `adjacency`.
    delta : float
        In (0, 1).
    priors : sequence of float
        Probabilities in [0, 1] before the output is seen.
    fprs : sequence of float
        False-positive rates in [0, 1].

    Returns
    -------
    RiskSummary

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type.
    """
    delta = check_delta(delta)
    checked_priors = tuple(check_real("prior", p, low=0.0, high=1.0) for p in priors)
    checked_fprs = tuple(check_real("fpr", f, low=0.0, high=1.0) for f in fprs)
    shift = log_odds_shift(profile, delta)
    return RiskSummary(
        adjacency=Adjacency(getattr(profile, "adjacency", Adjacency.REPLACE_ONE)),
        epsilon=profile.epsilon(delta),
        delta=delta,
        advantage=membership_advantage(profile),
        false_positive_rates=checked_fprs,
        true_positive_rates=tuple(float(true_positive_rate(profile, f)) for f in checked_fprs),
        odds_factor=float(np.exp(shift)) if shift < 709.0 else math.inf,
        priors=checked_priors,
        posteriors=tuple(_posterior(p, shift) for p in checked_priors),
    )


def _posterior(prior: float, shift: float) -> float:
    if prior in (0.0, 1.0):
        return prior
    return min(1.0, prior / (prior + (1.0 - prior) * math.exp(-shift)) * (1.0 + 2.0**-50))


def _percent(probability: float) -> str:
    """Three significant digits, rounded up: a bound stays a bound in print."""
    return f"{rounded_up(100.0 * probability, 3)} %"


def _exact_percent(probability: float) -> str:
    return f"{100.0 * probability:.12g} %"
