"""Statements, for what builds, prints or reads them."""

import json
import math

import pytest


@pytest.fixture
def stated():
    """A plan and the statement that goes with it."""
    # Not above: the accountant's tests load no training library.
    from noisycgd.data import RowBounds
    from noisycgd.planning import plan_noisy_cgd
    from noisycgd.statements import state_guarantee
    from noisycgd.types import EpsilonDelta, LossCertificate, Order

    softmax = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")

    def make(order=Order.PERMUTED, certificate=softmax, secret=True, assumed_public=(), row_norm=2.0, **changes):
        run = {"n_records": 50, "batch_size": 20, "epochs": 3, "target": EpsilonDelta(2.0, 1e-5), "feature_norm": 2.0}
        plan = plan_noisy_cgd(certificate=certificate, order=order, allow_unproven=True, **{**run, **changes})
        bounds = RowBounds.create(row_norm, "clip", False, 0.0, None, 3)
        return plan, state_guarantee(plan, bounds, secret=secret, assumed_public=assumed_public)

    return make


@pytest.fixture
def selected(stated):
    """The statement of a selection."""
    from noisycgd.planning import plan_selection
    from noisycgd.tuning.statements import state_selection
    from noisycgd.types import GaussianMu

    def make(law="poisson", sampled=False, epsilon=3.0, delta=1e-5, mean_trials=6, winner_secret=True, **changes):
        budget = plan_selection(law=law, mean_trials=mean_trials, epsilon=epsilon, delta=delta, sampled=sampled)
        winner = stated(target=GaussianMu(budget.mu, delta), secret=winner_secret)[1]
        return state_selection(winner, budget, **{"secret": True, "n_scored": 0, "untrained": False, **changes})

    return make


@pytest.fixture
def saved():
    """A statement as a file gives it back."""
    return lambda guarantee: json.loads(json.dumps(guarantee.to_dict()))


@pytest.fixture
def printed():
    """The number that follows some words in a text."""
    return lambda text, before: float(text.partition(before)[2].split()[0].strip(",;()").removesuffix("-smooth"))
