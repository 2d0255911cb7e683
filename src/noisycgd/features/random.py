"""Random feature maps that no record has shaped: bounded rows in, rows of publicly bounded norm out (THEORY section 3).

A model on top of such a map is linear in it: one gate that is always open (`RowFeatures.gates`) on the mapped rows
(`RowFeatures.after`), which stand in for `RowBounds` wherever a trainer, an estimator or `Statistics` reads rows.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import LARGEST_SIZE, check_choice, check_integer, check_real, refuse
from noisycgd.features.gates import FLOAT32_SLACK, GatedFeatures, make_gates

if TYPE_CHECKING:
    from noisycgd.data.bounds import RowBounds

ROW_FEATURE_KINDS = ("fourier", "relu-patterns", "relu", "convex-relu")
HYPERPLANE_DRAWS = ("iid", "antithetic")

# Gates times columns that `convex-relu` writes out; the kernel of the training loops never does.
LARGEST_CONVEX_WIDTH = 8192

# Beyond this ratio of row norm to bandwidth a float32 angle has lost its fractional part.
_LARGEST_ANGLE = 1e6


@dataclass(frozen=True, eq=False)
class RowFeatures(abc.ABC):
    """A public, data-independent map of one bounded row.

    Attributes
    ----------
    kind : str
        One of `ROW_FEATURE_KINDS`.
    directions : ndarray of shape (d, H), float32
        What was drawn: frequencies or normals, as columns.
    """

    kind: ClassVar[str]
    directions: NDArray[np.float32]

    @property
    def n_features_in(self) -> int:
        """d, the width of a bounded row."""
        return int(self.directions.shape[0])

    @property
    @abc.abstractmethod
    def n_features(self) -> int:
        """D, the width of a mapped row."""

    @abc.abstractmethod
    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, D) float32, each row from one row alone."""

    @abc.abstractmethod
    def norm(self, row_norm: float) -> float:
        """Bound on ||phi(x)|| for ||x|| <= `row_norm`, in real arithmetic."""

    def feature_norm(self, row_norm: float) -> float:
        """rho, the public bound on the norm of a mapped float32 row, for rows of norm at most `row_norm`."""
        return self.norm(row_norm) * FLOAT32_SLACK

    @property
    def gates(self) -> GatedFeatures:
        """The one gate, always open, that a gated-linear model puts on the mapped rows."""
        return make_gates("linear", self.n_features, 0, None)

    def to_tensors(self) -> dict[str, NDArray[np.float32]]:
        """The drawn numbers, for a model file; with `to_dict` they are the whole map."""
        return {"directions": self.directions}

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The map's kind and its numbers as plain values; `read_row_features` is the inverse."""


@dataclass(frozen=True, eq=False)
class FourierFeatures(RowFeatures):
    """Random Fourier features (Rahimi and Recht 2007): sqrt(2 / D) [cos(W'x), sin(W'x)], of norm 1.

    phi(x) . phi(x') estimates exp(-||x - x'||^2 / (2 bandwidth^2)) without bias, with a standard deviation of at most
    1 / sqrt(D).

    Attributes
    ----------
    directions : ndarray of shape (d, D / 2), float32
        W, of independent normals with standard deviation 1 / bandwidth.
    bandwidth : float
        Public.
    """

    kind = "fourier"
    bandwidth: float

    @property
    def n_features(self) -> int:
        """D, even."""
        return 2 * int(self.directions.shape[1])

    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, D): all cosines, then all sines."""
        H = self.directions.shape[1]
        angles = rows @ self.directions
        mapped = np.empty((len(rows), 2 * H), np.float32)
        np.cos(angles, out=mapped[:, :H])
        np.sin(angles, out=mapped[:, H:])
        mapped *= np.float32(1 / math.sqrt(H))
        return mapped

    def norm(self, row_norm: float) -> float:
        """1, whatever the rounding of an angle; that of a cosine (4 ulp where it is worst) is within the slack."""
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        """See `RowFeatures`."""
        return {"kind": self.kind, "bandwidth": self.bandwidth}


@dataclass(frozen=True, eq=False)
class _HyperplaneFeatures(RowFeatures):
    """A map made of public hyperplanes.

    Attributes
    ----------
    hyperplanes : {"iid", "antithetic"}
        Whether `directions` are all normals, or one of each pair (u, -u).
    """

    hyperplanes: str

    @property
    def gating(self) -> GatedFeatures:
        """The hyperplanes with their gates."""
        share = 2 if self.hyperplanes == "antithetic" else 1
        return GatedFeatures(self.hyperplanes, share * self.directions.shape[1], self.directions)

    def to_dict(self) -> dict[str, Any]:
        """See `RowFeatures`."""
        return {"kind": self.kind, "hyperplanes": self.hyperplanes}


class PatternFeatures(_HyperplaneFeatures):
    """The gates 1(u_i . x >= 0) alone; antithetic pairs in the P/2 + 1 orthonormal coordinates of `GatedFeatures`."""

    kind = "relu-patterns"

    @property
    def n_features(self) -> int:
        """D: P for `iid`, P/2 + 1 for `antithetic`."""
        return self.gating.n_gates

    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, D); zero rows lie on every hyperplane and count as open."""
        return self.gating.patterns(rows) * self.gating.levels

    def norm(self, row_norm: float) -> float:
        """Sqrt(P), reached if every gate opens; for `antithetic` sqrt(P/2), with equality."""
        return self.gating.norm_factor


class ReLUFeatures(_HyperplaneFeatures):
    """The numbers relu(u_i . x) for unit normals u_i; of an antithetic pair both relu(u . x) and relu(-u . x)."""

    kind = "relu"

    @property
    def n_features(self) -> int:
        """D = P."""
        return self.gating.n_hyperplanes

    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, P): products in float64, since float32 ones would break the bound on the norm."""
        products = rows.astype(np.float64) @ self.directions.astype(np.float64)
        if self.hyperplanes == "antithetic":
            products = np.concatenate([products, -products], axis=1)
        return np.maximum(products, 0).astype(np.float32)

    def norm(self, row_norm: float) -> float:
        """R times the largest singular value of `directions`: far below R sqrt(P) where P is at most d.

        For relu only shrinks; an antithetic pair reaches it, as relu(t)^2 + relu(-t)^2 = t^2.
        """
        return row_norm * self._largest_singular_value

    @cached_property
    def _largest_singular_value(self) -> float:
        # The factor is above the rounding of the decomposition.
        return float(np.linalg.norm(self.directions.astype(np.float64), 2)) * (1 + 1e-9)


class ConvexReLUFeatures(_HyperplaneFeatures):
    """The gated-linear features [g_1(x) x, ..., g_M(x) x] of `GatedFeatures`, written out."""

    kind = "convex-relu"

    @property
    def n_features(self) -> int:
        """D = M d."""
        return self.gating.n_gates * self.n_features_in

    def transform(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, M d), gate by gate."""
        gates = self.gating.patterns(rows) * self.gating.levels
        return (gates[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)

    def norm(self, row_norm: float) -> float:
        """R sqrt(P), or R sqrt(P/2) for `antithetic`."""
        return self.gating.norm_factor * row_norm


_Concrete = type[PatternFeatures] | type[ReLUFeatures] | type[ConvexReLUFeatures]
_MAPS: dict[str, _Concrete] = {c.kind: c for c in (PatternFeatures, ReLUFeatures, ConvexReLUFeatures)}


@dataclass(frozen=True, eq=False)
class MappedRows:
    """`RowBounds` and a map after it, with the parts of `RowBounds` that trainers and estimators use."""

    bounds: RowBounds
    features: RowFeatures

    @property
    def row_norm(self) -> float:
        """Bound on the norm of a mapped row; `GatedFeatures.feature_norm` adds the float32 slack."""
        return self.features.norm(self.bounds.row_norm)

    @property
    def method(self) -> str:
        """How, in words."""
        return f"{self.bounds.method}, then public {self.features.kind} features"

    def width(self, n_features: int) -> int:
        """Columns of a mapped row; refuses rows of another width than the map was drawn for."""
        found = self.bounds.width(n_features)
        if found != self.features.n_features_in:
            refuse("width of a bounded row", f"the {self.features.n_features_in} that the features map", found)
        return self.features.n_features

    def chunks(self, rows: Any) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield (slice, mapped rows) over consecutive chunks of `rows`, an array of shape (n, d)."""
        for part, bounded in self.bounds.chunks(rows):
            yield part, self.features.transform(bounded)

    def __call__(self, rows: Any) -> NDArray[np.float32]:
        """Unbounded (n, d) -> mapped (n, D) float32; raises DataError on non-finite input."""
        return self.features.transform(self.bounds(rows))


def seen_rows(bounds: RowBounds, features: RowFeatures | None) -> RowBounds | MappedRows:
    """The public map from a raw row to the row that a model sees: bounded, then mapped if there is a map."""
    return bounds if features is None else MappedRows(bounds, features)


def default_bandwidth(row_norm: float) -> float:
    """R / sqrt(2), from public facts alone.

    Unrelated rows of norm R are nearly orthogonal, sqrt(2) R apart, in every dimension d: their similarity becomes
    e^-2, where a larger bandwidth would make all rows alike and a smaller one would keep none together. For
    standardised columns (R^2 = d) it is the usual exp(-||x - x'||^2 / d).
    """
    return row_norm / math.sqrt(2)


def make_row_features(
    kind: str,
    n_features_in: int,
    n_components: int,
    random_state: int | np.random.RandomState | None,
    *,
    row_norm: float,
    bandwidth: float | None = None,
    hyperplanes: str = "antithetic",
) -> RowFeatures:
    """Draw a public feature map, which never depends on data.

    Parameters
    ----------
    kind : {"fourier", "relu-patterns", "relu", "convex-relu"}
        See `FourierFeatures`, `PatternFeatures`, `ReLUFeatures`, `ConvexReLUFeatures`.
    n_features_in : int
        d, the width of a bounded row.
    n_components : int
        D for `fourier` (even), the number P of hyperplanes for the others (even if antithetic).
    random_state : int, RandomState or None
        Seeds the map and nothing else.
    row_norm : float
        R, the public bound on a row's norm; only the default bandwidth uses it.
    bandwidth : float, optional
        For `fourier` alone; see `default_bandwidth`.
    hyperplanes : {"antithetic", "iid"}
        Pairs (u, -u), or independent hyperplanes as in the paper; `fourier` has none.

    Raises
    ------
    ParameterError, ParameterTypeError
        If the kind is unknown, a number is out of range, or `convex-relu` would need more than 8192 columns.
    """
    check_choice("kind", kind, ROW_FEATURE_KINDS)
    check_choice("hyperplanes", hyperplanes, HYPERPLANE_DRAWS)
    d = check_integer("n_features_in", n_features_in)
    components = check_integer("n_components", n_components, high=LARGEST_SIZE)
    R = check_real("row_norm", row_norm, low=0, open_low=True)
    rng = random_state if isinstance(random_state, np.random.RandomState) else np.random.RandomState(random_state)
    if kind == "fourier":
        if components % 2:
            refuse("n_components", "even: a frequency has a cosine and a sine", components, "Use an even number.")
        width = default_bandwidth(R) if bandwidth is None else bandwidth
        width = check_real("bandwidth", width, low=R / _LARGEST_ANGLE, high=R * _LARGEST_ANGLE)
        return FourierFeatures((rng.standard_normal((d, components // 2)) / width).astype(np.float32), width)
    if bandwidth is not None:
        refuse("bandwidth", f"None for kind={kind!r}", bandwidth, 'It belongs to kind="fourier".')
    if hyperplanes == "antithetic" and components % 2:
        refuse("n_components", "even for antithetic pairs", components, "Use an even number, or iid hyperplanes.")
    planes = make_gates(hyperplanes, d, components, rng)
    if kind == "relu":
        # A chance length would only make some features louder than others.
        normals = planes.hyperplanes.astype(np.float64)
        unit = (normals / np.linalg.norm(normals, axis=0)).astype(np.float32)
        return ReLUFeatures(unit, hyperplanes)
    if kind == "convex-relu" and planes.n_gates * d > LARGEST_CONVEX_WIDTH:
        way_out = "Lower it, or train the gates without writing them out (ConvexReLUClassifier)."
        fits = f"small enough for gates x columns ({planes.n_gates} x {d}) to stay within {LARGEST_CONVEX_WIDTH}"
        refuse("n_components", fits, components, way_out)
    return _MAPS[kind](planes.hyperplanes, hyperplanes)


def read_row_features(tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> RowFeatures:
    """Build a map from its `to_tensors()` and `to_dict()`, which may come from a damaged file.

    Raises
    ------
    ParameterError, ParameterTypeError, KeyError
        If the two do not describe a map.
    """
    kind = check_choice("kind", values["kind"], ROW_FEATURE_KINDS)
    drawn = tensors["directions"]
    if drawn.ndim != 2 or drawn.dtype != np.float32 or 0 in drawn.shape or not np.isfinite(drawn).all():
        refuse("directions", "a non-empty, finite float32 matrix", f"{drawn.dtype} of shape {drawn.shape}")
    if kind == "fourier":
        return FourierFeatures(drawn, check_real("bandwidth", values["bandwidth"], low=0, open_low=True))
    return _MAPS[kind](drawn, check_choice("hyperplanes", values["hyperplanes"], HYPERPLANE_DRAWS))
