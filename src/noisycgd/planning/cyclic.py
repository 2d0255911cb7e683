"""Plans of NoisyCGD.

`plan_noisy_cgd` refuses what is not proved and names the way out. Nothing in this file reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import (
    UnprovenGuaranteeError,
    check_choice,
    check_integer,
    check_real,
    message,
    refuse,
    rounded_down,
    rounded_up,
)
from noisycgd.accounting import (
    GaussianProfile,
    batch_weights,
    calibrate_noise,
    composition_mu,
    hidden_state_profile,
)
from noisycgd.planning.settings import check_noise, check_settings, check_target, learning_rates
from noisycgd.schedules import schedule_factors
from noisycgd.steps import contractions_of, multipliers_of, noise_gain, refuse_rate
from noisycgd.types import (
    CYCLIC_ORDERS,
    LossCertificate,
    Order,
    Plan,
    PrivacyProfile,
    Status,
    Target,
)

_ALLOW = "allow_unproven=True, outside of a selection, trains all the same and labels the number `unproven`."


@dataclass(frozen=True, eq=False)
class Account:
    """Privacy of a NoisyCGD run that was planned elsewhere.

    Attributes
    ----------
    epsilon, delta : float
        The stated guarantee under replace-one adjacency when only the final model is released.
    noise_multiplier : float
        nm, given or calibrated.
    profile : PrivacyProfile
        The whole profile.
    position_mus : ndarray of shape (k,)
        mu of a record in each batch; the largest is the worst position's.
    composition : PrivacyProfile
        What holds if every step is published: always valid, for comparison.
    status : Status
        `proved`, or `conditional` if the learning rates could not be checked.
    conditions : tuple of str
        What is taken as true of the run.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    profile: PrivacyProfile
    position_mus: NDArray[np.float64]
    composition: PrivacyProfile
    status: Status
    conditions: tuple[str, ...]


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
    order = Order(check_choice("order", order, [o.value for o in CYCLIC_ORDERS]))
    settings = check_settings(target, n_records, batch_size, epochs, l2)
    target, n, b, k, E, l2 = settings
    rho = check_real("feature_norm", feature_norm, low=0, open_low=True)
    check_real("smoothness of the loss", certificate.smoothness, low=0, open_low=True)
    beta = rho**2 * certificate.smoothness + l2
    rates = learning_rates(learning_rate, schedule, settings, 2 / (beta + l2))

    reasons = []
    if not certificate.convex:
        reasons.append(
            f"the residual of loss {certificate.loss!r} is not the gradient of a convex function "
            f"({certificate.reference})"
        )
    if rates.max() > 2 / beta:
        reasons.append(f"a learning rate of {rounded_up(rates.max())} exceeds 2/beta = {rounded_down(2 / beta)}")
    if reasons and not allow_unproven:
        _refuse_unproven(certificate, rates.max(), beta, l2)
    contractions = contractions_of(rates, beta, l2, claim=bool(reasons))

    position_multipliers = multipliers_of(rates, contractions, l2, k, E)
    weights = batch_weights(n, b)
    nm = calibrate_noise(position_multipliers, target, order, weights)
    profile = hidden_state_profile(position_multipliers, nm, order, weights)
    gradient_bound = rho * certificate.gradient_bound
    noise_std, gain = nm * gradient_bound / b, noise_gain(rates, contractions)
    check_noise(noise_std, noise_std * gain * max(1.0, rho))
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
        logit_noise=rho * noise_std * gain,
        reasons=tuple(reasons),
    )


def account_noisy_cgd(
    *,
    n_records: int,
    batch_size: int,
    epochs: int,
    target: Target,
    learning_rate: float = 1.0,
    schedule: str | ArrayLike = "constant",
    l2: float = 0.0,
    smoothness: float | None = None,
    order: Order = Order.PERMUTED,
    diameter: float | None = None,
) -> Account:
    """Account for a NoisyCGD run that somebody else planned, or calibrate its noise (THEORY section 1).

    Parameters
    ----------
    smoothness : float or None
        beta of one record's loss *including* l2. Without it the admissibility of the learning rates cannot be
        checked and the answer's status is `conditional`.
    diameter : float or None
        D b / C, if every step ends with a projection on a convex domain of diameter D.

    The other parameters are those of `plan_noisy_cgd`.

    Raises
    ------
    UnprovenGuaranteeError
        If a learning rate exceeds 2 / smoothness.
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement.
    """
    target = check_target(target)
    n, E = check_integer("records", n_records), check_integer("epochs", epochs)
    b = check_integer("batch_size", batch_size)
    if b > n:
        refuse("batch_size", f"at most the number of records ({n})", b, "Lower it.")
    l2 = check_real("l2", l2, low=0)
    peak = check_real("learning_rate", learning_rate, low=0, open_low=True)
    k = math.ceil(n / b)
    # A constant schedule has a closed form, so that a million epochs need no array of steps.
    constant = isinstance(schedule, str) and schedule == "constant" and diameter is None
    rates = peak * (np.ones(1) if constant else schedule_factors(schedule, k * E, E))
    if smoothness is None:
        status, beta = Status.CONDITIONAL, 2 / rates.max() - l2
        if beta < l2:
            refuse("learning_rate", f"at most 1/l2 = {rounded_down(1 / l2)}", peak, "Lower it, or lower l2.")
        condition = (
            "every learning rate is at most 2/(beta + l2), beta the smoothness of each record's loss, l2 included "
            "(not checked: no smoothness was stated)"
        )
    else:
        status, beta = Status.PROVED, check_real("smoothness", smoothness, low=l2, open_low=l2 == 0)
        if rates.max() > 2 / beta:
            refuse_rate(rates.max(), beta, l2, "")
        condition = f"each record's loss, l2 included, is {beta}-smooth (as stated)"
    contractions = contractions_of(rates, beta, l2, claim=False)
    position_multipliers = multipliers_of(rates, contractions, l2, k, E, diameter)
    weights = batch_weights(n, b)
    nm = calibrate_noise(position_multipliers, target, order, weights)
    profile = hidden_state_profile(position_multipliers, nm, order, weights)
    return Account(
        epsilon=profile.epsilon(target.delta),
        delta=target.delta,
        noise_multiplier=nm,
        profile=profile,
        position_mus=2 * position_multipliers / nm,
        composition=GaussianProfile(composition_mu(E, nm)),
        status=status,
        conditions=(
            "each record's loss is convex",
            condition,
            "gradients of two records differ by at most 2C; Gaussian noise of standard deviation nm C / b is added to "
            "each step",
            "batches, their order and the start do not depend on record values; only the last iterate is released",
            *([] if diameter is None else [_bounded(diameter, peak)]),
        ),
    )


def _refuse_unproven(certificate: LossCertificate, largest_rate: float, beta: float, l2: float) -> NoReturn:
    if not certificate.convex:
        raise UnprovenGuaranteeError(
            message(
                "loss",
                "convex after clipping for the hidden-state guarantee",
                certificate.loss,
                f'Use loss="margin_softmax" or loss="envelope_softmax"; {_ALLOW}',
            )
        )
    refuse_rate(largest_rate, beta, l2, f' Or use learning_rate="auto"; {_ALLOW}')


def _bounded(diameter: float, peak: float) -> str:
    return f"every step ends on a convex domain of diameter {diameter} C / b; the peak learning rate is {peak}"
