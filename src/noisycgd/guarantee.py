"""The statement that goes with a released model: what is promised, and how each condition was made true."""

from __future__ import annotations

from noisycgd.accounting import batch_weights
from noisycgd.data.bounds import RowBounds
from noisycgd.types import Adjacency, Condition, Guarantee, Order, Plan, Status, ThreatModel

_ASSUMPTIONS = (
    "arithmetic: the proof is in real numbers, training ran in float32 (THEORY section 5)",
    "noise: Threefry-2x32, keyed afresh from the operating system in every epoch, is taken for true randomness",
    "secrecy: nobody saw the machine's memory while it trained, and no other output of this fit is published",
)


def state_guarantee(plan: Plan, bounds: RowBounds, *, secret: bool, assumed_public: tuple[str, ...] = ()) -> Guarantee:
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
    """
    status, reasons = plan.status, plan.reasons
    if not secret:
        status, reasons = Status.VOID, (*reasons, "noise and permutation came from a fixed seed, for a test")
    mus, weights = _positions(plan)
    return Guarantee(
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
        conditions=_conditions(plan, bounds),
        assumptions=_ASSUMPTIONS,
        assumed_public=assumed_public,
        reasons=reasons,
        position_mus=mus,
        position_weights=weights,
    )


def _positions(plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if plan.order is Order.GIVEN:
        return (plan.profile.mu,), (1.0,)
    mus = 2 * plan.position_multipliers / plan.noise_multiplier
    return tuple(mus.tolist()), tuple(batch_weights(plan.n_records, plan.batch_size).tolist())


def _conditions(plan: Plan, bounds: RowBounds) -> tuple[Condition, ...]:
    order = {
        Order.PERMUTED: "one permutation from the operating system's generator; it may be published",
        Order.GIVEN: "records in the order given, which must not depend on their values; worst position counted",
    }[plan.order]
    cert = plan.certificate
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
            f"largest is {plan.learning_rates.max():.6g}, checked before any record was read",
        ),
        Condition("fixed batches", "membership and order do not depend on record values", order),
        Condition("public start", "training starts from a point that does not depend on data", "the zero model"),
        Condition(
            "fresh secret noise",
            f"every step adds Gaussian noise of standard deviation {plan.noise_std:.6g} to its gradient",
            "keys from the operating system, never stored",
        ),
        Condition(
            "only the last iterate leaves",
            "no other function of the records is published",
            "no loss curve, no checkpoint, no early stopping, no warm start",
        ),
    )
