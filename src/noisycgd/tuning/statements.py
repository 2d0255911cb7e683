"""The statement that goes with the best of several trials."""

from __future__ import annotations

from dataclasses import replace

from noisycgd._validation import rounded_down, rounded_up
from noisycgd.guarantee import Condition, Guarantee, Selection, with_assumed_public
from noisycgd.planning import SelectionPlan
from noisycgd.reach import least_lost_by_trials, reach_shows
from noisycgd.statements import INPUT, generator, with_noise
from noisycgd.tuning.scores import score_std

_INPUT = INPUT.replace("every setting was", "the candidates and every other setting were")
_UNOBSERVED = (
    "selection: nobody saw how many trials ran, how long they took, or any model or score but the released one"
)
_DECLARED = "the scoring data were declared public"


def state_selection(
    winner: Guarantee,
    plan: SelectionPlan,
    *,
    secret: bool,
    n_scored: int,
    untrained: bool,
    assumed_public: tuple[str, ...] = (),
    inferred: tuple[str, ...] = (),
) -> Guarantee:
    """Build the guarantee of the best of several trials from that of the trial which is released.

    Parameters
    ----------
    winner : Guarantee
        Of the released trial, as if it had been the only one.
    plan : SelectionPlan
        The budget that every candidate met.
    secret : bool
        False if randomness was predictable (tests).
    n_scored : int
        Private records held out to score trials; 0 if the scoring data are public.
    untrained : bool
        Whether no trial ran.
    assumed_public, inferred : tuple of str
        As in `state_guarantee`: read off all records, before any trial.
    """
    selection = Selection(
        law=plan.law,
        mean_trials=plan.mean_trials,
        base_mu=plan.mu,
        base_epsilon=plan.base_epsilon,
        sampled=plan.sampled,
        n_scored=n_scored,
        untrained=untrained,
    )
    conditions = (
        Condition(
            "random number of trials",
            f"{plan.law} with mean {rounded_up(plan.mean_trials)}, whatever the records and the scores",
            f"drawn from {generator(secret)}, never stored or shown",
        ),
        Condition(
            "equal trials",
            f"every candidate meets the base guarantee ({selection.trial})",
            "noise calibrated for each, and all conditions checked, before the first trial ran",
        ),
        _score_condition(plan, n_scored),
        Condition("the best trial alone leaves", "no other model and no score is published", "only the best is kept"),
    )
    stated = replace(
        winner,
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=None,
        conditions=(*winner.conditions, *conditions),
        assumptions=(*(_INPUT if a == INPUT else a for a in winner.assumptions), _UNOBSERVED),
        assumed_public=(*winner.assumed_public, *(() if n_scored else (_DECLARED,))),
        position_mus=(),
        position_weights=(),
        selection=selection,
    )
    # Where it does not show for a single step, each candidate was held to it before the first trial.
    stated = with_noise(stated, reach_shows(least_lost_by_trials(plan), plan.delta), secret)
    return with_assumed_public(stated, assumed_public, inferred)


def _score_condition(plan: SelectionPlan, n_scored: int) -> Condition:
    if not n_scored:
        return Condition("harmless scores", "a score reads no private record but through its model", "public data")
    return Condition(
        "private scores",
        f"a score is {rounded_up(plan.mu)}-GDP in the {n_scored} held-out records, none of which is trained on",
        f"accuracy with Gaussian noise of standard deviation {rounded_down(score_std(plan.mu, n_scored))}, fresh in "
        "every trial",
    )
