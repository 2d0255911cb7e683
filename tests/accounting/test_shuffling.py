import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile
from noisycgd.accounting.shuffling import _clone_counts, _divergence, shuffling_epsilon

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def enumerated_divergence(n, e0, epsilon):
    """H of the two laws of (first, second) by enumerating every clone, every coin and the final bit."""
    clone, p = math.exp(-e0), math.exp(e0) / (math.exp(e0) + 1)
    laws = {}, {}
    for clones in itertools.product((0, 1), repeat=n - 1):
        for coins in itertools.product((0, 1), repeat=sum(clones)):
            weight = 0.5 ** len(coins) * math.prod(clone if x else 1 - clone for x in clones)
            a, c = sum(coins), len(coins)
            for bit, chance in ((1, p), (0, 1 - p)):
                for law, key in zip(laws, ((a + bit, c - a + 1 - bit), (a + 1 - bit, c - a + bit)), strict=True):
                    law[key] = law.get(key, 0.0) + weight * chance
    return sum(max(0.0, x - math.exp(epsilon) * laws[1].get(key, 0.0)) for key, x in laws[0].items())


def summed_divergence(n, e0, epsilon):
    """The same by plain sums over C and the first coordinate."""
    p, total = math.exp(e0) / (math.exp(e0) + 1), 0.0
    for count in range(n):
        weight = binom.pmf(count, n - 1, math.exp(-e0))
        if weight > 1e-20:
            x = np.arange(count + 2)
            b, shifted = binom.pmf(x, count, 0.5), binom.pmf(x - 1, count, 0.5)
            gap = p * shifted + (1 - p) * b - math.exp(epsilon) * ((1 - p) * shifted + p * b)
            total += weight * np.maximum(gap, 0.0).sum()
    return total


def divergence(n, e0, epsilon, delta=1e-5):
    counts, weights, missing = _clone_counts(n, e0, delta)
    return _divergence(counts, weights, e0, math.exp(epsilon))[0] + missing


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("e0", [0.05, 0.7, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_divergence_is_the_enumerated_one(n, e0, share):
    exact = enumerated_divergence(n, e0, share * e0)
    assert summed_divergence(n, e0, share * e0) == pytest.approx(exact, rel=1e-12)
    assert exact * (1 - 1e-12) <= divergence(n, e0, share * e0) <= exact * (1 + 1e-8) + 1e-13


def test_a_wrong_clone_probability_is_seen_by_the_twin():
    # Negative control: the 2023 parameter 2 / (e^e0 + 1) would give another, smaller number.
    counts = np.arange(8.0)
    weights = binom.pmf(counts, 7, 2 / (math.exp(2.0) + 1))
    assert _divergence(counts, weights, 2.0, 1.5)[0] < 0.9 * enumerated_divergence(8, 2.0, math.log(1.5))


@pytest.mark.parametrize(("n", "e0", "epsilon"), [(300, 2.0, 0.5), (1000, 2.27, 0.6), (2000, 1.0, 0.2)])
def test_truncation_keeps_an_upper_bound(n, e0, epsilon):
    exact = summed_divergence(n, e0, epsilon)
    assert exact * (1 - 1e-10) <= divergence(n, e0, epsilon) <= exact * (1 + 1e-7) + 2e-9 * 1e-5
    counts, weights, missing = _clone_counts(n, e0, 1e-5)
    assert 1.0 <= weights.sum() + missing <= 1.0 + 1e-8
    assert missing <= 2e-9 * 1e-5
    assert counts.size < n


def test_slope_is_the_derivative():
    counts, weights, _ = _clone_counts(500, 1.5, 1e-5)
    for c in (1.1, 1.7, 3.0):
        (low, _), (_, slope), (high, _) = (_divergence(counts, weights, 1.5, x) for x in (c - 1e-6, c, c + 1e-6))
        assert (high - low) / 2e-6 == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(("batches", "noise", "epsilon"), ORACLES["shuffle_epsilon"])
def test_oracles(batches, noise, epsilon):
    # The oracle at 1000 batches was read off a grid of e0, 1.3 % above the minimum (checked by the next test).
    bound = shuffling_epsilon(batches, noise, 1e-5)
    assert 0.985 * epsilon <= bound.shuffling_epsilon <= epsilon
    assert bound.gaussian_epsilon == pytest.approx(1.55498, abs=1e-5)
    assert bound.method == ("shuffling" if batches == 1000 else "gaussian")
    assert bound.epsilon == min(bound.shuffling_epsilon, bound.gaussian_epsilon)


def test_is_the_minimum_over_local_epsilons_of_the_plain_formula():
    n, local, delta = 200, GaussianProfile(0.4), 1e-4
    bound = shuffling_epsilon(n, 5.0, delta)

    def plain(e0):
        def excess(epsilon):
            slack = (math.exp(epsilon) + 1) * (1 + math.exp(-e0) / 2) * n * local.delta(e0)
            return summed_divergence(n, e0, epsilon) + slack - delta

        grid = np.linspace(0.0, e0, 15)
        values = [excess(e) for e in grid]
        first = next((i for i, v in enumerate(values) if v <= 0), None)
        return math.inf if first is None else brentq(excess, grid[first - 1], grid[first])

    assert bound.shuffling_epsilon == pytest.approx(plain(bound.local_epsilon), rel=1e-7)
    around = [plain(bound.local_epsilon * factor) for factor in (0.97, 0.999, 1.001, 1.1)]
    assert min(around) >= bound.shuffling_epsilon * (1 - 1e-7)


def test_monotone():
    for values in (
        [shuffling_epsilon(n, 5.0, 1e-5).epsilon for n in (10, 300, 3000)],
        [shuffling_epsilon(500, noise, 1e-5).epsilon for noise in (0.5, 5.0, 50.0)],
        [shuffling_epsilon(500, 5.0, delta).epsilon for delta in (1e-12, 1e-5, 0.1)],
    ):
        assert values == sorted(values, reverse=True)
        assert values[-1] < values[0]


def test_no_jump_in_the_noise():
    values = [shuffling_epsilon(300, noise, 1e-5).shuffling_epsilon for noise in np.linspace(4.0, 4.1, 6)]
    steps = -np.diff(values)
    assert 0 < steps.min() <= steps.max() < 1.5 * steps.min()


@pytest.mark.parametrize(
    ("batches", "noise", "delta"),
    [(1, 5.0, 1e-5), (10**6, 1.0, 1e-8), (60, 1e-2, 1e-5), (60, 1e6, 1e-5), (1000, 5.0, 1e-300), (10, 1e-200, 0.1)],
)
def test_extreme_inputs(batches, noise, delta):
    bound = shuffling_epsilon(batches, noise, delta)
    gaussian = GaussianProfile(2.0 / noise).epsilon(delta)
    assert 0.0 <= bound.epsilon <= gaussian == bound.gaussian_epsilon
    assert math.isnan(bound.local_epsilon) == math.isinf(bound.shuffling_epsilon)
    assert (bound.batches, bound.noise_multiplier, bound.delta) == (batches, noise, delta)


@pytest.mark.parametrize(
    ("batches", "noise", "delta"),
    [(0, 5.0, 1e-5), (10, 0.0, 1e-5), (10, math.nan, 1e-5), (10, -1.0, 1e-5), (10, 5.0, 0.0), (10, 5.0, 1.0)],
)
def test_refuses(batches, noise, delta):
    with pytest.raises(ParameterError, match="must be"):
        shuffling_epsilon(batches, noise, delta)


def test_refuses_types():
    with pytest.raises(ParameterTypeError, match="batches must be an integer"):
        shuffling_epsilon(10.0, 5.0, 1e-5)
