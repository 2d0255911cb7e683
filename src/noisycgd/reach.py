"""What a plan's guarantee loses because draws of noise end, where Gaussians do not (THEORY section 5)."""

from __future__ import annotations

from noisycgd.accounting.reach import delta_of_reach
from noisycgd.planning import SelectionPlan
from noisycgd.ssp import SSPPlan
from noisycgd.training.noise import LARGEST_DRAW, REACH
from noisycgd.types import Plan, PoissonPlan


def delta_beyond_reach(plan: Plan | PoissonPlan | SSPPlan) -> float:
    """Bound on what the end of its noise adds to a run's delta.

    It holds for every model whose noise `noisycgd.training.noise` draws, of whatever size.
    """
    if isinstance(plan, SSPPlan):
        return delta_of_reach(plan.mu, REACH, plan.n_features * (plan.n_features + plan.n_outputs) + 1)
    steps, mu = len(plan.learning_rates), getattr(plan.profile, "mu", None)
    if mu is not None:
        return delta_of_reach(mu, REACH, float(steps) * LARGEST_DRAW)
    # Sampled: a record enters so many batches on average. What its absence would draw may be lost as well, hence twice.
    assert isinstance(plan, PoissonPlan)
    batches = steps * plan.sampling_rate
    return min(1.0, 2 * batches * delta_of_reach(2 / plan.noise_multiplier, REACH, LARGEST_DRAW))


def reach_shows(lost: float, delta: float) -> bool:
    """Whether `delta_beyond_reach` is more of a delta than is left unsaid: a thousandth."""
    return lost > delta / 1000


def lost_by_trials(plan: SelectionPlan, lost: float) -> float:
    """Bound on what it adds to a selection's delta if each trial's model may lose `lost`."""
    # Each trial draws noise for its model and for its score.
    return min(1.0, 2 * max(1.0, plan.mean_trials) * lost)


def least_lost_by_trials(plan: SelectionPlan) -> float:
    """`lost_by_trials` where a model takes one step, below which no mu-GDP candidate comes."""
    return lost_by_trials(plan, delta_of_reach(plan.mu, REACH, LARGEST_DRAW))
