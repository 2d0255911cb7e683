"""From raw rows to the rows that a model sees: bounded, then mapped to random features where a model wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noisycgd.data.bounds import RowBounds


class RowFeatures(Protocol):
    """A data-independent map of one bounded row, see `noisycgd.features.random`."""

    @property
    def n_features(self) -> int:
        """Width of its result."""

    def feature_norm(self, row_norm: float) -> float:
        """Public bound on the norm of its result, for rows of norm at most `row_norm`."""

    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) bounded rows -> (n, D)."""


@dataclass(frozen=True, eq=False)
class RowMap:
    """Bounds of raw rows, and random features of the bounded ones.

    Attributes
    ----------
    bounds : RowBounds
        The public map of one raw row.
    features : RowFeatures or None
        The public map of one bounded row; None leaves it.
    """

    bounds: RowBounds
    features: RowFeatures | None = None

    @property
    def row_norm(self) -> float:
        """Public bound on the norm of a row that the model sees."""
        R = self.bounds.row_norm
        return R if self.features is None else self.features.feature_norm(R)

    def width(self, n_features: int) -> int:
        """Columns of a row that the model sees, from those of a raw one."""
        return self.bounds.width(n_features) if self.features is None else self.features.n_features

    def chunks(self, rows: Any) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield (slice, rows that the model sees) over consecutive chunks of `rows`, an array of shape (n, d)."""
        for part, bounded in self.bounds.chunks(rows):
            yield part, bounded if self.features is None else self.features.transform(bounded)
