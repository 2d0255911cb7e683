"""Where secret randomness comes from: the operating system, afresh in every fit.

Two streams leave this file: the permutation behind the batches (which may be published) and the keys of the noise
(which are never stored). `predictable_randomness` exists for tests alone; a model trained under it has no privacy,
and its guarantee says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

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


class _PredictableRandomness:
    secret = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def permutation(self, n_records: int) -> NDArray[np.int64]:
        return self._generator.permutation(n_records)

    def key(self) -> jax.Array:
        return _key(self._generator.integers(0, 2**32, size=2, dtype=np.uint32))


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
