"""Where secret randomness comes from: the operating system, afresh in every fit.

`standard_normal` turns a key into noise, `double_normal` does for the few draws that must be float64.

Three streams leave this file: the permutation behind the batches (which may be published), the keys of the noise, and
generators for other secret choices, such as the number of trials (the last two are never stored).
`predictable_randomness` exists for tests alone; a model trained under it has no privacy, and its guarantee says so.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.chebyshev import chebpts1
from numpy.polynomial.polynomial import polyfit
from numpy.typing import NDArray
from scipy.special import ndtri

from noisycgd._validation import refuse


class Randomness(Protocol):
    """A source of permutations and noise keys."""

    secret: bool
    """Whether an adversary cannot predict what it draws."""

    def permutation(self, n_records: int) -> NDArray[np.int64]:
        """(n,) uniformly random permutation, independent of the data."""

    def key(self) -> jax.Array:
        """A noise key that was never handed out before."""

    def generator(self) -> np.random.Generator:
        """A generator of its own, for secret choices that are no noise: how many trials, and which candidates."""

    def spawn(self, index: int) -> Randomness:
        """A source of its own for part `index` of the work, so that parts may run in any order."""


class _SystemRandomness:
    secret = True

    def permutation(self, n_records: int) -> NDArray[np.int64]:
        # Sorting distinct uniform words is exactly uniform over permutations; ties are redrawn.
        while True:
            words = np.frombuffer(os.urandom(8 * n_records), np.uint64)
            order = np.argsort(words, kind="stable")
            ranked = words[order]
            if not (ranked[1:] == ranked[:-1]).any():
                return order

    def key(self) -> jax.Array:
        return _key(np.frombuffer(os.urandom(8), np.uint32))

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(int.from_bytes(os.urandom(32)))

    def spawn(self, index: int) -> Randomness:
        # Every draw is fresh, whoever asks for it.
        return self


class _PredictableRandomness:
    secret = False

    def __init__(self, seed: int, *parts: int) -> None:
        self._path = (seed, *parts)
        self._generator = np.random.default_rng(self._path if parts else seed)

    def permutation(self, n_records: int) -> NDArray[np.int64]:
        return self._generator.permutation(n_records)

    def key(self) -> jax.Array:
        return _key(self._generator.integers(0, 2**32, size=2, dtype=np.uint32))

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self._generator.integers(0, 2**32, size=8))

    def spawn(self, index: int) -> Randomness:
        # One more than the index: a seed sequence does not tell a trailing zero from none.
        return _PredictableRandomness(*self._path, index + 1)


def _key(words: NDArray[np.uint32]) -> jax.Array:
    key: jax.Array = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    return key


_seed: ContextVar[int | None] = ContextVar("noisycgd_predictable_seed", default=None)


def system_randomness() -> Randomness:
    """Randomness for one fit: the operating system's, unless a test switched it off."""
    seed = _seed.get()
    return _SystemRandomness() if seed is None else _PredictableRandomness(seed)


@contextlib.contextmanager
def predictable_randomness(seed: int) -> Iterator[None]:
    """Make every fit in this context repeatable. For tests only: each guarantee printed inside is `void`."""
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


REACH = float(-ndtri(2.0**-65))
"""Where draws end, 9.155: the smallest tail probability that 64 bits give, sign included (THEORY section 5)."""

LARGEST_DRAW = 2**30
"""Numbers of one draw, at most."""

# Threefry-2x32 with 20 rounds (Salmon et al. 2011): the generator behind `jax.random`.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


# A normal is u f(w), with a sign, where t = 1 - u is its two-sided tail probability and w = -log(1 - u^2). Up to the
# first w below, f is a polynomial in w, from there to t = 2^-64 one in sqrt(w), of a degree that float32 cannot tell
# from f.
_CENTRE, _FARTHEST, _DEGREE = 7.0, 63 * math.log(2), 10


def _fitted(low: float, high: float, power: int) -> NDArray[np.float32]:
    """Coefficients of f as a polynomial in x = -1 to 1, while w^(1/power) goes from `low` to `high`."""
    x = chebpts1(_DEGREE + 1)
    w = (low + (high - low) * (x + 1) / 2) ** power
    u = np.sqrt(-np.expm1(-w))
    return polyfit(x, -ndtri(np.exp(-w) / (1 + u) / 2) / u, _DEGREE).astype(np.float32)


_ROOTS = math.sqrt(_CENTRE), math.sqrt(_FARTHEST)
_NEAR, _FAR = _fitted(0, _CENTRE, 1), _fitted(*_ROOTS, 2)


def standard_normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent standard normals in float32, each from all 64 bits of a Threefry block, in one pass over memory.

    They end at `REACH`. One bit is the sign, 63 are the tail probability, which float32 holds to 24 digits however
    small it is; so tails have no grid but float32's own. `jax.random.normal` has 2^23 values up to 5.4.

    Parameters
    ----------
    key : Array
        A scalar threefry2x32 key.
    shape : tuple of int
        Shape of the result.

    Raises
    ------
    ParameterError
        If there are more than `LARGEST_DRAW` numbers.

    Notes
    -----
    On a CPU, JAX runs each of Threefry's rounds over the whole array; written out, the compiler fuses all of them with
    the transformation and whatever uses the result.
    """
    return _normal_of(*_threefry(jax.random.key_data(key), *_counters(shape)))


def double_normal(key: jax.Array, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Independent standard normals in float64, made outside of JAX from the same bits as those of `standard_normal`.

    Raises
    ------
    ParameterError
        As `standard_normal`.
    """
    high, low = (np.asarray(words).ravel() for words in _words(key, shape))
    normals = np.empty(high.size)
    # Parts of 2^16 stay in the cache.
    for start in range(0, high.size, 1 << 16):
        part = slice(start, start + (1 << 16))
        word = high[part].astype(np.uint64) << np.uint64(32) | low[part]
        tail = (word & np.uint64(2**63 - 1)).astype(np.float64) + 0.5
        normals[part] = np.copysign(ndtri(tail * 2.0**-64), 0.5 - (word >> np.uint64(63)))
    return normals.reshape(shape)


@partial(jax.jit, static_argnames="shape")
def _words(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    return _threefry(jax.random.key_data(key), *_counters(shape))


def _counters(shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Two words that tell entries apart: the place on the first axis, and the place within the rest."""
    if math.prod(shape) > LARGEST_DRAW:
        refuse("shape of noise", "of at most 2^30 numbers", shape, "Use a smaller model.")
    places = [jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in range(len(shape))]
    zero = jnp.zeros(shape, jnp.uint32)
    rest = zero
    for size, place in zip(shape[1:], places[1:], strict=True):
        rest = rest * np.uint32(size) + place
    return (places[0] if places else zero), rest


def _normal_of(high: jax.Array, low: jax.Array) -> jax.Array:
    """Normals from two uniform words each."""
    t, u = _probability(high, low), _probability(~high, ~low)
    # No logarithm's rounding may leave a negative number to the root.
    w = jnp.maximum(-jnp.log(t * (2 - t)), 0)
    near, (low_root, high_root) = w < _CENTRE, _ROOTS
    x = jnp.where(near, w / _CENTRE, (jnp.sqrt(w) - low_root) / (high_root - low_root)) * 2 - 1
    f = jnp.where(near, _NEAR[-1], _FAR[-1])
    for a, b in zip(_NEAR[-2::-1], _FAR[-2::-1], strict=True):
        f = f * x + jnp.where(near, a, b)
    size = jax.lax.bitcast_convert_type(u * f, jnp.uint32)
    return jax.lax.bitcast_convert_type(size | high & np.uint32(1 << 31), jnp.float32)


def _probability(high: jax.Array, low: jax.Array) -> jax.Array:
    """(m + 1/2) / 2^63 for the number m in the last 63 of 64 bits, to float32's relative precision."""
    upper = (high & np.uint32(2**31 - 1)).astype(jnp.float32) * 2.0**32
    return (upper + (low.astype(jnp.float32) + 0.5)) * 2.0**-63


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform uint32 words, those of `jax.random.bits`, in one pass over memory (see `standard_normal`)."""
    size = math.prod(shape)
    if size >= 2**32:
        return jax.random.bits(key, shape, jnp.uint32)
    counter = jax.lax.iota(jnp.uint32, size)
    high, low = _threefry(jax.random.key_data(key), jnp.zeros_like(counter), counter)
    return (high ^ low).reshape(shape)


def _threefry(key: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Encrypt the counters (x, y), two arrays of uint32, under a key of two words."""
    keys = key[0], key[1], key[0] ^ key[1] ^ _PARITY
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (y << np.uint32(distance) | y >> np.uint32(32 - distance))
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y
