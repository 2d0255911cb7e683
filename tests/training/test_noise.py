import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from noisycgd._validation import ParameterError
from noisycgd.training import noise, predictable_randomness, system_randomness
from noisycgd.training.noise import REACH, _normal_of, _threefry, double_normal, random_bits, standard_normal

LEVEL = 1e-9
"""Error probability of each statistical test; operating-system randomness is replaced by a seeded stream."""


def words(key):
    return tuple(int(w) for w in jax.random.key_data(key))


@pytest.fixture
def seeded_system(monkeypatch):
    generator = np.random.default_rng(20)
    monkeypatch.setattr(os, "urandom", generator.bytes)


def uniformity(draw, draws):
    """p-value of the chi-square test that `draw()` is uniform over the 24 permutations of 4."""
    counts = {}
    for _ in range(draws):
        order = tuple(int(i) for i in draw())
        assert sorted(order) == [0, 1, 2, 3]
        counts[order] = counts.get(order, 0) + 1
    observed = np.array([*counts.values(), *[0] * (24 - len(counts))])
    return stats.chisquare(observed).pvalue


def swap_with_any(generator):
    """The well-known wrong shuffle: every place is swapped with any place."""
    order = [0, 1, 2, 3]
    for i in range(4):
        j = int(generator.integers(4))
        order[i], order[j] = order[j], order[i]
    return order


def test_permutations_are_uniform(seeded_system):
    assert uniformity(lambda: system_randomness().permutation(4), 6000) > LEVEL


def test_a_biased_shuffle_is_found():
    generator = np.random.default_rng(21)
    assert uniformity(lambda: swap_with_any(generator), 6000) < LEVEL


def test_every_place_of_a_longer_permutation_is_uniform(seeded_system):
    n, draws = 50, 2000
    counts = np.zeros((n, n))
    for _ in range(draws):
        counts[np.arange(n), system_randomness().permutation(n)] += 1
    # Rows and columns sum to `draws`, which leaves (n - 1)^2 degrees of freedom; the factor is the exact mean's.
    statistic = ((counts - draws / n) ** 2 / (draws / n)).sum() * (n - 1) / n
    assert LEVEL / 2 < stats.chi2((n - 1) ** 2).cdf(statistic) < 1 - LEVEL / 2


def test_ties_are_redrawn(monkeypatch):
    tied = np.array([5, 5, 7], np.uint64).tobytes()
    draws = [tied, tied, np.array([9, 1, 4], np.uint64).tobytes()]
    monkeypatch.setattr(os, "urandom", lambda size: draws.pop(0))
    np.testing.assert_array_equal(system_randomness().permutation(3), [1, 2, 0])
    assert not draws


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_a_permutation_holds_every_record_once(n):
    order = system_randomness().permutation(n)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


def test_keys_are_fresh_per_epoch_and_per_fit():
    # Two of 200 64-bit keys agree with probability 1e-15.
    one, other = system_randomness(), system_randomness()
    keys = {words(source.key()) for source in (one, other) for _ in range(100)}
    assert len(keys) == 200
    assert one.secret
    assert other.secret


def test_key_bits_are_unbiased(seeded_system):
    # Each of 64 bits over 1000 keys, Bonferroni over the bits.
    source = system_randomness()
    drawn = np.array([words(source.key()) for _ in range(1000)], np.uint32)
    ones = np.unpackbits(drawn.view(np.uint8), axis=1).sum(axis=0)
    assert len(ones) == 64
    assert all(stats.binomtest(int(count), 1000).pvalue > LEVEL / 64 for count in ones)


def test_keys_use_the_operating_systems_bytes_whole(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(1, size + 1)))
    assert words(system_randomness().key()) == (0x04030201, 0x08070605)


def test_predictable_randomness_repeats():
    def draw(seed):
        with predictable_randomness(seed):
            source = system_randomness()
            return [words(source.key()), words(source.key()), tuple(source.permutation(20)), source.secret]

    assert draw(3) == draw(3)
    assert draw(3)[:3] != draw(4)[:3]
    first, second, _, secret = draw(3)
    assert first != second
    assert secret is False


def test_predictable_randomness_ends_with_its_context():
    with predictable_randomness(1):
        with predictable_randomness(2):
            inner = words(system_randomness().key())
        outer = words(system_randomness().key())
    assert system_randomness().secret
    with predictable_randomness(1):
        assert words(system_randomness().key()) == outer
    with predictable_randomness(2):
        assert words(system_randomness().key()) == inner


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_predictable_randomness_ends_with_an_exception(error):
    with pytest.raises(error), predictable_randomness(1):
        raise error
    assert system_randomness().secret


def test_predictable_randomness_stays_in_its_thread():
    seen = []
    with predictable_randomness(1):
        thread = threading.Thread(target=lambda: seen.append(system_randomness().secret))
        thread.start()
        thread.join()
        assert not system_randomness().secret
    assert seen == [True]


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_reproduces_the_published_vectors(key, counter, expected):
    # Random123's known answers for threefry2x32 with 20 rounds.
    x, y = (jnp.asarray([word], jnp.uint32) for word in counter)
    assert tuple(int(word[0]) for word in _threefry(jnp.asarray(key, jnp.uint32), x, y)) == expected


@pytest.mark.parametrize("shape", [(), (1,), (7,), (13, 31), (60_000,), (3, 5, 7)])
@pytest.mark.parametrize("wide", [False, True])
def test_random_bits_are_those_of_jax(shape, wide):
    with jax.enable_x64(wide):
        key = jax.random.fold_in(jax.random.key(4, impl="threefry2x32"), 5)
        actual = jax.jit(random_bits, static_argnums=1)(key, shape)
        assert (actual.shape, actual.dtype) == (shape, jnp.uint32)
        np.testing.assert_array_equal(actual, jax.random.bits(key, shape, jnp.uint32))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (13, 31), (784, 297), (3, 5, 7), (0, 4), (2, 1, 3, 4)])
@pytest.mark.parametrize("wide", [False, True])
def test_standard_normals_are_those_of_the_twin(normals, shape, wide):
    with jax.enable_x64(wide):
        for seed in range(3):
            key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), 5)
            actual = jax.jit(standard_normal, static_argnums=1)(key, shape)
            assert (actual.shape, actual.dtype) == (shape, jnp.float32)
            np.testing.assert_allclose(actual, normals(key, shape), rtol=5e-7)


def test_standard_normals_under_transformations_are_the_same(normals):
    keys = jax.random.split(jax.random.key(2), 4)
    expected = np.array([normals(key, (5, 3)) for key in keys])
    np.testing.assert_allclose(jax.vmap(lambda key: standard_normal(key, (5, 3)))(keys), expected, rtol=5e-7)
    scanned = jax.lax.scan(lambda carry, key: (carry, standard_normal(key, (5, 3))), 0, keys)[1]
    np.testing.assert_allclose(scanned, expected, rtol=5e-7)


def test_arrays_of_more_numbers_are_refused():
    key = jax.random.key(0)
    for shape in [(2**30 + 1,), (1, 2**31), (1, 2**16, 2**15)]:
        with pytest.raises(ParameterError, match=r"shape of noise must be of at most 2\^30 numbers"):
            jax.eval_shape(lambda key, shape=shape: standard_normal(key, shape), key)
    assert jax.eval_shape(lambda key: standard_normal(key, (2**15, 2**15)), key).shape == (2**15, 2**15)


def words_of(numbers):
    return (numbers >> 32).astype(np.uint32), (numbers % 2**32).astype(np.uint32)


def test_every_word_becomes_its_normal(exact_normals):
    """Within 5e-7 of its size, whether the tail probability or its complement is tiny."""
    generator = np.random.default_rng(1)
    small = np.unique(2.0 ** generator.uniform(0, 63, 300_000)).astype(np.uint64)
    ends = np.array([0, 1, 2**32 - 1, 2**32, 2**62, 2**63 - 2, 2**63 - 1], np.uint64)
    high, low = words_of(np.concatenate([small, 2**63 - 1 - small, ends]))
    actual, expected = np.asarray(_normal_of(high, low)), exact_normals(high, low)
    assert expected.max() > 9.15
    assert expected.min() < 1e-19
    np.testing.assert_allclose(actual, expected, rtol=5e-7)
    np.testing.assert_array_equal(_normal_of(high ^ 2**31, low), -actual)
    # Negative control: 32 bits alone are not enough.
    assert not np.allclose(_normal_of(high, np.zeros_like(low)), expected, rtol=5e-7)


@pytest.mark.parametrize("shape", [(), (1,), (3, 70_000), (0, 4)])
def test_draws_in_double_precision_are_the_same_to_single_precision(shape):
    key = jax.random.key(5)
    found = double_normal(key, shape)
    assert (found.shape, found.dtype) == (shape, np.float64)
    np.testing.assert_allclose(found, standard_normal(key, shape), rtol=1e-6, atol=1e-12)


def test_draws_in_double_precision_end_where_single_ones_do(monkeypatch, exact_normals):
    numbers = np.concatenate([[0, 1, 5, 2**63 - 1], 2 ** np.arange(1, 63, 4)]).astype(np.uint64)
    high, low = words_of(np.concatenate([numbers, numbers + np.uint64(2**63)]))
    monkeypatch.setattr(noise, "_words", lambda key, shape: (high, low))
    found = double_normal(None, high.shape)
    expected = exact_normals(high[: len(numbers)], low[: len(numbers)])
    # Near the middle a number of 63 bits is one of 53.
    np.testing.assert_allclose(found[: len(numbers)], expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found[len(numbers) :], -found[: len(numbers)])
    assert found.max() == REACH


@pytest.fixture(scope="module")
def sample():
    """(4, 1000, 1000) normals."""
    return np.asarray(standard_normal(jax.random.key(11), (4, 1000, 1000)), np.float64)


def test_draws_are_gaussian(sample):
    z = sample.ravel()

    def fits(z):
        squares = stats.chi2(z.size).cdf(np.sum(z**2))
        return stats.kstest(z, "norm").pvalue > LEVEL, LEVEL / 2 < squares < 1 - LEVEL / 2

    assert fits(z) == (True, True)
    assert stats.binomtest(int((z < 0).sum()), z.size).pvalue > LEVEL
    assert fits(0.99 * z) == (False, False)


def test_neighbours_and_signs_are_independent(sample):
    def uncorrelated(a, b):
        return 2 * stats.norm.sf(abs(np.arctanh(np.corrcoef(a.ravel(), b.ravel())[0, 1])) * np.sqrt(a.size - 3)) > LEVEL

    size = np.abs(sample)
    for axis in range(3):
        first, second = (np.take(sample, places, axis) for places in (range(3), range(1, 4)))
        assert uncorrelated(first, second)
        assert uncorrelated(first**2, second**2)
        assert not uncorrelated(first, second + 0.1 * first)
    assert uncorrelated(np.sign(sample), size)
    assert not uncorrelated(np.sign(sample + 0.01), size)


def test_tails_are_as_heavy_as_they_should_be():
    """Draws beyond 4 and 5 standard deviations, counted in a hundred million, are Poisson."""
    cuts, n = jnp.asarray([4.0, 5.0, 4.0 / 0.99]), 10**8

    @jax.jit
    def count(key):
        def add(total, t):
            z = jnp.abs(standard_normal(jax.random.fold_in(key, t), (500, 1000)))
            return total + jnp.stack([jnp.sum(z > cut) for cut in cuts]), None

        return jax.lax.scan(add, jnp.zeros(3, jnp.int32), jnp.arange(n // 500_000))[0]

    def is_poisson(found, cut):
        law = stats.poisson(2 * n * stats.norm.sf(cut))
        return min(law.cdf(found), law.sf(found - 1)) > LEVEL / 2

    beyond_4, beyond_5, shrunk = (int(found) for found in count(jax.random.key(12)))
    assert is_poisson(beyond_4, 4.0)
    assert is_poisson(beyond_5, 5.0)
    # Negative control: noise scaled by 0.99.
    assert not is_poisson(shrunk, 4.0)


@pytest.mark.parametrize("bits", [5, 12, 18, 40])
def test_far_tails_have_the_gaussian_law(bits):
    """Words that begin with zeros are those of the tail: there, its probability must be uniform."""
    numbers = np.random.default_rng(13).integers(2**64, size=200_000, dtype=np.uint64) >> bits + 1

    def is_uniform(numbers):
        z = np.asarray(_normal_of(*words_of(numbers)), np.float64)
        return stats.kstest(2 * stats.norm.sf(z) * 2.0**bits, "uniform").pvalue > LEVEL

    assert is_uniform(numbers)
    if bits > 12:
        # Negative control: with 23 bits for the size of a draw, tails have few values.
        assert not is_uniform((numbers >> 40 << 40) + 2**39)


def test_tails_are_not_on_the_grid_of_23_bits():
    """`jax.random.normal` takes 2^23 values, whose gaps a model of one step would show."""
    bits = jnp.arange(2**23, dtype=jnp.uint32)
    uniform = jax.lax.bitcast_convert_type(bits | 0x3F800000, jnp.float32) - 1
    low = jnp.nextafter(jnp.float32(-1), jnp.float32(0))
    grid = np.asarray(jnp.sqrt(jnp.float32(2)) * jax.lax.erf_inv(jnp.maximum(low, uniform * (1 - low) + low)))

    def share_on_grid(z):
        tail = np.asarray(z)[np.abs(z) > 2.5]
        assert len(tail) > 500
        return np.isin(tail, grid).mean()

    key = jax.random.key(0)
    assert share_on_grid(standard_normal(key, (100_000,))) < 0.1
    assert share_on_grid(jax.random.normal(key, (100_000,), jnp.float32)) > 0.5


class TestParts:
    def test_of_the_system_are_the_system(self):
        source = system_randomness()
        assert source.spawn(3) is source
        assert source.generator().random() != source.generator().random()

    def test_of_a_predictable_source_do_not_depend_on_what_was_drawn(self):
        with predictable_randomness(7):
            one, two = system_randomness(), system_randomness()
        one.key()
        one.permutation(5)
        assert words(one.spawn(2).key()) == words(two.spawn(2).key())
        assert words(one.spawn(2).spawn(0).key()) == words(two.spawn(2).spawn(0).key())
        assert not one.spawn(0).secret

    def test_differ_from_each_other(self):
        with predictable_randomness(7):
            source = system_randomness()
        parts = [source, *(source.spawn(i) for i in range(3)), source.spawn(0).spawn(0), source.spawn(0).spawn(1)]
        assert len({words(part.key()) for part in parts}) == len(parts)
        assert len({part.generator().random() for part in parts}) == len(parts)
