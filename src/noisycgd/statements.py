"""The statement that goes with a released model: what is promised, and how each condition was made true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from noisycgd._validation import rounded_down, rounded_up
from noisycgd.accounting import batch_weights
from noisycgd.data.bounds import RowBounds
from noisycgd.guarantee import (
    DP_SGD,
    NOISY_CGD,
    NOISY_GD,
    SSP,
    Condition,
    Guarantee,
    weakened,
    with_assumed_public,
)
from noisycgd.reach import delta_beyond_reach, reach_shows
from noisycgd.ssp import SSPPlan
from noisycgd.training.noise import REACH
from noisycgd.types import Adjacency, Order, Plan, PoissonPlan, Status, ThreatModel

ARITHMETIC = (
    "arithmetic: the proof is in real numbers, gradients were computed in float32; its rounding is small beside the "
    "noise, but not bounded for records that were made to align it (THEORY section 5)"
)
_GAUSSIAN = (
    f"are taken for Gaussians; they end at {REACH:.4g} standard deviations, which adds less than a thousandth of delta "
    "unless it is said above, and attacks on floating-point grids are not covered"
)
DOUBLE = (
    "arithmetic: sums and noise are in float64, whose rounding is counted in the sensitivities (noisycgd.ssp); draws "
    f"from all 64 bits of a Threefry-2x32 block {_GAUSSIAN}"
)
NOISE = (
    "noise: draws from all 64 bits of a Threefry-2x32 block, keyed afresh from the operating system in every epoch and "
    f"rounded to float32, {_GAUSSIAN}"
)
_END = (
    f"draws of noise end at {REACH:.4g} standard deviations, where Gaussians do not, and at this epsilon and delta "
    "that may show (THEORY section 5)"
)
_SEEDED = "noise and permutation came from a fixed seed, for a test"
_WATCHED = "noisycgd.research watched the training, for an experiment on public data"
HIDDEN = "secrecy: nobody saw the samples and the noise, which the machine's memory held while it trained"
SECRECY = "secrecy: nobody saw the machine's memory while it trained, and no other output of this fit is published"
INPUT = (
    "input: each row was made from one record alone (no scaler, imputer or selection fitted on these records), a "
    "record's place among the rows does not depend on its values, and every setting was chosen without them"
)


def state_guarantee(
    plan: Plan | PoissonPlan,
    bounds: RowBounds,
    *,
    secret: bool,
    assumed_public: tuple[str, ...] = (),
    inferred: tuple[str, ...] = (),
) -> Guarantee:
    """Build the guarantee of a model that was trained by `plan` on rows bounded by `bounds`.

    Parameters
    ----------
    plan : Plan or PoissonPlan
        The plan that ran.
    bounds : RowBounds
        How each row was bounded.
    secret : bool
        False if noise was predictable (tests); then the status is `void`.
    assumed_public : tuple of str
        Facts that were read off the training data instead of being stated.
    inferred : tuple of str
        Those of them that are numbers of single records: they make the guarantee `conditional`.
    """
    guarantee = Guarantee(
        epsilon=plan.epsilon,
        delta=plan.delta,
        adjacency=Adjacency.REPLACE_ONE,
        n_records=plan.n_records,
        batch_size=plan.batch_size,
        epochs=plan.epochs,
        noise_multiplier=plan.noise_multiplier,
        gradient_bound=plan.gradient_bound,
        assumptions=(ARITHMETIC, NOISE, SECRECY if isinstance(plan, Plan) else HIDDEN, INPUT),
        **(_cyclic(plan, bounds, secret) if isinstance(plan, Plan) else _poisson(plan, bounds, secret)),
    )
    guarantee = with_noise(guarantee, reach_shows(delta_beyond_reach(plan), plan.delta), secret)
    return with_assumed_public(guarantee, assumed_public, inferred)


def with_noise(guarantee: Guarantee, ends: bool, secret: bool) -> Guarantee:
    """The statement, weaker if the end of the noise shows at its delta, or if the noise was predictable."""
    stated = weakened(guarantee, Status.CONDITIONAL, _END) if ends else guarantee
    return stated if secret else weakened(stated, Status.VOID, _SEEDED)


def as_watched(guarantee: Guarantee) -> Guarantee:
    """The statement of a model whose training was watched, which promises nothing."""
    # The last condition is about what leaves.
    *kept, leaving = guarantee.conditions
    seen = replace(leaving, enforced="NOT so: noisycgd.research watched the training")
    return weakened(replace(guarantee, conditions=(*kept, seen)), Status.VOID, _WATCHED)


def generator(secret: bool) -> str:
    """Where randomness came from, in words."""
    return "the operating system's generator" if secret else "a FIXED SEED, for a test"


def _cyclic(plan: Plan, bounds: RowBounds, secret: bool) -> dict[str, Any]:
    mus, weights = _positions(plan)
    order = {
        Order.PERMUTED: f"one permutation from {generator(secret)}; it may be published",
        Order.GIVEN: "records in the order given (see assumed); worst position counted",
    }[plan.order]
    cert = plan.certificate
    conditions = (
        Condition(
            "convex, smooth losses",
            f"each record's loss is convex and {rounded_up(plan.smoothness)}-smooth",
            f"{cert.loss}: {'proved' if cert.convex else 'NOT convex'} ({cert.reference})",
        ),
        _bounded_gradients(plan.gradient_bound, bounds, "the loss's own bound"),
        _admissible_steps(float(plan.learning_rates.max()), 2 / plan.smoothness),
        Condition("fixed batches", "membership and order do not depend on record values", order),
        _public_start("the zero model"),
        _fresh_noise(plan, secret),
        Condition(
            "only the last iterate leaves",
            "no other function of the records is published",
            "no loss curve, no checkpoint, no early stopping, no warm start",
        ),
    )
    return {
        "mu": plan.profile.mu,
        "status": plan.status,
        "threat_model": ThreatModel.FINAL_MODEL,
        "mechanism": NOISY_CGD,
        "order": plan.order,
        "conditions": conditions,
        "reasons": plan.reasons,
        "position_mus": mus,
        "position_weights": weights,
    }


def _poisson(plan: PoissonPlan, bounds: RowBounds, secret: bool) -> dict[str, Any]:
    everyone = plan.batch_size == plan.n_records
    clipped = "gradients scaled down to C record by record" if plan.certificate is None else "the loss's own bound"
    if everyone:
        batches = Condition("full batches", "every step reads every record", "no sampling, hence none to be secret")
    else:
        rate = rounded_up(plan.sampling_rate)
        batches = Condition(
            "Poisson batches",
            f"each record enters each batch with probability {rate}, independently of all others",
            f"sampled by draws keyed from {generator(secret)}; no record is dropped from a large batch",
        )
    return {
        "mu": getattr(plan.profile, "mu", None) if everyone else None,
        "status": Status.PROVED,
        "threat_model": ThreatModel.ALL_ITERATES,
        "mechanism": NOISY_GD if everyone else DP_SGD,
        "order": Order.ALL if everyone else Order.POISSON,
        "conditions": (
            _bounded_gradients(plan.gradient_bound, bounds, clipped),
            batches,
            _public_start("the zero model" if plan.certificate is not None else "weights drawn from a public seed"),
            _fresh_noise(plan, secret),
            Condition(
                "nothing but iterates leaves",
                "every published number is a function of the iterates",
                f"the {'average of all iterates' if plan.average else 'last iterate'} is released; no loss curve, no "
                "early stopping",
            ),
        ),
    }


def state_ssp(
    plan: SSPPlan,
    bounds: RowBounds,
    *,
    secret: bool,
    clipped_to_data: bool,
    assumed_public: tuple[str, ...] = (),
    inferred: tuple[str, ...] = (),
) -> Guarantee:
    """Build the guarantee of a model computed from noisy statistics; see `state_guarantee`.

    Parameters
    ----------
    clipped_to_data : bool
        Whether the plan's norm bound is the largest norm of the records: then nothing is guaranteed.
    """
    bound = f"a public bound; every row brought to norm {rounded_up(bounds.row_norm)} ({bounds.method})"
    if clipped_to_data:
        bound = "NOT public: the largest norm among the records"
    guarantee = Guarantee(
        status=Status.PROVED,
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=plan.mu,
        adjacency=Adjacency.REPLACE_ONE,
        threat_model=ThreatModel.NOISY_STATISTICS,
        mechanism=SSP,
        order=Order.ALL,
        n_records=plan.n_records,
        batch_size=plan.n_records,
        epochs=1,
        noise_multiplier=plan.noise_multiplier,
        gradient_bound=plan.feature_norm,
        conditions=(
            Condition(
                "bounded features", f"features of a record have norm at most {rounded_up(plan.feature_norm)}", bound
            ),
            Condition(
                "bounded targets",
                f"a record's target has norm at most {rounded_up(plan.target_norm)}",
                "one-hot labels" if plan.classification else "clipped to their public range",
            ),
            Condition(
                "fresh secret noise",
                "the Gram matrix, its smallest eigenvalue and the moments get Gaussian noise of standard deviation "
                "{}, {} and {}".format(*map(rounded_down, (plan.gram_std, plan.eigenvalue_std, plan.moments_std))),
                f"float64 draws keyed from {generator(secret)}, never stored",
            ),
            Condition("nothing else leaves", "the model is a function of the noisy sums", "one pass over the records"),
        ),
        assumptions=(DOUBLE, HIDDEN, INPUT),
    )
    if clipped_to_data:
        guarantee = weakened(guarantee, Status.VOID, f"the bound on a row's norm was read off the records ({bound})")
    guarantee = with_noise(guarantee, reach_shows(delta_beyond_reach(plan), plan.delta), secret)
    return with_assumed_public(guarantee, assumed_public, inferred)


def _bounded_gradients(bound: float, bounds: RowBounds, how: str) -> Condition:
    return Condition(
        "bounded gradients",
        f"gradients of two records differ by at most {rounded_up(2 * bound)}",
        f"{how}; every row brought to norm {rounded_up(bounds.row_norm)} ({bounds.method}) by a map of that row alone",
    )


def _admissible_steps(largest: float, cap: float) -> Condition:
    shown, allowed = rounded_up(largest), rounded_down(cap)
    if largest <= cap and float(shown) > float(allowed):
        shown, allowed = str(largest), str(cap)
    return Condition(
        "admissible steps",
        f"every learning rate is at most 2/beta = {allowed}",
        f"largest is {shown}, {'checked before the first step' if largest <= cap else 'NOT admissible'}",
    )


def _public_start(start: str) -> Condition:
    return Condition("public start", "training starts from a point that does not depend on data", start)


def _fresh_noise(plan: Plan | PoissonPlan, secret: bool) -> Condition:
    return Condition(
        "fresh secret noise",
        f"every step adds Gaussian noise of standard deviation {rounded_down(plan.noise_std)} to its gradient",
        f"keys from {generator(secret)}, never stored",
    )


def _positions(plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if plan.order is Order.GIVEN:
        return (plan.profile.mu,), (1.0,)
    mus = 2 * plan.position_multipliers / plan.noise_multiplier
    return tuple(mus.tolist()), tuple(batch_weights(plan.n_records, plan.batch_size).tolist())
