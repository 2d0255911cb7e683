"""Plans whose every iterate may be seen: DP-SGD on Poisson batches, and full-batch noisy gradient descent."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import UnprovenGuaranteeError, check_real, message, refuse
from noisycgd.accounting import (
    GaussianProfile,
    calibrate_noise,
    calibrate_poisson,
    composition_mu,
    poisson_profile,
)
from noisycgd.planning.settings import Settings, check_noise, check_settings, is_auto, learning_rates
from noisycgd.steps import noise_gain
from noisycgd.types import LossCertificate, Order, PoissonPlan, PrivacyProfile, Target

AUTO_LOGIT = 10.0
"""`radius="auto"` lets a logit reach this value: probabilities of 1 - 5e-5 are certain enough."""


def plan_dp_sgd(
    *,
    n_records: int,
    target: Target,
    epochs: int,
    clipping_norm: float | None = None,
    certificate: LossCertificate | None = None,
    feature_norm: float | None = None,
    batch_size: int | str = "auto",
    learning_rate: float | str = "auto",
    schedule: str | ArrayLike = "linear",
    l2: float = 0.0,
) -> PoissonPlan:
    """Plan DP-SGD: T = E ceil(n / b) steps on Poisson batches of rate b / n (THEORY section 4).

    Parameters
    ----------
    n_records : int
        n, public under replace-one adjacency.
    target : EpsilonDelta or NoiseMultiplier
        What to calibrate the noise to; a subsampled mechanism has no mu.
    epochs : int
        E.
    clipping_norm : float, optional
        C, for models whose gradients are scaled down record by record. Give it, or the next two.
    certificate : LossCertificate, optional
        What is proved of the loss of a gated-linear model, whose C is rho L_h. It need not be convex.
    feature_norm : float, optional
        rho, the public bound on ||phi(x)||.
    batch_size : int or "auto"
        Expected batch size b; "auto" follows from n alone. b = n reads every record in every step.
    learning_rate : float or "auto"
        Peak of the schedule; "auto" needs a certificate and is 0.97 * 2 / (beta + l2), the largest stable one.
    schedule : str or array
        See `noisycgd.schedules.schedule_factors`.
    l2 : float
        Coefficient lambda >= 0.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement, or no noise meets the target.
    """
    settings = check_settings(target, n_records, batch_size, epochs, l2)
    bound, beta, rho = _model(clipping_norm, certificate, feature_norm, settings.l2)
    if beta is None and is_auto(learning_rate):
        refuse("learning_rate", "a number for a model without a certificate", learning_rate)
    largest = 1.0 if beta is None else 2 / (beta + settings.l2)
    rates = learning_rates(learning_rate, schedule, settings, largest)
    if (growth := float(rates.max()) * settings.l2) > 2:
        refuse("learning_rate * l2", "at most 2, beyond which parameters grow without bound", growth, "Lower either.")
    noise, profile = _noise(settings)
    return _plan(settings, rates, noise, profile, bound, rho, certificate)


def plan_noisy_gd(
    *,
    n_records: int,
    target: Target,
    epochs: int,
    certificate: LossCertificate,
    feature_norm: float,
    n_parameters: int,
    learning_rate: float | str = "auto",
    schedule: str | ArrayLike = "constant",
    l2: float = 0.0,
    radius: float | str = "auto",
) -> PoissonPlan:
    """Plan the paper's reference algorithm: full-batch noisy projected gradient descent, the average released.

    An average of iterates is not covered by the hidden-state bound, so the T = E steps compose: mu = 2 sqrt(T) / nm
    under replace-one (THEORY section 1, "several releases"; paper, appendix on utility).

    Parameters
    ----------
    n_parameters : int
        p, the number of trained parameters; it enters the automatic learning rate only.
    learning_rate : float or "auto"
        "auto" is D / (sigma sqrt(T p)), sigma = nm C / n, but at most 1 / beta: it minimises the standard bound
        D^2 / (2 eta T) + eta p sigma^2 / 2 on the average's excess loss, which holds up to there for a smooth convex
        loss on a ball of radius D.
    radius : float or "auto"
        D; "auto" is 10 / rho, with which a logit can reach 10.

    The other parameters are those of `plan_dp_sgd`; a mu target is possible here.

    Raises
    ------
    UnprovenGuaranteeError
        If the loss is not convex: the average of iterates would mean nothing.
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement.
    """
    if not certificate.convex:
        raise UnprovenGuaranteeError(
            message("loss", "convex for an average of iterates", certificate.loss, 'Use loss="margin_softmax".')
        )
    settings = check_settings(target, n_records, n_records, epochs, l2)
    bound, beta, rho = _model(None, certificate, feature_norm, settings.l2)
    D = AUTO_LOGIT / rho if is_auto(radius) else check_real("radius", radius, low=1e-30, high=1e30)
    noise, profile = _noise(settings)
    std = noise * bound / settings.n_records
    automatic = min(1 / (beta or math.inf), D / (std * math.sqrt(settings.epochs * n_parameters)))
    # Nothing is barely admissible here, so that no share of it is taken.
    rates = learning_rates(automatic if is_auto(learning_rate) else learning_rate, schedule, settings, automatic)
    return _plan(settings, rates, noise, profile, bound, rho, certificate, D)


def _model(
    clipping_norm: float | None, certificate: LossCertificate | None, feature_norm: float | None, l2: float
) -> tuple[float, float | None, float]:
    """C, beta and rho, the last two where there is a certificate."""
    if (clipping_norm is None) == (certificate is None):
        refuse("clipping_norm or certificate", "given, one of the two", clipping_norm)
    if certificate is None:
        return check_real("clipping_norm", clipping_norm, low=0, open_low=True), None, 0.0
    rho = check_real("feature_norm", feature_norm, low=0, open_low=True)
    return rho * certificate.gradient_bound, rho**2 * certificate.smoothness + l2, rho


def _noise(settings: Settings) -> tuple[float, PrivacyProfile]:
    """The noise multiplier that meets the target, and the profile of all steps."""
    target, n, b, epochs = settings.target, settings.n_records, settings.batch_size, settings.epochs
    if b < n:
        noise = calibrate_poisson(n, b, target, epochs=epochs)
        return noise, poisson_profile(n, b, noise, epochs=epochs, delta=target.delta)
    noise = calibrate_noise([composition_mu(epochs, 2.0)], target, Order.GIVEN)
    return noise, GaussianProfile(composition_mu(epochs, noise))


def _plan(
    settings: Settings,
    rates: NDArray[np.float64],
    noise: float,
    profile: PrivacyProfile,
    bound: float,
    rho: float,
    certificate: LossCertificate | None,
    radius: float | None = None,
) -> PoissonPlan:
    average = radius is not None
    noise_std = noise * bound / settings.batch_size
    gain = noise_gain(rates, np.abs(1 - rates * settings.l2))
    if average:
        # The mean of T partial sums has a third of the last one's variance.
        gain /= math.sqrt(3)
    check_noise(noise_std, noise_std * gain * max(1.0, rho))
    return PoissonPlan(
        n_records=settings.n_records,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        learning_rates=rates,
        l2=settings.l2,
        noise_multiplier=noise,
        gradient_bound=bound,
        profile=profile,
        delta=settings.target.delta,
        epsilon=profile.epsilon(settings.target.delta),
        logit_noise=rho * noise_std * gain,
        radius=radius,
        average=average,
        certificate=certificate,
    )
