"""Is a saved statement true to its own numbers? Reading one, and the privacy profile behind it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NoReturn

from noisycgd._validation import ModelFileError, check_integer, check_real, message, rounded_up
from noisycgd.accounting import GaussianProfile, MixtureProfile, batch_weights, composition_mu, poisson_profile
from noisycgd.guarantee import DP_SGD, NOISY_CGD, NOISY_GD, SSP, Guarantee, Selection
from noisycgd.planning import SelectionPlan
from noisycgd.ssp import RELEASES
from noisycgd.types import CYCLIC_ORDERS, Adjacency, Order, PrivacyProfile, Status, ThreatModel

# What may stand together in one statement.
_KINDS = {
    NOISY_CGD: (ThreatModel.FINAL_MODEL, CYCLIC_ORDERS),
    DP_SGD: (ThreatModel.ALL_ITERATES, (Order.POISSON,)),
    NOISY_GD: (ThreatModel.ALL_ITERATES, (Order.ALL,)),
    SSP: (ThreatModel.NOISY_STATISTICS, (Order.ALL,)),
}


def read_guarantee(values: dict[str, Any]) -> Guarantee:
    """Read a saved statement (`Guarantee.to_dict`) and check that its numbers belong together.

    Parameters
    ----------
    values : dict
        Of `to_dict`, or as JSON gives it back.

    Raises
    ------
    ModelFileError
        If epsilon, mu and the positions contradict each other, or the status its reasons.
    KeyError, TypeError, ValueError
        If it is no statement at all.
    """
    stated = Guarantee.from_dict(values)
    if _as_json(stated.to_dict()) != _as_json(values):
        _contradiction("made of the types that were saved", "others")
    for name in ("n_records", "batch_size", "epochs"):
        check_integer(name, getattr(stated, name))
    for name in ("noise_multiplier", "gradient_bound"):
        check_real(name, getattr(stated, name), low=0, open_low=True)
    threat, orders = _KINDS.get(stated.mechanism, (None, ()))
    if stated.adjacency is not Adjacency.REPLACE_ONE or stated.threat_model is not threat or stated.order not in orders:
        found = ", ".join((stated.mechanism, stated.adjacency, stated.threat_model, stated.order))
        _contradiction("about a mechanism of this package, its adjacency, its threat model and its order", found)
    if (stated.status is Status.PROVED) == bool(stated.reasons):
        _contradiction("proved if and only if nothing speaks against it", f"{stated.status}, {stated.reasons}")
    if stated.batch_size > stated.n_records:
        _contradiction(f"about batches of at most {stated.n_records} records", stated.batch_size)
    if not (stated.conditions and stated.assumptions):
        _contradiction("made of conditions and assumptions", "none")
    if stated.status is Status.PROVED and (broken := [c.name for c in stated.conditions if "NOT " in c.enforced]):
        _contradiction("proved only if each of its conditions is enforced", ", ".join(broken))
    if stated.selection is not None:
        _check_selection(stated, stated.selection)
    # A record of the last batch is hidden by one step's noise alone, whatever came before.
    least = 2 / stated.noise_multiplier * (1 - 1e-9)
    hidden = stated.mu if stated.selection is None else stated.selection.base_mu
    if stated.has_positions and hidden is not None and hidden < least:
        _contradiction(f"at least {rounded_up(least)}-GDP with its noise", hidden)
    if stated.has_positions:
        _check_positions(stated)
    elif stated.position_mus or stated.position_weights:
        _contradiction("without positions", f"{len(stated.position_mus)} of them")
    profile = profile_of(stated)
    mu = None if stated.order is Order.POISSON else getattr(profile, "mu", None)
    if (stated.mu is None) != (mu is None) or (mu is not None and not _agree(stated.mu, mu)):
        _contradiction(f"{mu}-GDP as its other numbers say", stated.mu)
    if not _agree(stated.epsilon, epsilon := profile.epsilon(stated.delta)):
        _contradiction(f"one of epsilon {epsilon}, as its other numbers say", stated.epsilon)
    return stated


def profile_of(guarantee: Guarantee) -> PrivacyProfile:
    """The whole privacy profile behind a statement, from its noise, batches and positions, or from its selection."""
    if guarantee.selection is not None:
        return _budget(guarantee, guarantee.selection).profile
    noise, n, b, epochs = guarantee.noise_multiplier, guarantee.n_records, guarantee.batch_size, guarantee.epochs
    if guarantee.order is Order.POISSON:
        return poisson_profile(n, b, noise, epochs=epochs, delta=guarantee.delta)
    if guarantee.order is Order.ALL:
        releases = RELEASES if guarantee.mechanism == SSP else epochs
        return GaussianProfile(composition_mu(releases, noise))
    if guarantee.position_mus or guarantee.mu is None:
        return MixtureProfile(guarantee.position_mus, guarantee.position_weights)
    return GaussianProfile(guarantee.mu)


def _budget(stated: Guarantee, selection: Selection) -> SelectionPlan:
    return SelectionPlan(
        selection.law, selection.mean_trials, selection.base_mu, stated.delta, sampled=selection.sampled
    )


def _check_selection(stated: Guarantee, selection: Selection) -> None:
    for name in ("sampled", "untrained"):
        if not isinstance(getattr(selection, name), bool):
            _contradiction(f"plain about {name}", getattr(selection, name))
    check_integer("n_scored", selection.n_scored, low=0)
    check_real("base_mu", selection.base_mu, low=0, open_low=True)
    budget = _budget(stated, selection)
    if not _agree(selection.base_epsilon, budget.base_epsilon):
        _contradiction(f"about trials of epsilon {budget.base_epsilon}", selection.base_epsilon)
    # What can be told of the released model: its own profile is no worse than a trial's.
    own: PrivacyProfile | None = None
    if stated.order is Order.ALL or (stated.order is Order.POISSON and selection.sampled):
        own = profile_of(replace(stated, selection=None))
    elif stated.order is Order.POISSON:
        _contradiction("of a selection with sampled candidates", selection.sampled)
    points = [0.0, selection.base_epsilon]
    if own is not None and any(own.delta(e) > budget.base.delta(e) * (1 + 1e-9) for e in points):
        _contradiction(f"about a model within the {selection.base_mu}-GDP of its trials", stated.noise_multiplier)


def _check_positions(stated: Guarantee) -> None:
    n, b = stated.n_records, stated.batch_size
    k = 1 if stated.order is Order.GIVEN else math.ceil(n / b)
    weights = [1.0] if k == 1 else batch_weights(n, b).tolist() if k == len(stated.position_mus) else None
    if len(stated.position_mus) != k or list(stated.position_weights) != weights:
        _contradiction(f"about {k} positions with their weights", f"{len(stated.position_mus)} others")


def _agree(found: float | None, wanted: float) -> bool:
    """Equal up to what other versions of the libraries may round otherwise."""
    return found is not None and math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _contradiction(requirement: str, found: object) -> NoReturn:
    raise ModelFileError(message("guarantee", requirement, found, "Restore the model from a copy."))
