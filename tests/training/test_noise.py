import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from noisycgd.training import predictable_randomness, system_randomness
from noisycgd.training.noise import _threefry, random_bits, standard_normal

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


@pytest.mark.parametrize("shape", [(), (1,), (7,), (13, 31), (784, 297), (3, 5, 7)])
@pytest.mark.parametrize("wide", [False, True])
def test_standard_normals_are_those_of_jax(shape, wide):
    with jax.enable_x64(wide):
        for seed in range(3):
            key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), 5)
            actual = jax.jit(standard_normal, static_argnums=1)(key, shape)
            expected = jax.random.normal(key, shape, jnp.float32)
            assert (actual.shape, actual.dtype) == (shape, jnp.float32)
            np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (13, 31), (784, 297)])
def test_fine_noise_is_drawn_in_float64_where_there_is_one(shape):
    key = jax.random.key(1, impl="threefry2x32")
    draw = jax.jit(standard_normal, static_argnums=(1, 2))
    assert draw(key, shape, True).dtype == jnp.float32
    with jax.enable_x64(True):
        fine = draw(key, shape, True)
        assert (fine.dtype, fine.shape) == (jnp.float64, shape)
        np.testing.assert_allclose(fine, jax.random.normal(key, shape, jnp.float64), rtol=1e-12, atol=1e-14)


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
