import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noisycgd.accounting import (
    GaussianProfile,
    MixtureProfile,
    calibrate_noise,
    composition_mu,
    constant_multipliers,
    gaussian_mu,
    hidden_state_profile,
    log_delta,
    multipliers,
)
from noisycgd.types import CYCLIC_ORDERS, EpsilonDelta, Order

modest = settings(deadline=None, max_examples=40)
sizes = st.integers(1, 20)
eta_l2s = st.one_of(st.just(0.0), st.floats(1e-14, 0.99))
noises = st.floats(0.5, 50.0)
deltas = st.floats(-300, -0.1).map(lambda power: 10.0**power)
mus = st.floats(-6, 3).map(lambda power: 10.0**power)


@st.composite
def schedules(draw, low=0.3, high=1.0):
    T, k = draw(st.integers(1, 60)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.uniform(0.05, 2.0, T), rng.uniform(low, high, T), k


@st.composite
def mixtures(draw):
    J = draw(st.integers(1, 6))
    values = draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 20.0)), min_size=J, max_size=J))
    raw = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=J, max_size=J)))
    return MixtureProfile(tuple(values), tuple(raw / raw.sum()))


@modest
@given(sizes, st.integers(1, 50), eta_l2s, noises, st.floats(1.01, 3.0))
def test_more_noise_never_hurts(k, epochs, eta_l2, noise, factor):
    m = constant_multipliers(k, epochs, eta_l2)
    for order in CYCLIC_ORDERS:
        less, more = (hidden_state_profile(m, n, order).epsilon(1e-5) for n in (noise, noise * factor))
        assert more <= less


@modest
@given(sizes, st.integers(1, 10**6), eta_l2s, st.integers(1, 1000))
def test_more_epochs_never_help(k, epochs, eta_l2, extra):
    few, many = constant_multipliers(k, epochs, eta_l2), constant_multipliers(k, epochs + extra, eta_l2)
    assert np.all(many >= few * (1 - 1e-13))


@modest
@given(sizes, st.integers(1, 10**4), st.floats(0, 0.9), st.floats(1e-9, 0.09))
def test_more_regularisation_never_hurts(k, epochs, eta_l2, extra):
    assert np.all(
        constant_multipliers(k, epochs, eta_l2 + extra) <= constant_multipliers(k, epochs, eta_l2) * (1 + 1e-11)
    )


@modest
@given(schedules(), st.integers(0, 59), st.floats(0, 1))
def test_a_stronger_contraction_never_hurts(schedule, step, factor):
    rates, contractions, k = schedule
    stronger = contractions.copy()
    stronger[step % len(rates)] *= factor
    assert np.all(multipliers(rates, stronger, k) <= multipliers(rates, contractions, k) * (1 + 1e-11))


@modest
@given(schedules())
def test_hidden_state_never_exceeds_composition(schedule):
    rates, contractions, k = schedule
    uses = -(-len(rates) // k)
    assert np.all(2 * multipliers(rates, contractions, k) / 3.0 <= composition_mu(uses, 3.0) * (1 + 1e-11))


@modest
@given(schedules(high=1.5), st.floats(-20, 20))
def test_the_unit_of_learning_rates_is_free(schedule, power):
    rates, contractions, k = schedule
    scaled = multipliers(rates * 10.0**power, contractions, k)
    assert scaled == pytest.approx(multipliers(rates, contractions, k), rel=1e-10)


@modest
@given(sizes, st.integers(1, 30), eta_l2s)
def test_closed_form_equals_program(k, epochs, eta_l2):
    T = k * epochs
    general = multipliers(np.ones(T), np.full(T, 1 - eta_l2), k)
    # 1 - eta_l2 is rounded before the general program sees it; a factor c^T moves by at most T 2^-53.
    assert constant_multipliers(k, epochs, eta_l2) == pytest.approx(general, rel=1e-10)


@modest
@given(sizes, st.integers(1, 50), eta_l2s, noises, st.floats(0, 10), deltas)
def test_permuted_never_exceeds_given(k, epochs, eta_l2, noise, epsilon, delta):
    m = constant_multipliers(k, epochs, eta_l2)
    permuted, given_ = (hidden_state_profile(m, noise, order) for order in (Order.PERMUTED, Order.GIVEN))
    assert permuted.mu == given_.mu
    assert permuted.delta(epsilon) <= given_.delta(epsilon) * (1 + 1e-14)
    assert permuted.epsilon(delta) <= given_.epsilon(delta) * (1 + 1e-9) + 1e-12


@modest
@given(mixtures(), st.floats(0, 50), st.floats(1e-6, 10))
def test_delta_is_decreasing_and_convex_in_exp_epsilon(profile, epsilon, step):
    near, far = profile.delta(epsilon), profile.delta(epsilon + step)
    assert 0.0 <= far <= near <= 1.0
    # A maximum over events of P - e^epsilon Q is convex in e^epsilon.
    middle = math.log(0.5 * (math.exp(epsilon) + math.exp(epsilon + step)))
    assert profile.delta(middle) <= 0.5 * (near + far) * (1 + 1e-11)


@modest
@given(mixtures(), deltas)
def test_epsilon_round_trip(profile, delta):
    epsilon = profile.epsilon(delta)
    assert profile.delta(epsilon) <= delta
    assert epsilon == 0.0 or profile.delta(epsilon * (1 - 1e-9)) > delta * (1 - 1e-10)


@modest
@given(mus, st.floats(0.01, 30.0))
def test_gaussian_round_trip_from_epsilon(mu, u):
    # At delta = delta(epsilon) the same epsilon comes back, to 1e-9, wherever delta is a normal double.
    epsilon = mu * (u + 0.5 * mu)
    assume(float(log_delta(mu, epsilon)) > -690)
    assert GaussianProfile(mu).epsilon(GaussianProfile(mu).delta(epsilon)) == pytest.approx(epsilon, rel=1e-9)


@modest
@given(st.floats(-3, 3).map(lambda power: 10.0**power), deltas)
def test_gaussian_mu_round_trip(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert GaussianProfile(mu).epsilon(delta) == pytest.approx(epsilon, rel=1e-9)


@modest
@given(
    sizes,
    st.integers(1, 50),
    eta_l2s,
    st.floats(-3, 3).map(lambda p: 10.0**p),
    deltas,
    st.sampled_from(CYCLIC_ORDERS),
)
def test_calibration_always_meets_its_target(k, epochs, eta_l2, epsilon, delta, order):
    m = constant_multipliers(k, epochs, eta_l2)
    noise = calibrate_noise(m, EpsilonDelta(epsilon, delta), order)
    profile = hidden_state_profile(m, noise, order)
    assert profile.epsilon(delta) <= epsilon
    assert profile.delta(epsilon) <= delta
    # Where delta is flat (near the total weight of some positions) much less noise changes it by a rounding only.
    assert hidden_state_profile(m, noise * (1 - 1e-9), order).delta(epsilon) > delta * (1 - 1e-10)


@modest
@given(mixtures(), st.floats(1e-9, 1 - 1e-9), st.floats(0, 5))
def test_tradeoff_lies_above_every_line_of_the_profile(profile, fpr, epsilon):
    fnr = profile.tradeoff(fpr)
    delta = profile.delta(epsilon)
    assert 0.0 <= fnr <= 1.0 - fpr
    assert fnr >= 1 - delta - math.exp(epsilon) * fpr - 1e-10
    assert fnr >= math.exp(-epsilon) * (1 - delta - fpr) - 1e-10


@modest
@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_log_delta_is_never_nan(mu, epsilon):
    value = float(log_delta(mu, epsilon))
    assert value <= 0.0


@modest
@given(mus, st.floats(0, 1e3), st.floats(1e-6, 1.0))
def test_delta_grows_with_mu(mu, epsilon, step):
    assert log_delta(mu * (1 + step), epsilon) >= log_delta(mu, epsilon) - 1e-11
