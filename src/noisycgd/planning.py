"""Where a loss certificate and a privacy target meet: everything a run needs is fixed here, before a record is seen.

`plan_noisy_cgd` refuses what is not proved and names the way out. Nothing in this file reads data.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import UnprovenGuaranteeError, check_integer, check_real, message, refuse
from noisycgd.accounting import (
    batch_weights,
    calibrate_noise,
    constant_multipliers,
    hidden_state_profile,
    multipliers,
)
from noisycgd.schedules import schedule_factors
from noisycgd.types import (
    EpsilonDelta,
    GaussianMu,
    LossCertificate,
    NoiseMultiplier,
    Order,
    Plan,
    Status,
    Target,
)

# `learning_rate="auto"` peaks at this share of the largest step that contracts by 1 - eta l2 (THEORY section 1).
AUTO_PEAK = 0.97

_ALLOW = "allow_unproven=True trains all the same and labels the number `unproven`."


def auto_batch_size(n_records: int) -> int:
    """Batch size b as a function of n alone."""
    return max(1, min(n_records, round(math.sqrt(n_records) * 4)))


def check_target(target: Target) -> Target:
    """Return `target` with plain floats; raise ParameterError or ParameterTypeError if it makes no sense."""
    delta = check_real("delta", target.delta, low=0, high=1, open_low=True, open_high=True)
    if isinstance(target, EpsilonDelta):
        return EpsilonDelta(check_real("epsilon", target.epsilon, low=0, open_low=True), delta)
    if isinstance(target, GaussianMu):
        return GaussianMu(check_real("mu", target.mu, low=0, open_low=True), delta)
    return NoiseMultiplier(check_real("noise_multiplier", target.value, low=0, open_low=True), delta)


def plan_noisy_cgd(
    *,
    certificate: LossCertificate,
    feature_norm: float,
    n_records: int,
    target: Target,
    epochs: int,
    batch_size: int | str = "auto",
    learning_rate: float | str = "auto",
    schedule: str | ArrayLike = "linear",
    l2: float = 0.0,
    order: Order = Order.PERMUTED,
    allow_unproven: bool = False,
) -> Plan:
    """Turn what is proved of a loss, and a target, into a `Plan` (THEORY section 1; paper, Theorem 2.7).

    Parameters
    ----------
    certificate : LossCertificate
        What is proved of the loss in its logits.
    feature_norm : float
        rho, the public bound on ||phi(x)||.
    n_records : int
        n, public under replace-one adjacency.
    target : EpsilonDelta, GaussianMu or NoiseMultiplier
        What to calibrate the noise to.
    epochs : int
        E.
    batch_size : int or "auto"
        b; "auto" follows from n alone.
    learning_rate : float or "auto"
        Peak of the schedule; "auto" is 0.97 of the largest step that contracts by 1 - eta l2.
    schedule : str or array
        See `noisycgd.schedules.schedule_factors`.
    l2 : float
        Coefficient lambda >= 0; no regularisation is needed for the guarantee.
    order : Order
        `permuted` averages over the position of a record, `given` takes the worst.
    allow_unproven : bool
        Plan even what is not proved, and label it so.

    Raises
    ------
    UnprovenGuaranteeError
        If the certificate is not convex or a step exceeds 2 / beta, unless `allow_unproven`.
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement.

    Warns
    -----
    UserWarning
        If delta exceeds 1 / n: such a guarantee permits publishing a record outright.
    """
    target = check_target(target)
    n = check_integer("n_records", n_records)
    E = check_integer("epochs", epochs)
    b = auto_batch_size(n) if batch_size == "auto" else check_integer("batch_size", batch_size)
    if b > n:
        refuse("batch_size", f"at most the number of records ({n})", b, 'Lower it, or use batch_size="auto".')
    l2 = check_real("l2", l2, low=0)
    if target.delta > 1 / n:
        warnings.warn(
            message("delta", f"at most 1/n = {1 / n:.3g} for a meaningful guarantee", target.delta, "Lower it."),
            UserWarning,
            stacklevel=3,
        )
    k = math.ceil(n / b)
    rho = feature_norm
    beta = rho**2 * certificate.smoothness + l2
    factors = schedule_factors(schedule, k * E, E)
    rates = _peak(learning_rate, beta, l2, factors) * factors

    reasons = []
    if not certificate.convex:
        reasons.append(
            f"the residual of loss {certificate.loss!r} is not the gradient of a convex function "
            f"({certificate.reference})"
        )
    if rates.max() > 2 / beta:
        reasons.append(f"a learning rate of {rates.max():.6g} exceeds 2/beta = {2 / beta:.6g}")
    if reasons and not allow_unproven:
        _refuse_unproven(certificate, rates.max(), beta, l2)
    contractions = _contractions(rates, beta, l2, claim=bool(reasons))

    if np.ptp(rates) == 0:
        slack = l2 * rates[0] if contractions[0] == abs(1 - l2 * rates[0]) else 1 - contractions[0]
        position_multipliers = constant_multipliers(k, E, slack)
    else:
        position_multipliers = multipliers(rates, contractions, k)
    weights = batch_weights(n, b)
    nm = calibrate_noise(position_multipliers, target, order, weights)
    profile = hidden_state_profile(position_multipliers, nm, order, weights)
    gradient_bound = rho * certificate.gradient_bound
    return Plan(
        n_records=n,
        batch_size=b,
        batches_per_epoch=k,
        epochs=E,
        learning_rates=rates,
        contractions=contractions,
        l2=l2,
        noise_multiplier=nm,
        gradient_bound=gradient_bound,
        feature_norm=rho,
        smoothness=beta,
        learning_rate_cap=2 / (beta + l2),
        certificate=certificate,
        order=order,
        position_multipliers=position_multipliers,
        profile=profile,
        delta=target.delta,
        epsilon=profile.epsilon(target.delta),
        status=Status.UNPROVEN if reasons else Status.PROVED,
        logit_noise=rho * nm * gradient_bound / b * _noise_gain(rates, contractions),
        reasons=tuple(reasons),
    )


def _peak(learning_rate: float | str, beta: float, l2: float, factors: NDArray[np.float64]) -> float:
    if learning_rate == "auto":
        return AUTO_PEAK * 2 / (beta + l2) / float(factors.max())
    way_out = 'learning_rate="auto" takes the largest that is safe.'
    return check_real("learning_rate", learning_rate, low=0, open_low=True, way_out=way_out)


def _refuse_unproven(certificate: LossCertificate, largest_rate: float, beta: float, l2: float) -> None:
    if not certificate.convex:
        raise UnprovenGuaranteeError(
            message(
                "loss",
                "convex after clipping for the hidden-state guarantee",
                certificate.loss,
                f'Use loss="margin_softmax" or loss="envelope_softmax"; {_ALLOW}',
            )
        )
    raise UnprovenGuaranteeError(
        message(
            "learning_rate",
            f"at most {2 / beta:.6g} (= 2/beta, beta = {beta:.6g}) for the hidden-state guarantee",
            f"{largest_rate:.6g}",
            f'Lower it, or use learning_rate="auto" ({AUTO_PEAK * 2 / (beta + l2):.6g} here); {_ALLOW}',
        )
    )


def _contractions(rates: NDArray[np.float64], beta: float, l2: float, claim: bool) -> NDArray[np.float64]:
    """c_t of each step; what an unproven run *claims* is the contraction it would have were its steps admissible."""
    strong = np.abs(1 - rates * l2)
    return strong if claim else np.maximum(strong, np.abs(1 - rates * beta))


def _noise_gain(rates: NDArray[np.float64], contractions: NDArray[np.float64]) -> float:
    """sqrt(sum_t (eta_t g_t)^2), by which the noise of one step grows into that of the last iterate."""
    with np.errstate(divide="ignore"):
        log_c = np.log(contractions)
    later = np.concatenate([np.cumsum(log_c[:0:-1])[::-1], [0.0]])
    return float(np.sqrt(np.sum(np.exp(2 * (np.log(rates) + later)))))
