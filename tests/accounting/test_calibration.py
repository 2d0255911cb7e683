import json
from pathlib import Path

import numpy as np
import pytest

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import (
    batch_weights,
    calibrate_noise,
    constant_multipliers,
    gaussian_mu,
    hidden_state_profile,
)
from noisycgd.types import CYCLIC_ORDERS, EpsilonDelta, GaussianMu, NoiseMultiplier, Order

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
MULTIPLIERS = constant_multipliers(60, 400, 5.4e-5)


@pytest.mark.parametrize("order", CYCLIC_ORDERS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.33, 8.0, 1e3])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12, 1e-300])
def test_ends_on_the_private_side_and_is_smallest(order, epsilon, delta):
    noise = calibrate_noise(MULTIPLIERS, EpsilonDelta(epsilon, delta), order)
    profile = hidden_state_profile(MULTIPLIERS, noise, order)
    assert profile.delta(epsilon) <= delta
    assert profile.epsilon(delta) <= epsilon
    assert hidden_state_profile(MULTIPLIERS, noise * (1 - 1e-10), order).delta(epsilon) > delta


@pytest.mark.parametrize(("k", "epochs", "eta_l2", "noise", "epsilon"), ORACLES["permuted_epsilon"])
def test_inverts_the_permuted_oracle(k, epochs, eta_l2, noise, epsilon):
    m = constant_multipliers(k, epochs, eta_l2)
    assert calibrate_noise(m, EpsilonDelta(epsilon, 1e-5), Order.PERMUTED) == pytest.approx(noise, rel=1e-7)


def test_given_order_is_the_gaussian_inversion():
    noise = calibrate_noise(MULTIPLIERS, EpsilonDelta(1.33, 1e-5), Order.GIVEN)
    assert noise == pytest.approx(2 * MULTIPLIERS.max() / gaussian_mu(1.33, 1e-5), rel=1e-11)


def test_weights_matter():
    # 2.5 batches: the last, worst batch is half as likely.
    m, weights = constant_multipliers(3, 20, 0.01), batch_weights(250, 100)
    target = EpsilonDelta(1.0, 1e-3)
    noise = calibrate_noise(m, target, Order.PERMUTED, weights)
    assert noise < calibrate_noise(m, target, Order.PERMUTED) < calibrate_noise(m, target, Order.GIVEN)
    assert hidden_state_profile(m, noise, Order.PERMUTED, weights).epsilon(1e-3) <= 1.0


@pytest.mark.parametrize("mu", [1e-6, 0.1, 1 / 3, 7.0])
@pytest.mark.parametrize("order", CYCLIC_ORDERS)
def test_mu_target_binds_the_worst_position(mu, order):
    noise = calibrate_noise(MULTIPLIERS, GaussianMu(mu, 1e-5), order)
    assert hidden_state_profile(MULTIPLIERS, noise, order).mu <= mu
    assert hidden_state_profile(MULTIPLIERS, noise, order).mu == pytest.approx(mu, rel=1e-15)


def test_a_noise_multiplier_is_itself():
    assert calibrate_noise(MULTIPLIERS, NoiseMultiplier(15.0, 1e-5), Order.PERMUTED) == 15.0


def test_positions_that_are_never_used():
    m, target = [0.0, 0.0, 1.0], EpsilonDelta(1.0, 1e-5)
    noise = calibrate_noise(m, target, Order.PERMUTED)
    assert hidden_state_profile(m, noise, Order.PERMUTED).epsilon(1e-5) == pytest.approx(1.0, rel=1e-10)
    with pytest.raises(ParameterError, match="Any noise would meet this target"):
        calibrate_noise(m, EpsilonDelta(1.0, 0.4), Order.PERMUTED)
    with pytest.raises(ParameterError, match="multipliers must be"):
        calibrate_noise([0.0], target, Order.GIVEN)


def test_usual_targets_lose_nothing():
    noise = calibrate_noise(MULTIPLIERS, EpsilonDelta(1.33, 1e-5), Order.PERMUTED)
    assert hidden_state_profile(MULTIPLIERS, noise * (1 - 1e-12), Order.PERMUTED).epsilon(1e-5) > 1.33


def test_a_wide_mixture():
    m = np.logspace(-6, 2, 30)
    for epsilon, delta in [(1e-3, 0.9), (1.0, 0.03), (10.0, 1e-9)]:
        noise = calibrate_noise(m, EpsilonDelta(epsilon, delta), Order.PERMUTED)
        assert hidden_state_profile(m, noise, Order.PERMUTED).epsilon(delta) <= epsilon
        assert hidden_state_profile(m, noise * (1 - 1e-9), Order.PERMUTED).epsilon(delta) > epsilon


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (EpsilonDelta(-1.0, 1e-5), "epsilon"),
        (EpsilonDelta(np.nan, 1e-5), "epsilon"),
        (EpsilonDelta(1.0, 0.0), "delta"),
        (GaussianMu(0.0, 1e-5), "mu"),
        (GaussianMu(1e-320, 1e-5), "mu"),
        (EpsilonDelta(1e308, 1e-5), "epsilon"),
        (GaussianMu(1.0, 1.0), "delta"),
        (NoiseMultiplier(0.0, 1e-5), "noise_multiplier"),
        (NoiseMultiplier(np.inf, 1e-5), "noise_multiplier"),
    ],
)
def test_refusals(target, name):
    with pytest.raises(ParameterError, match=f"^{name} must be"):
        calibrate_noise(MULTIPLIERS, target, Order.PERMUTED)


def test_bad_weights_and_types():
    with pytest.raises(ParameterError, match="weights must be"):
        calibrate_noise([1.0, 2.0], EpsilonDelta(1.0, 1e-5), Order.PERMUTED, [1.0])
    with pytest.raises(ParameterTypeError, match="target must be"):
        calibrate_noise([1.0, 2.0], 1.0, Order.PERMUTED)
