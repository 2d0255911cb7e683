"""Fixed disjoint batches: permuted once, equal in size but for a short last one, laid out for one scan per epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisycgd.data.bounds import RowBounds
from noisycgd.features.gates import GatedFeatures
from noisycgd.features.random import MappedRows

# Share of rho below which a record's features count as zero.
SMALLEST_SHARE = 1e-30


@dataclass(frozen=True, eq=False)
class FixedBatches:
    """Bounded rows in k batches of b; a short last batch is filled up with zero rows, whose gradient is zero.

    Attributes
    ----------
    rows : ndarray of shape (k, b, d), float32
    patterns : ndarray of shape (k, b, M), int8
        Gates of each row before weighting.
    targets : ndarray of shape (k, b)
        Class indices (int32) or values (float32).
    scales : ndarray of shape (k, b), float32
        rho / ||phi(x)|| >= 1 of each record (1 for rows that are as good as zero); losses with a clip use it.
    """

    rows: NDArray[np.float32]
    patterns: NDArray[np.int8]
    targets: NDArray[Any]
    scales: NDArray[np.float32]


def make_batches(
    rows: Any,
    targets: NDArray[Any],
    order: NDArray[np.int64] | None,
    batch_size: int,
    bounds: RowBounds | MappedRows,
    features: GatedFeatures,
) -> FixedBatches:
    """Bound the rows, compute their gates and lay both out in batches, in one pass over `rows`.

    Parameters
    ----------
    rows : array of shape (n, d)
        Unbounded rows, any real dtype.
    targets : ndarray of shape (n,)
        Class indices or values.
    order : ndarray of shape (n,) or None
        Row of each slot; None keeps the order given.
    batch_size : int
        b <= n.
    bounds, features : RowBounds or MappedRows, GatedFeatures
        The public maps of one row.
    """
    n, b = rows.shape[0], batch_size
    k = math.ceil(n / b)
    d = bounds.width(rows.shape[1])
    x = np.zeros((k * b, d), np.float32)
    patterns = np.zeros((k * b, features.n_gates), np.int8)
    scales = np.ones(k * b, np.float32)
    # Without the slack of `feature_norm`, which is left to cover rounding: a record clipped at c scale stays within C.
    rho, levels = features.norm_factor * bounds.row_norm, features.levels.astype(np.float64)
    slot = np.arange(n) if order is None else _inverse(order)
    for part, bounded in bounds.chunks(rows):
        where = slot[part]
        gates = features.patterns(bounded)
        x[where], patterns[where] = bounded, gates
        norm = np.linalg.norm(bounded.astype(np.float64), axis=1) * np.linalg.norm(gates * levels, axis=1)
        # A row that is zero or has no open gate has no gradient: any scale would do. For one so small that its scale
        # would leave float32, a scale of 1 clips more than it must.
        scales[where] = np.maximum(1.0, rho / np.where(norm > rho * SMALLEST_SHARE, norm, rho))
    y = np.zeros(k * b, targets.dtype)
    y[slot] = targets
    return FixedBatches(x.reshape(k, b, d), patterns.reshape(k, b, -1), y.reshape(k, b), scales.reshape(k, b))


def _inverse(permutation: NDArray[np.int64]) -> NDArray[np.int64]:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse
