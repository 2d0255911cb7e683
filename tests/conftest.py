"""Statements, for what builds, prints or reads them."""

import json
import math

import pytest

from noisycgd.data import RowBounds
from noisycgd.planning import plan_noisy_cgd, plan_selection
from noisycgd.statements import state_guarantee
from noisycgd.tuning.statements import state_selection
from noisycgd.types import EpsilonDelta, GaussianMu, LossCertificate, Order

SOFTMAX = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")


def _stated(order=Order.PERMUTED, certificate=SOFTMAX, secret=True, assumed_public=(), **changes):
    run = {"n_records": 50, "batch_size": 20, "epochs": 3, "target": EpsilonDelta(2.0, 1e-5), "feature_norm": 2.0}
    plan = plan_noisy_cgd(certificate=certificate, order=order, allow_unproven=True, **{**run, **changes})
    bounds = RowBounds.create(2.0, "clip", False, 0.0, None, 3)
    return plan, state_guarantee(plan, bounds, secret=secret, assumed_public=assumed_public)


def _selected(law="poisson", sampled=False, epsilon=3.0, delta=1e-5, **changes):
    budget = plan_selection(law=law, mean_trials=6, epsilon=epsilon, delta=delta, sampled=sampled)
    winner = _stated(target=GaussianMu(budget.mu, delta), secret=changes.pop("winner_secret", True))[1]
    facts = {"secret": True, "n_scored": 0, "untrained": False, **changes}
    return state_selection(winner, budget, **facts)


@pytest.fixture
def stated():
    """A plan and the statement that goes with it."""
    return _stated


@pytest.fixture
def selected():
    """The statement of a selection."""
    return _selected


@pytest.fixture
def saved():
    """A statement as a file gives it back."""
    return lambda guarantee: json.loads(json.dumps(guarantee.to_dict()))
