"""Gated-linear features: phi(x) = [g_1(x) x, ..., g_M(x) x] (THEORY section 3; paper, section 3.3).

Every model of this package is linear in phi: logits = sum_m g_m(x) (x' V_m). The gates depend on the signs of
u_i . x for public hyperplane normals u_i and on nothing else, so a row may be rescaled without changing them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import LARGEST_SIZE, check_choice, check_integer, refuse

GATE_KINDS = ("linear", "iid", "antithetic")

# rho is inflated by this factor so that float32 rounding of a row's norm cannot break the bound.
FLOAT32_SLACK = 1 + 1e-6


@dataclass(frozen=True, eq=False)
class GatedFeatures:
    """A gated-linear feature map with public hyperplanes.

    Attributes
    ----------
    kind : {"linear", "iid", "antithetic"}
        `linear`: one gate that is always open. `iid` (the paper): P gates 1(u_i . x >= 0). `antithetic` (default
        of the estimators): pairs (u_i, -u_i) of which exactly one is open, in orthonormal coordinates: one open
        gate and P/2 signs, so P/2 + 1 gates instead of P.
    n_hyperplanes : int
        P; 0 for `linear`.
    hyperplanes : ndarray of shape (d, H), float32
        Normals u_i as columns; H is P for `iid`, P/2 for `antithetic`, 0 for `linear`.
    """

    kind: str
    n_hyperplanes: int
    hyperplanes: NDArray[np.float32]

    @property
    def n_gates(self) -> int:
        """M, the number of gates that the kernel sees."""
        return len(self.levels)

    @property
    def levels(self) -> NDArray[np.float32]:
        """(M,): the weight of each gate; g_m(x) = levels[m] * pattern(x)[m]."""
        P = self.n_hyperplanes
        if self.kind == "linear":
            return np.ones(1, np.float32)
        if self.kind == "iid":
            return np.ones(P, np.float32)
        return np.concatenate([[math.sqrt(P) / 2], np.full(P // 2, math.sqrt(0.5))]).astype(np.float32)

    @property
    def norm_factor(self) -> float:
        """Public bound on ||phi(x)|| / ||x||: 1, sqrt(P) or, with equality, sqrt(P/2)."""
        return {"linear": 1.0, "iid": math.sqrt(self.n_hyperplanes), "antithetic": math.sqrt(self.n_hyperplanes / 2)}[
            self.kind
        ]

    def feature_norm(self, row_norm: float) -> float:
        """rho, the public bound on ||phi(x)|| for rows of norm at most `row_norm`, with float32 slack."""
        return self.norm_factor * row_norm * FLOAT32_SLACK

    def patterns(self, rows: NDArray[np.float32]) -> NDArray[np.int8]:
        """(n, d) -> (n, M): the gates before weighting, 0/1 for `iid`, 1 and signs (+1 at zero) for `antithetic`."""
        n = rows.shape[0]
        if self.kind == "linear":
            return np.ones((n, 1), np.int8)
        open_side = (rows @ self.hyperplanes) >= 0
        if self.kind == "iid":
            return open_side.astype(np.int8)
        return np.concatenate([np.ones((n, 1), np.int8), np.where(open_side, np.int8(1), np.int8(-1))], axis=1)

    def logits(self, rows: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) rows and (d, M q) weights -> (n, q) logits.

        Summed in float64: the order of a float32 sum, and with it the result, depends on how many rows there are.
        """
        n, M = rows.shape[0], self.n_gates
        gates = self.patterns(rows) * self.levels
        products = (rows.astype(np.float64) @ weights.astype(np.float64)).reshape(n, M, -1)
        logits: NDArray[np.float32] = np.einsum("nm,nmq->nq", gates, products).astype(np.float32)
        return logits


def make_gates(
    kind: str, n_features: int, n_hyperplanes: int, random_state: int | np.random.RandomState | None
) -> GatedFeatures:
    """Draw public standard-normal hyperplanes, which never depend on data.

    Parameters
    ----------
    kind : {"linear", "iid", "antithetic"}
        See `GatedFeatures`.
    n_features : int
        d, the width of a bounded row.
    n_hyperplanes : int
        P; even for `antithetic`, ignored for `linear`.
    random_state : int, RandomState or None
        Seeds the hyperplanes and nothing else.

    Raises
    ------
    ParameterError
        If the kind is unknown, P < 1, or P is odd for `antithetic`.
    """
    check_choice("gates", kind, GATE_KINDS)
    if kind == "linear":
        return GatedFeatures(kind, 0, np.zeros((n_features, 0), np.float32))
    P = check_integer("n_hyperplanes", n_hyperplanes, high=LARGEST_SIZE)
    if kind == "antithetic" and P % 2:
        refuse("n_hyperplanes", "even for antithetic pairs", P, 'Use an even number, or gates="iid".')
    H = P // 2 if kind == "antithetic" else P
    rng = random_state if isinstance(random_state, np.random.RandomState) else np.random.RandomState(random_state)
    return GatedFeatures(kind, P, rng.standard_normal((n_features, H)).astype(np.float32))
