"""Hyperplane arrangements: the activation patterns 1[X u >= 0] that the rows of X can show.

The rows cut the space of normals u into open cones, the cells, on which the pattern is constant. Only the cells'
patterns are listed; a pattern that occurs on boundaries alone, as that of u = 0 may, is not:

- The constrained program does not need it. Its cone is a face of the arrangement, so it lies in the closure of a cell,
  where D X v = (X v)_+ too: its weights move to that cell's group, and the norm of a sum is at most the sum of norms.
- A Gaussian u shows it with probability 0, so that the program without constraints, whose value does depend on the
  list, is the limit of more and more sampled hyperplanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import DataError, check_integer, message, refuse

MAX_ROWS = 1000
"""Most rows that `enumerate_arrangements` takes."""
MAX_PATTERNS = 10_000
"""Most patterns that `enumerate_arrangements` may have to list."""

_Integers = Sequence[int]
_SAMPLE = "Use sample_arrangements, or fewer rows."


def check_rows(X: ArrayLike) -> NDArray[np.float64]:
    """Return X as float64 of shape (n, d), or raise DataError if it is no finite, non-empty matrix."""
    try:
        rows = np.array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(message("X", "a matrix of numbers", type(X).__name__)) from error
    if rows.ndim != 2 or 0 in rows.shape:
        raise DataError(message("X", "of shape (n, d) with n, d >= 1", rows.shape))
    if not np.isfinite(rows).all():
        raise DataError(message("X", "finite", "NaN or infinity", "Drop or impute such rows first."))
    return rows


def cover_count(n_rows: int, rank: int) -> int:
    """Cover's number 2 sum_{k < rank} C(n_rows - 1, k), the most cells that n_rows hyperplanes through 0 can have.

    It is attained by rows in general position (any `rank` of them independent), and is at most
    2 r (e (n - 1) / r)^r, the bound of Pilanci and Ergen (2020), for n >= 2 rows of rank r.
    """
    n = check_integer("n_rows", n_rows, low=0)
    r = check_integer("rank", rank, low=0, high=n)
    return 2 * sum(math.comb(n - 1, k) for k in range(r)) if r else 1


def enumerate_arrangements(X: ArrayLike) -> NDArray[np.bool_]:
    """List every activation pattern 1[X u >= 0] of a normal u that lies on none of the hyperplanes.

    Exact for the numbers given: floats are rationals, and all arithmetic is on integers. Hence rows count as parallel
    only if they are so to the last bit. A zero row is always active; equal rows agree, opposite rows disagree.

    Parameters
    ----------
    X : array_like of shape (n, d)
        At most 1000 rows. What matters beyond that is the number m of distinct lines that they span and their rank r:
        `cover_count(m, r)` must not exceed 10 000 (m = 100 at r = 3, 19 at r = 5, 13 at r = 13).

    Returns
    -------
    ndarray of shape (n_patterns, n), bool
        Distinct patterns in lexicographic order, False before True. With -u for u, each but zero rows is negated.

    Raises
    ------
    DataError
        If X is no finite, non-empty matrix.
    ParameterError
        If X is larger than that; use `sample_arrangements`.
    """
    rows = check_rows(X)
    n = len(rows)
    if n > MAX_ROWS:
        refuse("the number of rows", f"at most {MAX_ROWS} for an enumeration", n, _SAMPLE)
    scaled = [_primitive(_integers(row)) for row in rows.tolist()]
    index = {line: j for j, line in enumerate(dict.fromkeys(line for line, sign in scaled if sign))}
    lines, m = list(index), len(index)
    feasible = next(r for r in range(m + 1) if r == m or cover_count(m, r + 1) > MAX_PATTERNS)
    rank = len(_echelon(lines, feasible + 1)[1])
    if rank > feasible:
        bound = f"the pattern bound cover_count({m}, {rank})"
        refuse(bound, f"at most {MAX_PATTERNS} for an enumeration", cover_count(m, rank), _SAMPLE)
    cells = [[cell >> j & 1 for j in range(m)] for cell in _cells(lines)]
    sides = np.array(cells, dtype=bool).reshape(len(cells), m)
    patterns = np.ones((len(cells), n), dtype=bool)
    for i, (line, sign) in enumerate(scaled):
        if sign:
            patterns[:, i] = sides[:, index[line]] == (sign > 0)
    return np.unique(patterns, axis=0)


def sample_arrangements(
    X: ArrayLike, n_hyperplanes: int, random_state: int | np.random.RandomState | None = None
) -> NDArray[np.bool_]:
    """Draw Gaussian normals and keep the distinct patterns 1[X u >= 0] that they show.

    The draws are those of `ConvexReLUClassifier(gates="iid", random_state=random_state)`: for the same rows, the
    patterns are the private model's. Cells are found in proportion to their solid angle, so thin ones are missed.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Any size.
    n_hyperplanes : int
        How many normals are drawn.
    random_state : int, RandomState or None
        Seeds the normals.

    Returns
    -------
    ndarray of shape (n_patterns, n), bool
        At most n_hyperplanes distinct patterns, in lexicographic order.

    Raises
    ------
    DataError
        If X is no finite, non-empty matrix.
    ParameterError
        If n_hyperplanes < 1.
    """
    rows = check_rows(X)
    P = check_integer("n_hyperplanes", n_hyperplanes)
    rng = random_state if isinstance(random_state, np.random.RandomState) else np.random.RandomState(random_state)
    normals = rng.standard_normal((rows.shape[1], P)).astype(np.float32)
    return np.unique((rows @ normals >= 0).T, axis=0)


def _cells(lines: Sequence[_Integers]) -> set[int]:
    """The open cells of distinct lines as bit masks: bit j is set where line j's product with u is positive.

    Cut down to its rank r, an arrangement has pointed cells, and a pointed cone has an extreme ray: there r - 1
    independent lines vanish, the others have their signs in the cell, and the vanishing ones show a cell of the
    arrangement that they make among themselves. Conversely a step from a ray into any such cell meets a cell.
    """
    pivots = _echelon(lines)[1]
    if len(pivots) == len(lines):  # independent lines show every pattern; so does no line at all, its empty one
        return set(range(1 << len(lines)))
    # The vectors X u are the column space, which the pivot columns span.
    rows = [[line[c] for c in pivots] for line in lines]
    cells: set[int] = set()
    rays: set[tuple[int, ...]] = set()
    for chosen in combinations(rows, len(pivots) - 1):
        ray = _null_vector(chosen)
        if ray is None or ray in rays:
            continue
        rays.add(ray)
        products = [sum(a * b for a, b in zip(row, ray, strict=True)) for row in rows]
        above = sum(1 << j for j, product in enumerate(products) if product > 0)
        below = sum(1 << j for j, product in enumerate(products) if product < 0)
        zero = [j for j, product in enumerate(products) if product == 0]
        for local in _cells([lines[j] for j in zero]):
            around = sum(1 << j for k, j in enumerate(zero) if local >> k & 1)
            cells |= {above | around, below | around}
    return cells


def _null_vector(rows: Sequence[_Integers]) -> tuple[int, ...] | None:
    """The line orthogonal to r - 1 independent rows of length r; None if they are dependent."""
    r = len(rows) + 1
    reduced, pivots = _echelon(rows, width=r)
    if len(pivots) < r - 1:
        return None
    free = next(c for c in range(r) if c not in pivots)
    vector = [0] * r
    vector[free] = reduced[0][pivots[0]] if pivots else 1
    for row, pivot in zip(reduced, pivots, strict=True):
        vector[pivot] = -row[free]
    return _primitive(vector)[0]


def _echelon(rows: Sequence[_Integers], most: int | None = None, width: int = 0) -> tuple[list[list[int]], list[int]]:
    """Gauss-Jordan elimination without fractions (Bareiss): reduced rows, all pivots equal, and pivot columns.

    Every division is exact, since the entries are minors of the matrix. Stops at `most` pivots.
    """
    matrix = [list(row) for row in rows]
    pivots: list[int] = []
    last = 1
    for c in range(len(matrix[0]) if matrix else width):
        k = len(pivots)
        found = next((i for i in range(k, len(matrix)) if matrix[i][c]), None)
        if k == most:
            break
        if found is None:
            continue
        matrix[k], matrix[found] = matrix[found], matrix[k]
        lead = matrix[k][c]
        for i, row in enumerate(matrix):
            if i != k:
                matrix[i] = [(lead * a - row[c] * b) // last for a, b in zip(row, matrix[k], strict=True)]
        last = lead
        pivots.append(c)
    return matrix[: len(pivots)], pivots


def _integers(row: Sequence[float]) -> list[int]:
    """The row times the least power of two that makes it integer."""
    ratios = [value.as_integer_ratio() for value in row]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def _primitive(vector: _Integers) -> tuple[tuple[int, ...], int]:
    """The line of a vector, as coprime integers whose first non-zero one is positive, and the sign taken out."""
    sign = next((1 if value > 0 else -1 for value in vector if value), 0)
    divisor = sign * math.gcd(*vector)
    return tuple(value // divisor for value in vector) if sign else tuple(vector), sign
