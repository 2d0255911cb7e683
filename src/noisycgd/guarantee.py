"""The statement that goes with a released model: what is promised, and how each condition was made true."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NoReturn

from noisycgd._validation import ModelFileError, check_integer, check_real, message
from noisycgd.accounting import MixtureProfile, batch_weights
from noisycgd.data.bounds import RowBounds
from noisycgd.types import Adjacency, Condition, Guarantee, Order, Plan, Status, ThreatModel

_ASSUMPTIONS = (
    "arithmetic: the proof is in real numbers, training ran in float32 (THEORY section 5)",
    "noise: draws of Threefry-2x32, keyed afresh from the operating system in every epoch, are taken for Gaussians; "
    "in runs of 256 steps or more each draw is one of 2^23 values; attacks on floating-point grids are not covered",
    "secrecy: nobody saw the machine's memory while it trained, and no other output of this fit is published",
    "input: each row was made from one record alone (no scaler, imputer or selection fitted on these records), a "
    "record's place among the rows does not depend on its values, and every setting was chosen without them",
)
_INFERRED = "numbers were read off the records and are published with the model; see assumed public"


def state_guarantee(
    plan: Plan,
    bounds: RowBounds,
    *,
    secret: bool,
    assumed_public: tuple[str, ...] = (),
    inferred: tuple[str, ...] = (),
) -> Guarantee:
    """Build the guarantee of a model that was trained by `plan` on rows bounded by `bounds`.

    Parameters
    ----------
    plan : Plan
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
    status, reasons = plan.status, plan.reasons
    if not secret:
        status, reasons = Status.VOID, (*reasons, "noise and permutation came from a fixed seed, for a test")
    mus, weights = _positions(plan)
    guarantee = Guarantee(
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=plan.profile.mu,
        status=status,
        adjacency=Adjacency.REPLACE_ONE,
        threat_model=ThreatModel.FINAL_MODEL,
        mechanism="NoisyCGD",
        order=plan.order,
        n_records=plan.n_records,
        batch_size=plan.batch_size,
        epochs=plan.epochs,
        noise_multiplier=plan.noise_multiplier,
        gradient_bound=plan.gradient_bound,
        conditions=_conditions(plan, bounds, secret),
        assumptions=_ASSUMPTIONS,
        reasons=reasons,
        position_mus=mus,
        position_weights=weights,
    )
    return with_assumed_public(guarantee, assumed_public, inferred)


def with_assumed_public(guarantee: Guarantee, facts: tuple[str, ...], inferred: tuple[str, ...] = ()) -> Guarantee:
    """The statement with more facts assumed public; numbers inferred from records make a proved one `conditional`."""
    status, reasons = guarantee.status, guarantee.reasons
    if inferred and _INFERRED not in reasons:
        status = Status.CONDITIONAL if status is Status.PROVED else status
        reasons = (*reasons, _INFERRED)
    listed = (*guarantee.assumed_public, *facts, *inferred)
    return replace(guarantee, status=status, reasons=reasons, assumed_public=listed)


def read_guarantee(values: dict[str, Any]) -> Guarantee:
    """Read a saved statement (`Guarantee.to_dict`) and check that its numbers belong together.

    Parameters
    ----------
    values : dict
        As JSON gives it back.

    Raises
    ------
    ModelFileError
        If epsilon, mu and the positions contradict each other, or the status its reasons.
    KeyError, TypeError, ValueError
        If it is no statement at all.
    """
    stated = Guarantee.from_dict(values)
    if _as_json(stated.to_dict()) != values:
        _contradiction("made of the types that were saved", "others")
    for name in ("n_records", "batch_size", "epochs"):
        check_integer(name, getattr(stated, name))
    for name in ("noise_multiplier", "gradient_bound"):
        check_real(name, getattr(stated, name), low=0, open_low=True)
    kind = (stated.mechanism, stated.adjacency, stated.threat_model)
    if kind != ("NoisyCGD", Adjacency.REPLACE_ONE, ThreatModel.FINAL_MODEL):
        _contradiction("about NoisyCGD, replace-one and the final model", ", ".join(kind))
    if (stated.status is Status.PROVED) == bool(stated.reasons):
        _contradiction("proved if and only if nothing speaks against it", f"{stated.status}, {stated.reasons}")
    n, b = stated.n_records, stated.batch_size
    k = 1 if stated.order is Order.GIVEN else math.ceil(n / b)
    weights = [1.0] if k == 1 else batch_weights(n, b).tolist() if k == len(stated.position_mus) else None
    if b > n or len(stated.position_mus) != k or list(stated.position_weights) != weights:
        _contradiction(f"about {k} positions with their weights", f"{len(stated.position_mus)} others")
    profile = MixtureProfile(stated.position_mus, stated.position_weights)
    found, wanted = (stated.mu, stated.epsilon), (profile.mu, profile.epsilon(stated.delta))
    # Other versions of the libraries may round otherwise.
    if any(not math.isclose(f, w, rel_tol=1e-9, abs_tol=1e-12) for f, w in zip(found, wanted, strict=True)):
        _contradiction(f"the mu and epsilon of its positions, {wanted}", found)
    return stated


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _contradiction(requirement: str, found: object) -> NoReturn:
    raise ModelFileError(message("guarantee", requirement, found, "Restore the model from a copy."))


def _positions(plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if plan.order is Order.GIVEN:
        return (plan.profile.mu,), (1.0,)
    mus = 2 * plan.position_multipliers / plan.noise_multiplier
    return tuple(mus.tolist()), tuple(batch_weights(plan.n_records, plan.batch_size).tolist())


def _conditions(plan: Plan, bounds: RowBounds, secret: bool) -> tuple[Condition, ...]:
    source = "the operating system's generator" if secret else "a FIXED SEED, for a test"
    order = {
        Order.PERMUTED: f"one permutation from {source}; it may be published",
        Order.GIVEN: "records in the order given (see assumed); worst position counted",
    }[plan.order]
    cert, largest = plan.certificate, plan.learning_rates.max()
    admissible = "checked before the first step" if largest <= 2 / plan.smoothness else "NOT admissible"
    return (
        Condition(
            "convex, smooth losses",
            f"each record's loss is convex and {plan.smoothness:.6g}-smooth",
            f"{cert.loss}: {'proved' if cert.convex else 'NOT convex'} ({cert.reference})",
        ),
        Condition(
            "bounded gradients",
            f"gradients of two records differ by at most {2 * plan.gradient_bound:.6g}",
            f"every row brought to norm {bounds.row_norm:g} ({bounds.method}) by a map of that row alone",
        ),
        Condition(
            "admissible steps",
            f"every learning rate is at most 2/beta = {2 / plan.smoothness:.6g}",
            f"largest is {largest:.6g}, {admissible}",
        ),
        Condition("fixed batches", "membership and order do not depend on record values", order),
        Condition("public start", "training starts from a point that does not depend on data", "the zero model"),
        Condition(
            "fresh secret noise",
            f"every step adds Gaussian noise of standard deviation {plan.noise_std:.6g} to its gradient",
            f"keys from {source}, never stored",
        ),
        Condition(
            "only the last iterate leaves",
            "no other function of the records is published",
            "no loss curve, no checkpoint, no early stopping, no warm start",
        ),
    )
