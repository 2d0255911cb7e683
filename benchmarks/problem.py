"""The one problem that every contender solves, and what a contender is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from noisycgd.features import GatedFeatures, make_gates


@dataclass(frozen=True)
class Sizes:
    """Sizes of a problem; n is a multiple of b and P is even.

    Attributes
    ----------
    n, d : int
        Records and columns.
    P : int
        Hyperplanes: antithetic pairs (u, -u).
    q : int
        Classes.
    b : int
        Records in a batch.
    """

    n: int = 60_000
    d: int = 784
    P: int = 64
    q: int = 10
    b: int = 1_000

    def __post_init__(self) -> None:
        if self.n % self.b or self.P % 2:
            raise ValueError(f"n must be a multiple of b, and P even; got n={self.n}, b={self.b}, P={self.P}.")

    @property
    def k(self) -> int:
        """Batches in an epoch."""
        return self.n // self.b

    @property
    def n_gates(self) -> int:
        """M, the gates that the antithetic pairs need in orthonormal coordinates (THEORY section 3)."""
        return self.P // 2 + 1


FULL = Sizes()
QUICK = Sizes(n=2_000, d=32, P=8, q=4, b=200)


@dataclass(frozen=True, eq=False)
class Problem:
    """Bounded synthetic rows in batches, with the gates in both forms, and the constants of a private step.

    Attributes
    ----------
    features : GatedFeatures
        The package's antithetic gates.
    rows : ndarray of shape (k, b, d), float32
        Rows of norm 1.
    patterns : ndarray of shape (k, b, M), int8
        The package's form of the gates.
    open_gates : ndarray of shape (k, b, P), float32
        The same gates as 0/1 of all P hyperplanes u_1 .. u_{P/2}, -u_1 .. -u_{P/2}: what the peers multiply with.
    labels : ndarray of shape (k, b), int32
        Classes.
    learning_rate, noise_multiplier, clipping_norm : float
        eta, nm and C = rho sqrt 2, the bound that every record's gradient keeps by itself.
    """

    sizes: Sizes
    features: GatedFeatures
    rows: NDArray[np.float32]
    patterns: NDArray[np.int8]
    open_gates: NDArray[np.float32]
    labels: NDArray[np.int32]
    learning_rate: float
    noise_multiplier: float
    clipping_norm: float

    @property
    def noise_std(self) -> float:
        """Raw noise standard deviation of a step, nm C / b."""
        return self.noise_multiplier * self.clipping_norm / self.sizes.b


def make_problem(sizes: Sizes, noise_multiplier: float = 5.0, seed: int = 0) -> Problem:
    """Gaussian rows scaled to norm 1, labels of a random linear teacher, antithetic gates, an admissible step size."""
    rng = np.random.default_rng(seed)
    n, d, q = sizes.n, sizes.d, sizes.q
    rows = rng.standard_normal((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows @ rng.standard_normal((d, q), dtype=np.float32)).argmax(axis=1).astype(np.int32)
    features = make_gates("antithetic", d, sizes.P, seed)
    patterns = features.patterns(rows)
    above = (patterns[:, 1:] > 0).astype(np.float32)
    rho = features.feature_norm(1.0)
    batched = (sizes.k, sizes.b, -1)
    return Problem(
        sizes=sizes,
        features=features,
        rows=rows.reshape(batched),
        patterns=patterns.reshape(batched),
        open_gates=np.concatenate([above, 1 - above], axis=1).reshape(batched),
        labels=labels.reshape(sizes.k, sizes.b),
        learning_rate=0.97 * 2 / (rho**2 / 2),
        noise_multiplier=noise_multiplier,
        clipping_norm=rho * math.sqrt(2),
    )


class Contender(Protocol):
    """Something that trains, and waits until what it started is done."""

    name: str
    steps: int
    """Steps of one turn."""

    def rouse(self) -> None:
        """Untimed, before each turn: bring threads and caches back after the others' turns."""

    def run(self) -> None:
        """Run one turn of `steps` steps to its end."""
