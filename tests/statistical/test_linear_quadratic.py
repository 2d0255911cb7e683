"""Runs whose last iterate is exactly Gaussian, so that the true mu between two neighbours is known in closed form."""

import numpy as np
import pytest

from noisycgd.accounting import constant_multipliers, multipliers


def random_run(rng, *, curved):
    """Quadratic records in one dimension: batch curvatures h'' in [0, beta - l2], any admissible learning rates."""
    k, epochs = int(rng.integers(1, 8)), int(rng.integers(1, 40))
    T = k * epochs - int(rng.integers(0, k))
    l2 = rng.choice([0.0, 0.02, 0.3])
    beta = l2 + rng.uniform(0.5, 2.0)
    rates = rng.uniform(0.05, 1.0, T) * 2 / beta
    curvature = rng.uniform(0, beta - l2, k) * curved
    return k, rates, l2, beta, curvature


def exact_mu(k, rates, l2, curvature, position, noise_multiplier, signs=None):
    """|difference of means| / std of the last iterate; both runs share the affine maps, so the std is common.

    A replaced quadratic record moves its batch's gradient by at most 2 C / b, here in the direction `signs`; the unit
    is C / b.
    """
    difference = variance = 0.0
    for t, eta in enumerate(rates):
        slope = 1 - eta * (l2 + curvature[t % k])
        shift = 2 * eta * (1.0 if signs is None else signs[t]) if t % k == position else 0.0
        difference = slope * difference + shift
        variance = slope**2 * variance + (eta * noise_multiplier) ** 2
    return abs(difference) / np.sqrt(variance)


def worst_signs(k, rates, l2, curvature):
    """Directions that make every shift add up at the end: the sign of the later slopes' product."""
    slopes = np.array([1 - eta * (l2 + curvature[t % k]) for t, eta in enumerate(rates)])
    return np.append(np.cumprod(np.where(slopes < 0, -1.0, 1.0)[:0:-1])[::-1], 1.0)


def claimed_mu(k, rates, l2, beta, noise_multiplier):
    contractions = np.maximum(np.abs(1 - rates * l2), np.abs(1 - rates * beta))
    return 2 * multipliers(rates, contractions, k) / noise_multiplier


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_no_quadratic_run_exceeds_the_claim(seed, curved):
    rng = np.random.default_rng(seed)
    k, rates, l2, beta, curvature = random_run(rng, curved=curved)
    claimed = claimed_mu(k, rates, l2, beta, 3.0)
    signs = worst_signs(k, rates, l2, curvature)
    for position in range(min(k, len(rates))):
        constant = exact_mu(k, rates, l2, curvature, position, 3.0)
        worst = exact_mu(k, rates, l2, curvature, position, 3.0, signs)
        assert constant <= worst * (1 + 1e-12)
        assert worst <= claimed[position]


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4])
def test_the_claim_is_nearly_attained(position):
    # Without curvature, l2 or decay the shifts add up and so does the noise. Early positions pool all their uses in one
    # block, where the claim differs from the truth only by the noise before the first use. This is the negative
    # control: a claim 5 % smaller would have been refuted.
    k, T = 10, 1000
    exact = exact_mu(k, np.full(T, 0.5), 0.0, np.zeros(k), position, 3.0)
    claimed = 2 * constant_multipliers(k, T // k, 0.0)[position] / 3.0
    assert 0.95 * claimed < exact <= claimed


def test_one_use_at_the_last_step_is_attained_exactly():
    # One epoch, no earlier noise survives a contraction of 0: truth and claim coincide.
    rates = np.full(4, 1.0)
    exact = exact_mu(4, rates, 1.0, np.zeros(4), 3, 3.0)
    claimed = claimed_mu(4, rates, 1.0, 1.0, 3.0)[3]
    assert exact == pytest.approx(claimed, rel=1e-11)
    assert exact <= claimed
