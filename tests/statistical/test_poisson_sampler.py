"""The sampler's law is the one accounted for: each record in each batch independently, with probability b / n.

Every draw is seeded; LEVEL is the error probability that each test would have under fresh randomness. Each test also
rejects samplers that are common in its place: batches of fixed size, batches dealt from a shuffle, a rate 3 % too high.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from noisycgd.training.poisson import sample_mask, step_keys

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
