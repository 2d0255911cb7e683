from itertools import permutations, product
from math import e, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from noisycgd._validation import DataError, ParameterError, ParameterTypeError
from noisycgd.exact import cover_count, enumerate_arrangements, sample_arrangements
from noisycgd.features import make_gates


def feasible_patterns(X, *, boundaries=False):
    """Twin: try all 2^n patterns, each by a linear program for a normal u that shows it.

    Cells have |x . u| >= 1 after scaling u, except for zero rows; with `boundaries`, x . u = 0 counts as active.
    """
    X = np.asarray(X, float)
    zero = ~X.any(axis=1)
    found = set()
    for pattern in product([False, True], repeat=len(X)):
        active = np.array(pattern)
        needed = np.where(active & (zero | boundaries), 0.0, 1.0)
        signs = np.where(active, 1.0, -1.0)
        program = linprog(np.zeros(X.shape[1]), -signs[:, None] * X, -needed, bounds=(None, None))
        if program.status == 0:
            found.add(pattern)
    return found


def as_set(patterns):
    assert patterns.dtype == bool
    found = {tuple(row) for row in patterns.tolist()}
    assert len(found) == len(patterns)
    return found


def cells_of_the_plane(X):
    """Twin for d = 2: one normal in the middle of every gap between the angles where a row vanishes."""
    X = np.asarray(X, float)
    walls = np.arctan2(X[:, 0], -X[:, 1])
    walls = np.unique(np.round(np.concatenate([walls, walls + np.pi]) % (2 * np.pi), 9) % round(2 * np.pi, 9))
    middles = (walls + np.append(walls[1:], walls[0] + 2 * np.pi)) / 2
    return {tuple(row) for row in (X @ [np.cos(middles), np.sin(middles)] >= 0).T.tolist()}


def signed_orders(k):
    """Rows e_i - e_j, e_i + e_j and e_i, whose cells order the coordinates of u by size and give them signs."""
    return [np.eye(k)[i] - s * np.eye(k)[j] for i in range(k) for j in range(i) for s in (1, -1)] + list(np.eye(k))


DEGENERATE = {
    "one row": [[2.0, -1.0]],
    "zero row alone": [[0.0, 0.0]],
    "zero row": [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]],
    "duplicates": [[1.0, 2.0], [1.0, 2.0], [-1.0, 1.0]],
    "parallel": [[1.0, 2.0], [3.0, 6.0], [-1.0, 1.0]],
    "opposite": [[1.0, 2.0], [-1.0, -2.0]],
    "rank one in three columns": [[1.0, 2.0, -1.0], [2.0, 4.0, -2.0], [-3.0, -6.0, 3.0]],
    "rank two in three columns": [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0], [1.0, -1.0, 0.0]],
    "zero first column": [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]],
    "three rows in a plane": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "two pencils": [[1.0, 0, 0], [0, 1.0, 0], [1.0, 1.0, 0], [1.0, 0, 1.0], [1.0, 0, -1.0], [0, 1.0, 1.0], [0, 0, 1.0]],
    "more columns than rows": [[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, -1.0]],
    "column": [[1.0], [-2.0], [0.0], [3.0]],
}


class TestEnumeration:
    @pytest.mark.parametrize("X", DEGENERATE.values(), ids=DEGENERATE.keys())
    def test_degenerate_rows(self, X):
        assert as_set(enumerate_arrangements(X)) == feasible_patterns(X)

    @pytest.mark.parametrize(("n", "d"), [(8, 2), (8, 3), (6, 4), (3, 5)])
    def test_gaussian_rows(self, n, d):
        X = np.random.default_rng(n + d).standard_normal((n, d))
        assert as_set(enumerate_arrangements(X)) == feasible_patterns(X)

    @given(arrays(np.int8, st.tuples(st.integers(1, 5), st.integers(1, 3)), elements=st.integers(-2, 2)))
    @settings(max_examples=60, deadline=None)
    def test_small_integers_which_are_rarely_in_general_position(self, X):
        assert as_set(enumerate_arrangements(X)) == feasible_patterns(X)

    def test_many_rows_of_the_plane(self):
        X = np.random.default_rng(0).standard_normal((60, 2))
        assert as_set(enumerate_arrangements(X)) == cells_of_the_plane(X)

    def test_a_bias_makes_thresholds(self):
        x = np.array([0.3, -1.0, 2.0, 0.7])
        rows = np.column_stack([x, np.ones(4)])
        order = np.argsort(x)
        prefixes = {tuple(np.isin(np.arange(4), order[:k]).tolist()) for k in range(5)}
        expected = prefixes | {tuple(not value for value in pattern) for pattern in prefixes}
        assert as_set(enumerate_arrangements(rows)) == expected

    @pytest.mark.parametrize("scale", [2.0**-60, 2.0**-1000])
    def test_is_exact_where_floats_see_one_line(self, scale):
        # A cell of angle 1e-18, or 1e-301: no linear program and no sample could find it.
        X = np.array([[1.0, 0.0], [1.0, scale]])
        assert len(enumerate_arrangements(X)) == 4
        assert len(sample_arrangements(X, 1000, 0)) == 2
        assert len(enumerate_arrangements([[1.0, scale], [3.0, 3 * scale]])) == 2

    def test_order_scale_and_copies_of_rows_do_not_matter(self):
        rng = np.random.default_rng(4)
        X = rng.integers(-3, 4, (7, 3)).astype(float)
        patterns = enumerate_arrangements(X)
        assert (np.lexsort(patterns.T[::-1]) == np.arange(len(patterns))).all()
        order = rng.permutation(7)
        assert as_set(enumerate_arrangements(X[order])) == as_set(patterns[:, order])
        assert as_set(enumerate_arrangements(X * 2.0 ** rng.integers(-30, 30, (7, 1)))) == as_set(patterns)
        twice = enumerate_arrangements(np.concatenate([X, X]))
        assert (twice[:, :7] == twice[:, 7:]).all()
        assert as_set(twice[:, :7]) == as_set(patterns)

    def test_the_opposite_normal_negates_all_but_zero_rows(self):
        X = np.array([[1.0, 2.0], [0.0, 0.0], [-1.0, 1.0], [0.5, 1.0]])
        patterns = enumerate_arrangements(X)
        assert patterns[:, 1].all()
        assert as_set(patterns[:, [0, 2, 3]]) == as_set(~patterns[:, [0, 2, 3]])

    def test_patterns_of_boundaries_alone_are_left_out(self):
        # Opposite rows are both active on their common boundary only; so is everything at u = 0.
        X = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]
        cells, all_normals = as_set(enumerate_arrangements(X)), feasible_patterns(X, boundaries=True)
        assert all_normals - cells == {(True, True, True), (True, True, False)}
        assert cells < all_normals


class TestCounts:
    @pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 3), (5, 1), (7, 2), (40, 2), (9, 3), (20, 3), (8, 6), (7, 7)])
    def test_in_general_position_is_covers_number(self, n, d):
        X = np.random.default_rng(n * d).standard_normal((n, d))
        assert len(enumerate_arrangements(X)) == cover_count(n, min(n, d))

    @pytest.mark.parametrize("k", [2, 3, 4, 5])
    def test_differences_of_coordinates_show_all_orders(self, k):
        """Published: the braid arrangement has k! regions, one for each order of u's coordinates."""
        X = [np.eye(k)[i] - np.eye(k)[j] for i in range(k) for j in range(i)]
        patterns = as_set(enumerate_arrangements(X))
        assert len(patterns) == factorial(k)
        assert patterns == {tuple((np.array(X) @ order > 0).tolist()) for order in permutations(range(k))}

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_signed_orders(self, k):
        """Published: the reflection arrangement of type B has 2^k k! regions."""
        assert len(enumerate_arrangements(signed_orders(k))) == 2**k * factorial(k)

    @pytest.mark.parametrize(("k", "count"), [(1, 4), (2, 14), (3, 104), (4, 1882)])
    def test_threshold_functions(self, k, count):
        """Published (OEIS A000609): Boolean functions of k variables that a threshold unit computes."""
        X = [(1.0, *vertex) for vertex in product([0.0, 1.0], repeat=k)]
        assert len(enumerate_arrangements(X)) == count

    @pytest.mark.parametrize("n", [2, 3, 5, 10, 50])
    def test_cover_is_below_the_bound_of_pilanci_and_ergen(self, n):
        for r in range(1, n + 1):
            assert 2 <= cover_count(n, r) <= 2 * r * (e * (n - 1) / r) ** r

    def test_cover_at_its_ends(self):
        assert cover_count(0, 0) == cover_count(5, 0) == 1
        assert [cover_count(6, r) for r in (1, 2, 6)] == [2, 12, 64]
        with pytest.raises(ParameterError, match="rank must be an integer at least 0 and at most 3; got 4"):
            cover_count(3, 4)


class TestRefusals:
    @pytest.mark.parametrize("take", [enumerate_arrangements, lambda X: sample_arrangements(X, 3)])
    @pytest.mark.parametrize(
        ("X", "text"),
        [
            ([1.0, 2.0], r"X must be of shape \(n, d\) with n, d >= 1; got \(2,\)"),
            (np.zeros((0, 2)), r"got \(0, 2\)"),
            (np.zeros((2, 0)), r"got \(2, 0\)"),
            ([[1.0, np.nan]], "X must be finite"),
            ([[1.0, -np.inf]], "X must be finite"),
            ([["a"]], "X must be a matrix of numbers"),
            ([[1.0], [1.0, 2.0]], "X must be a matrix of numbers"),
        ],
    )
    def test_of_rows(self, take, X, text):
        with pytest.raises(DataError, match=text):
            take(X)

    def test_of_too_many_rows(self):
        assert len(enumerate_arrangements(np.ones((1000, 2)))) == 2
        with pytest.raises(ParameterError, match=r"at most 1000 for an enumeration; got 1001\. Use sample"):
            enumerate_arrangements(np.ones((1001, 2)))

    def test_of_too_many_patterns(self):
        X = np.random.default_rng(0).standard_normal((20, 5))
        with pytest.raises(ParameterError, match=r"cover_count\(20, 5\) must be at most 10000 .*; got 10072\. Use"):
            enumerate_arrangements(X)

    def test_is_by_distinct_lines_and_rank(self):
        rng = np.random.default_rng(0)
        # 60 rows of rank 1, then 40 copies of 5 rows: hard only if one counts rows and columns.
        assert len(enumerate_arrangements(np.outer(rng.integers(1, 9, 60), rng.integers(-9, 9, 30)))) == 2
        assert len(enumerate_arrangements(np.tile(rng.standard_normal((5, 30)), (8, 1)))) == 32


class TestSamples:
    X = np.random.default_rng(3).standard_normal((9, 3))

    def test_are_distinct_patterns_of_the_arrangement(self):
        some = as_set(sample_arrangements(self.X, 20, 0))
        assert 1 < len(some) <= 20
        assert some < as_set(enumerate_arrangements(self.X))

    def test_find_every_cell_in_the_end(self):
        # Signed orders of three coordinates: 48 congruent cells, missed with probability below 48 (47/48)^2000 < 1e-16.
        X = signed_orders(3)
        assert as_set(sample_arrangements(X, 2000, 0)) == as_set(enumerate_arrangements(X))

    def test_follow_the_seed_and_no_global_one(self):
        np.random.seed(0)  # noqa: NPY002
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        first = sample_arrangements(self.X, 10, 7)
        np.testing.assert_array_equal(first, sample_arrangements(self.X, 10, np.random.RandomState(7)))
        assert as_set(first) != as_set(sample_arrangements(self.X, 10, 8))
        assert as_set(sample_arrangements(self.X, 10)) != as_set(sample_arrangements(self.X, 10))
        np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002

    def test_are_the_gates_of_the_private_model(self):
        rows = self.X.astype(np.float32)
        gates = make_gates("iid", 3, 16, 5).patterns(rows)
        assert as_set(sample_arrangements(rows, 16, 5)) == {tuple(row) for row in gates.T.astype(bool).tolist()}

    def test_zero_rows_are_active(self):
        assert sample_arrangements([[0.0, 0.0], [1.0, 1.0]], 50, 0).tolist() == [[True, False], [True, True]]

    def test_refusals(self):
        with pytest.raises(ParameterError, match="n_hyperplanes must be an integer at least 1; got 0"):
            sample_arrangements(self.X, 0)
        with pytest.raises(ParameterTypeError, match="n_hyperplanes"):
            sample_arrangements(self.X, 2.5)
