"""Where secret randomness comes from: the operating system, afresh in every fit.

`standard_normal` turns a key into noise.

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
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray


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


# Threefry-2x32 with 20 rounds (Salmon et al. 2011): the generator behind `jax.random`.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def standard_normal(key: jax.Array, shape: tuple[int, ...], fine: bool = False) -> jax.Array:
    """Independent standard normals: the numbers of `jax.random.normal`, in one pass over memory.

    On a CPU, JAX runs each of Threefry's rounds over the whole array; written out, the compiler fuses all of them with
    the inverse error function and whatever uses the result. That draws a step's noise about three times as fast.

    Parameters
    ----------
    key : Array
        A scalar threefry2x32 key.
    shape : tuple of int
        Shape of the result.
    fine : bool, default False
        Draw in float64, where JAX allows it, instead of in float32.
    """
    if fine and jax.dtypes.canonicalize_dtype(jnp.float64) == jnp.float64 and math.prod(shape) < 2**32:
        high, low = _blocks(key, math.prod(shape))
        bits = high.astype(jnp.uint64) << np.uint64(32) | low.astype(jnp.uint64)
        return _normal_of(bits >> np.uint64(12) | np.uint64(0x3FF0000000000000), np.float64).reshape(shape)
    return _normal_of(random_bits(key, shape) >> np.uint32(9) | np.uint32(0x3F800000), np.float32)


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform uint32 words, those of `jax.random.bits`, in one pass over memory (see `standard_normal`)."""
    size = math.prod(shape)
    if size >= 2**32:
        return jax.random.bits(key, shape, jnp.uint32)
    high, low = _blocks(key, size)
    return (high ^ low).reshape(shape)


def _normal_of(bits: jax.Array, dtype: Any) -> jax.Array:
    """Normals from the bits of numbers in [1, 2), which are moved to (-1, 1) first."""
    unit = jax.lax.bitcast_convert_type(bits, dtype) - 1
    lowest = np.nextafter(dtype(-1), dtype(0))
    normal: jax.Array = dtype(math.sqrt(2)) * jax.lax.erf_inv(jnp.maximum(lowest, unit * (1 - lowest) + lowest))
    return normal


def _blocks(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Two words from each of the first `size` counters."""
    counter = jax.lax.iota(jnp.uint32, size)
    return _threefry(jax.random.key_data(key), jnp.zeros_like(counter), counter)


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
