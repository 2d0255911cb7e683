"""Row bounding: the maps that make ||x|| <= R true for every record, each a function of that one row.

The order is fixed (THEORY section 3): public column bounds, row centring, bias feature, row bounding. The radius
and the column bounds are public facts; nothing here looks at more than one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import DataError, check_choice, check_real, refuse

ROW_BOUNDINGS = ("normalize", "clip")

# Rows are transformed in chunks, so that float64 scratch space stays small beside the float32 result.
CHUNK_ROWS = 4096

# Outside this range squares of R, or the noise that goes with it, would leave the range of float32.
SMALLEST_ROW_NORM, LARGEST_ROW_NORM = 1e-9, 1e9

# A row whose entries cancel to less than this share of their size, per sqrt(d), is rounding error and counts as zero:
# `normalize` would blow it up to a random direction.
CANCELLED = 1e-12


@dataclass(frozen=True, eq=False)
class RowBounds:
    """(n, d) -> (n, d or d + 1) float32 rows of norm at most `row_norm`.

    Attributes
    ----------
    row_norm : float
        R, public, in [1e-9, 1e9].
    method : {"normalize", "clip"}
        `normalize`: x -> R x / ||x||; `clip`: x -> x min(1, R / ||x||). Zero rows stay zero in both, and so do rows
        that column bounds or centring reduce to rounding error.
    center : bool
        Subtract the row's own mean first (helps images).
    bias : float
        Value of a constant feature appended before bounding; 0 appends none.
    column_bounds : ndarray of shape (2, d) or None
        Public lower and upper bounds; a column is clipped to them and scaled to [-1, 1].
    """

    row_norm: float = 1.0
    method: str = "normalize"
    center: bool = False
    bias: float = 0.0
    column_bounds: NDArray[np.float64] | None = None

    @classmethod
    def create(
        cls, row_norm: float, method: str, center: bool, bias: float, column_bounds: ArrayLike | None, n_features: int
    ) -> RowBounds:
        """Check every parameter and build the map for rows of `n_features` columns.

        Raises
        ------
        ParameterError
            If R is out of range, the method is unknown, or the column bounds are not finite pairs low < high,
            one pair for all columns or one per column, or centring would leave nothing of a row.
        """
        R = check_real("row_norm", row_norm, low=SMALLEST_ROW_NORM, high=LARGEST_ROW_NORM)
        check_choice("row_bounding", method, ROW_BOUNDINGS)
        constant = check_real("bias", bias)
        if center and n_features == 1:
            refuse("center_rows", "False for a single column, of which centring leaves zeros", center)
        return cls(R, method, bool(center), constant, _checked_column_bounds(column_bounds, n_features))

    def width(self, n_features: int) -> int:
        """Columns of a bounded row."""
        return n_features + (self.bias != 0)

    def chunks(self, rows: Any) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield (slice, bounded rows) over consecutive chunks of `rows`, an array of shape (n, d)."""
        for start in range(0, rows.shape[0], CHUNK_ROWS):
            part = slice(start, min(start + CHUNK_ROWS, rows.shape[0]))
            yield part, self(rows[part])

    def __call__(self, rows: Any) -> NDArray[np.float32]:
        """(n, d) -> (n, width) float32; raises DataError on non-finite input."""
        x = np.asarray(rows, dtype=np.float64)
        if not np.isfinite(x).all():
            raise DataError("X must be finite; got NaN or infinity. Remove or fill those values first.")
        if self.column_bounds is not None:
            low, high = self.column_bounds
            x = (np.clip(x, low, high) - low) * (2 / (high - low)) - 1
        # Dividing by the largest entry first keeps norms finite for entries up to the largest float. Scaling to [-1, 1]
        # has subtracted numbers of size 1, whatever is left of them.
        least = abs(self.bias) if self.column_bounds is None else max(1.0, abs(self.bias))
        size = np.abs(x).max(axis=1, keepdims=True, initial=least)
        scale = np.where(size > 0, size, 1.0)
        x = x / scale
        if self.center:
            x = x - x.mean(axis=1, keepdims=True)
        norm = np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]
        if self.center or self.column_bounds is not None:
            cancelled = norm <= CANCELLED * math.sqrt(x.shape[1])
            x, norm = np.where(cancelled, 0.0, x), np.where(cancelled, 0.0, norm)
        if self.bias:
            x = np.concatenate([x, self.bias / scale], axis=1)
            norm = np.hypot(norm, self.bias / scale)
        with np.errstate(over="ignore"):
            length = np.full_like(norm, self.row_norm)
            if self.method == "clip":
                length = np.minimum(length, norm * scale)
        bounded: NDArray[np.float32] = (x / np.where(norm > 0, norm, 1.0) * length).astype(np.float32)
        return bounded

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a model file; `from_dict` reads them back."""
        bounds = None if self.column_bounds is None else self.column_bounds.tolist()
        return {
            "row_norm": self.row_norm,
            "method": self.method,
            "center": self.center,
            "bias": self.bias,
            "column_bounds": bounds,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], n_features: int) -> RowBounds:
        """Inverse of `to_dict`, with every check of `create`."""
        bounds = values["column_bounds"]
        if bounds is not None:
            bounds = np.asarray(bounds, dtype=np.float64).T
        return cls.create(values["row_norm"], values["method"], values["center"], values["bias"], bounds, n_features)


def _checked_column_bounds(bounds: ArrayLike | None, n_features: int) -> NDArray[np.float64] | None:
    if bounds is None:
        return None
    way_out = "Give one (low, high) pair for all columns, or an array of shape (n_features, 2)."
    try:
        pairs = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (n_features, 2))
    except (TypeError, ValueError):
        refuse("column_bounds", f"a (low, high) pair or of shape ({n_features}, 2)", np.shape(bounds), way_out)
    if not np.isfinite(pairs).all() or not (pairs[:, 0] < pairs[:, 1]).all():
        refuse("column_bounds", "finite with low < high in every column", np.asarray(bounds).tolist(), way_out)
    low, high = np.ascontiguousarray(pairs.T)
    with np.errstate(over="ignore"):
        usable = np.isfinite(high - low) & np.isfinite(2 / (high - low))
    if not usable.all():
        refuse("column_bounds", "neither too far apart nor too close for float64", pairs[~usable][0].tolist(), way_out)
    return np.stack([low, high])
