import math

import numpy as np
import pytest
from sklearn.base import clone

from noisycgd import LinearClassifier, ReLUNetworkClassifier, SSPClassifier
from noisycgd._validation import rounded_down
from noisycgd.accounting import GaussianProfile, MixtureProfile, batch_weights
from noisycgd.data import RowBounds
from noisycgd.guarantee import with_assumed_public
from noisycgd.planning import plan_dp_sgd
from noisycgd.ssp import plan_ssp
from noisycgd.statements import state_guarantee, state_ssp
from noisycgd.types import CYCLIC_ORDERS, Adjacency, LossCertificate, NoiseMultiplier, Order, Status, ThreatModel
from noisycgd.verification import read_guarantee

SOFTMAX = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
NOT_CONVEX = LossCertificate("norm_clipped_softmax", 0.5, 0.5, False, "why it fails")


def test_repeats_the_plan(stated):
    plan, g = stated()
    assert (g.epsilon, g.delta, g.mu, g.status) == (plan.epsilon, 1e-5, plan.profile.mu, Status.PROVED)
    assert (g.adjacency, g.threat_model) == (Adjacency.REPLACE_ONE, ThreatModel.FINAL_MODEL)
    assert (g.n_records, g.batch_size, g.epochs, g.order) == (50, 20, 3, Order.PERMUTED)
    assert (g.noise_multiplier, g.gradient_bound) == (plan.noise_multiplier, plan.gradient_bound)


@pytest.mark.parametrize("order", CYCLIC_ORDERS)
def test_its_positions_give_its_epsilon(stated, order):
    _, g = stated(order)
    profile = MixtureProfile(g.position_mus, g.position_weights)
    assert profile.epsilon(g.delta) == pytest.approx(g.epsilon, rel=1e-12)
    assert max(g.position_mus) == g.mu


def test_permuted_positions_are_weighted_by_their_batches(stated):
    _, g = stated()
    assert g.position_weights == tuple(batch_weights(50, 20))
    assert g.position_weights == (0.4, 0.4, 0.2)


def test_a_given_order_has_the_worst_position(stated):
    plan, g = stated(Order.GIVEN)
    assert g.position_mus == (2 * plan.position_multipliers.max() / plan.noise_multiplier,)
    assert g.epsilon == GaussianProfile(g.mu).epsilon(1e-5)
    assert "worst position of a record in the given order" in str(g)


@pytest.mark.parametrize("feature_norm", [2.0, 1.0000004, 1.23456789, 1 / 3])
def test_the_numbers_of_the_conditions_are_the_plan_s_rounded_to_the_safe_side(stated, printed, feature_norm):
    plan, g = stated(feature_norm=feature_norm, row_norm=feature_norm)
    text = str(g)
    for before, exact, up in (
        ("gradients of two records differ by at most ", 2 * plan.gradient_bound, True),
        ("loss is convex and ", plan.smoothness, True),
        ("largest is ", plan.learning_rates.max(), True),
        ("every row brought to norm ", feature_norm, True),
        ("every learning rate is at most 2/beta = ", 2 / plan.smoothness, False),
        ("Gaussian noise of standard deviation ", plan.noise_std, False),
        ("noise multiplier ", plan.noise_multiplier, False),
    ):
        _check_rounding(printed(text, before), exact, up)


def _check_rounding(shown, exact, up):
    assert shown == pytest.approx(exact, rel=1e-5)
    assert shown >= exact if up else shown <= exact


@pytest.mark.parametrize("b", [17, 23])
def test_so_are_those_of_dp_sgd(printed, b):
    plan = plan_dp_sgd(
        n_records=59,
        target=NoiseMultiplier(5.4321987, 1e-5),
        epochs=2,
        batch_size=b,
        clipping_norm=1 / 3,
        learning_rate=0.1,
    )
    g = state_guarantee(plan, RowBounds.create(1.2345678, "clip", False, 0.0, None, 3), secret=True)
    for before, exact, up in (
        ("enters each batch with probability ", b / 59, True),
        ("gradients of two records differ by at most ", 2 / 3, True),
        ("Gaussian noise of standard deviation ", plan.noise_std, False),
        ("every row brought to norm ", 1.2345678, True),
    ):
        _check_rounding(printed(str(g), before), exact, up)


def test_so_are_those_of_noisy_sums(printed):
    plan = plan_ssp(
        n_records=59, target=NoiseMultiplier(5.4321987, 1e-5), n_features=3, n_outputs=1, classification=False,
        feature_norm=1.2345678, target_norm=1 / 3,
    )  # fmt: skip
    text = str(
        state_ssp(plan, RowBounds.create(1.2345678, "clip", False, 0.0, None, 3), secret=True, clipped_to_data=False)
    )
    _check_rounding(printed(text, "features of a record have norm at most "), 1.2345678, True)
    _check_rounding(printed(text, "a record's target has norm at most "), 1 / 3, True)
    _check_rounding(printed(text, "Gaussian noise of standard deviation "), plan.gram_std, False)
    _check_rounding(printed(text, f"{rounded_down(plan.gram_std)}, "), plan.eigenvalue_std, False)
    _check_rounding(printed(text, f"{rounded_down(plan.eigenvalue_std)} and "), plan.moments_std, False)


def test_the_largest_admissible_rate_does_not_look_like_more(stated):
    plan, g = stated(feature_norm=1.23456789, learning_rate=2 / (1.23456789**2 * 0.5), schedule="constant")
    steps = next(c for c in g.conditions if c.name == "admissible steps")
    assert steps.requirement.endswith(f"2/beta = {2 / plan.smoothness}")
    assert steps.enforced == f"largest is {plan.learning_rates.max()}, checked before the first step"


def test_every_condition_of_the_theorem_is_there(stated):
    names = [c.name for c in stated()[1].conditions]
    assert names == [
        "convex, smooth losses",
        "bounded gradients",
        "admissible steps",
        "fixed batches",
        "public start",
        "fresh secret noise",
        "only the last iterate leaves",
    ]


def test_what_was_assumed_is_printed(stated):
    _, g = stated(assumed_public=("the colour of the sky",))
    assert "the colour of the sky" in str(g).partition("assumed public")[2]
    assert "float32" in str(g).partition("assumed\n")[2]
    assert "assumed public" not in str(stated()[1])


def test_proved(stated):
    assert "-differential privacy — PROVED" in str(stated()[1]).splitlines()[0]
    assert stated()[1].reasons == ()


def test_unproven_says_so_first_and_why(stated):
    _, g = stated(certificate=NOT_CONVEX)
    assert g.status is Status.UNPROVEN
    assert "UNPROVEN: a number for comparison, not a guarantee" in str(g).splitlines()[0]
    assert "why not proved the residual of loss 'norm_clipped_softmax' is not the gradient" in str(g)
    assert "NOT convex (why it fails)" in str(g)
    assert g.to_dict()["status"] == "unproven"


def test_numbers_of_records_make_it_conditional(stated):
    plan, proved = stated()
    bounds = RowBounds()
    found = state_guarantee(plan, bounds, secret=True, assumed_public=("labels",), inferred=("the range",))
    assert found.status is Status.CONDITIONAL
    assert found.assumed_public == ("labels", "the range")
    assert "CONDITIONAL" in str(found)
    again = with_assumed_public(found, ("columns",), ("bounds",))
    assert again.assumed_public == ("labels", "the range", "columns", "bounds")
    assert again.reasons == found.reasons
    assert proved.status is Status.PROVED


@pytest.mark.parametrize(
    ("model", "ends"),
    [
        (LinearClassifier(epsilon=1.0), False),
        (LinearClassifier(epsilon=15.0), False),
        (LinearClassifier(epsilon=1.0, delta=1e-9), False),
        (LinearClassifier(epsilon=30.0), True),
        (LinearClassifier(epsilon=8.0, delta=1e-11), True),
        (LinearClassifier(epsilon=None, noise_multiplier=0.5, delta=1e-8, epochs=1), True),
        (LinearClassifier(method="dpsgd", epsilon=5.0), False),
        (LinearClassifier(method="dpsgd", epsilon=1e3), True),
        (LinearClassifier(method="noisy-gd", epsilon=5.0, epochs=3), False),
        (LinearClassifier(method="noisy-gd", epsilon=50.0, epochs=3), True),
        (SSPClassifier(epsilon=8.0), False),
        (SSPClassifier(epsilon=30.0, delta=1e-12), True),
        (ReLUNetworkClassifier(epsilon=5.0, learning_rate=0.1, width=3, epochs=2), False),
        (ReLUNetworkClassifier(epsilon=1e3, learning_rate=0.1, width=3, epochs=2), True),
    ],
)
def test_noise_that_ends_where_it_shows_makes_it_conditional(saved, model, ends):
    X = np.random.default_rng(0).standard_normal((60, 3))
    g = clone(model).set_params(classes=[0, 1]).fit(X, np.arange(60) % 2).guarantee_
    assert g.status is (Status.CONDITIONAL if ends else Status.PROVED)
    assert ["end at 9.155 standard deviations" in reason for reason in g.reasons] == [True] * ends
    assert read_guarantee(saved(g)) == g


def test_void_does_not_claim_secret_noise(stated):
    text = str(stated(secret=False)[1])
    assert "FIXED SEED" in text
    assert "keys from the operating system" not in text


@pytest.mark.parametrize("certificate", [SOFTMAX, NOT_CONVEX])
def test_predictable_noise_voids_whatever_else_holds(stated, certificate):
    _, g = stated(certificate=certificate, secret=False)
    assert g.status is Status.VOID
    assert "VOID: no privacy at all" in str(g).splitlines()[0]
    assert "fixed seed, for a test" in g.reasons[-1]
