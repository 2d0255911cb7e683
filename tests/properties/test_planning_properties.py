import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd.planning import plan_noisy_cgd
from noisycgd.schedules import SCHEDULES
from noisycgd.types import CYCLIC_ORDERS, EpsilonDelta, LossCertificate, Order, Status

CERTIFICATE = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
RUNS = st.fixed_dictionaries(
    {
        "n_records": st.integers(1, 60),
        "epochs": st.integers(1, 9),
        "schedule": st.sampled_from(SCHEDULES),
        "l2": st.sampled_from([0.0, 1e-6, 0.1, 5.0]),
        "feature_norm": st.sampled_from([1e-3, 1.0, 40.0]),
        "order": st.sampled_from(CYCLIC_ORDERS),
    }
)
EPSILONS = st.floats(0.01, 30.0)
CHECKED = settings(max_examples=60, deadline=None)


def noise(run, epsilon, **changes):
    p = plan_noisy_cgd(certificate=CERTIFICATE, target=EpsilonDelta(epsilon, 1e-5), **{**run, **changes})
    assert p.status is Status.PROVED
    assert epsilon * (1 - 1e-6) <= p.epsilon <= epsilon
    assert (p.contractions <= 1).all()
    assert (p.contractions >= 0).all()
    return p.noise_multiplier


@CHECKED
@given(RUNS, EPSILONS, st.floats(1.01, 3.0))
def test_more_epsilon_needs_less_noise(run, epsilon, factor):
    assert noise(run, epsilon * factor) < noise(run, epsilon)


@CHECKED
@given(RUNS, EPSILONS, st.integers(1, 5))
def test_more_epochs_never_need_less_noise(run, epsilon, more):
    # At a constant rate; a schedule stretched over more steps ends more slowly, which is not monotone.
    constant = {**run, "schedule": "constant"}
    assert noise(constant, epsilon, epochs=run["epochs"] + more) >= noise(constant, epsilon) * (1 - 1e-9)


@CHECKED
@given(RUNS, EPSILONS)
def test_permuting_never_needs_more_noise(run, epsilon):
    assert noise(run, epsilon, order=Order.PERMUTED) <= noise(run, epsilon, order=Order.GIVEN) * (1 + 1e-9)


@CHECKED
@given(RUNS, EPSILONS, st.floats(0.01, 1.0))
def test_no_number_but_the_unit_depends_on_the_scale_of_the_rows(run, epsilon, scale):
    unregularised = {**run, "l2": 0.0}
    smaller = noise(unregularised, epsilon, feature_norm=run["feature_norm"] * scale)
    np.testing.assert_allclose(smaller, noise(unregularised, epsilon), rtol=1e-9)
