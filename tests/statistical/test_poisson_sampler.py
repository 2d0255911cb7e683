"""The sampler's law is the one accounted for: each record in each batch independently, with probability b / n.

Every draw is seeded; LEVEL is the error probability that each test would have under fresh randomness. Each test also
rejects samplers that are common in its place: batches of fixed size, batches dealt from a shuffle, a rate 3 % too high.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from noisycgd.accounting import GaussianProfile
from noisycgd.training import predictable_randomness, system_randomness
from noisycgd.training.poisson import normal_like, sample_mask, step_keys, train_poisson
from noisycgd.types import PoissonPlan

LEVEL = 1e-6
N, B, STEPS = 200, 20, 20_000
RATE = B / N


def poisson_batches(seed, rate=RATE):
    """(STEPS, N) masks of one long epoch, as a run draws them."""
    stream = step_keys(jax.random.key(seed))[0]
    draw = jax.jit(jax.vmap(lambda t: sample_mask(jax.random.fold_in(stream, t), N, rate)))
    return np.asarray(draw(jnp.arange(STEPS)))


def fixed_size_batches(generator):
    """Exactly B records without replacement."""
    places = generator.permuted(np.tile(np.arange(N), (STEPS, 1)), axis=1)
    return places < B


def dealt_batches(generator):
    """Every epoch a new shuffle, cut into N / B batches."""
    epochs = STEPS * B // N
    places = generator.permuted(np.tile(np.arange(N), (epochs, 1)), axis=1)
    return (places[:, None, :] // B == np.arange(N // B)[:, None]).reshape(STEPS, N)


def size_pvalue(batches):
    """Chi-square test that batch sizes are Binomial(N, RATE); rare sizes are pooled at both ends."""
    law = stats.binom(N, RATE)
    low, high = int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3))
    sizes = np.clip(batches.sum(axis=1), low, high)
    observed = np.bincount(sizes - low, minlength=high - low + 1)
    probabilities = law.pmf(np.arange(low, high + 1))
    probabilities[0], probabilities[-1] = law.cdf(low), law.sf(high - 1)
    return stats.chisquare(observed, STEPS * probabilities).pvalue


def total_pvalue(batches):
    """Exact test of the overall rate."""
    return stats.binomtest(int(batches.sum()), batches.size, RATE).pvalue


def record_pvalue(batches):
    """Two-sided chi-square test that the records' counts spread around STEPS RATE as independent draws do."""
    counts = batches.sum(axis=0)
    p = stats.chi2(N).sf(np.sum((counts - STEPS * RATE) ** 2) / (STEPS * RATE * (1 - RATE)))
    return 2 * min(p, 1 - p)


def pair_pvalue(batches):
    """Exact test that both records of a pair are in a batch with probability RATE^2, over disjoint pairs."""
    both = batches[:, ::2] & batches[:, 1::2]
    return stats.binomtest(int(both.sum()), both.size, RATE**2).pvalue


def succession_pvalue(batches, lag=1):
    """Exact test that a record is in two batches, `lag` steps apart, with probability RATE^2, over disjoint pairs."""
    groups = batches[: STEPS // (2 * lag) * 2 * lag].reshape(-1, 2, lag, N)
    both = groups[:, 0] & groups[:, 1]
    return stats.binomtest(int(both.sum()), both.size, RATE**2).pvalue


TESTS = [size_pvalue, total_pvalue, record_pvalue, pair_pvalue, succession_pvalue]


@pytest.fixture(scope="module")
def batches():
    return poisson_batches(1)


@pytest.mark.parametrize("test", TESTS)
def test_batches_follow_the_accounted_law(batches, test):
    assert test(batches) > LEVEL


@pytest.mark.parametrize("lag", [2, 3, 10])
def test_distant_steps_are_independent(batches, lag):
    assert succession_pvalue(batches, lag) > LEVEL


def test_epochs_are_independent():
    first, second = poisson_batches(2), poisson_batches(3)
    both = first & second
    assert stats.binomtest(int(both.sum()), both.size, RATE**2).pvalue > LEVEL
    # Negative control: a key that were used again would be found.
    assert stats.binomtest(int(first.sum()), first.size, RATE**2).pvalue < LEVEL


@pytest.mark.parametrize("test", TESTS)
def test_a_rate_three_per_cent_too_high_is_found(test):
    assert test(poisson_batches(4, 1.03 * RATE)) < LEVEL


def test_fixed_sizes_are_found():
    batches = fixed_size_batches(np.random.default_rng(5))
    assert size_pvalue(batches) < LEVEL
    # Of two records one takes the other's place.
    assert pair_pvalue(batches) < LEVEL
    # What is right about them is not blamed.
    assert record_pvalue(batches) > LEVEL
    assert succession_pvalue(batches) > LEVEL


def test_dealt_batches_are_found():
    batches = dealt_batches(np.random.default_rng(6))
    assert size_pvalue(batches) < LEVEL
    # A record that was in the last batch is not in the next one of the same epoch.
    assert succession_pvalue(batches) < LEVEL
    # All records are in equally many batches.
    assert record_pvalue(batches) < LEVEL


@pytest.mark.parametrize("rate", [0.3, 1 / 3, 1 / 60, 2.0**-31, 1 - 2.0**-40])
def test_the_rate_used_is_rounded_down(monkeypatch, rate):
    # The largest t with t / 2^32 <= rate decides: t words are in, not one more.
    threshold = int(rate * 2**32)
    assert threshold / 2**32 <= rate < (threshold + 1) / 2**32
    words = jnp.asarray([0, threshold - 1, threshold, 2**32 - 1], jnp.uint32)
    monkeypatch.setattr("noisycgd.training.poisson.random_bits", lambda key, shape: words)
    np.testing.assert_array_equal(sample_mask(jax.random.key(0), 4, rate), [True, True, False, False])


def test_a_rate_below_the_grid_takes_nobody():
    assert not np.asarray(sample_mask(jax.random.key(0), 1000, 2.0**-33)).any()


def test_noise_and_batches_come_from_different_streams():
    sampling, noise = step_keys(jax.random.key(5))
    keys = [jax.random.fold_in(stream, t) for stream in (sampling, noise) for t in range(50)]
    keys += [jax.random.fold_in(key, 0) for key in keys[50:]] + [sampling, noise, jax.random.key(5)]
    assert len({tuple(np.asarray(jax.random.key_data(key))) for key in keys}) == len(keys)
    # Noise on the records' own counters tells nothing about who is in the batch; of the same key it would tell all.
    n = 20_000
    mask = np.asarray(sample_mask(jax.random.fold_in(sampling, 3), n, 0.1))
    own = np.asarray(normal_like(jax.random.fold_in(noise, 3), jnp.zeros(n)))
    same = np.asarray(jax.random.normal(jax.random.fold_in(sampling, 3), (n,)))
    assert stats.ks_2samp(own[mask], own[~mask]).pvalue > 1e-6
    assert stats.ks_2samp(same[mask], same[~mask]).pvalue < 1e-100


@pytest.mark.parametrize("b", [10, 40])
def test_noise_has_the_planned_scale_and_is_independent_between_leaves_and_steps(b):
    n, size, epochs = 40, 5000, 3
    records, start = np.zeros(n, np.float32), {"one": np.zeros(size, np.float32), "two": np.zeros(size, np.float32)}

    class Still:
        def clipped_sum(self, parameters, records, present):
            return jax.tree.map(jnp.zeros_like, parameters)

    jax.tree_util.register_static(Still)
    rates = np.full(epochs * -(-n // b), 0.5)
    plan = PoissonPlan(n, b, epochs, rates, 0.0, 0.7, 2.0, GaussianProfile(1.0), delta=1e-5, epsilon=1.0)
    with predictable_randomness(8):
        last = train_poisson(records, Still(), start, plan, system_randomness())
    std = 0.5 * np.sqrt(plan.steps) * 0.7 * 2.0 / b

    def has_scale(sample, std):
        p = stats.chi2(sample.size).cdf(np.sum((sample.astype(np.float64) / std) ** 2))
        return 2 * min(p, 1 - p) > 1e-6

    for leaf in last.values():
        assert has_scale(leaf, std)
        assert not has_scale(leaf, 0.9 * std)
        assert not has_scale(leaf, 1.1 * std)
    # Fisher's test at level 1e-6; a shared tenth of the noise's size would be refused.
    assert abs(np.corrcoef(*last.values())[0, 1]) < 4.9 / np.sqrt(size)
