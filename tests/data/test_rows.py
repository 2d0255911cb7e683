import numpy as np
import pytest

from noisycgd.data import RowBounds
from noisycgd.data.rows import RowMap


class Doubled:
    n_features = 6

    def feature_norm(self, row_norm):
        return 1.5 * row_norm

    def transform(self, rows):
        return np.concatenate([rows, rows], axis=1)


ROWS = np.random.default_rng(0).standard_normal((5000, 3))
BOUNDS = RowBounds.create(2.0, "normalize", False, 0.0, None, 3)


def gathered(row_map):
    parts = list(row_map.chunks(ROWS))
    assert len(parts) > 1
    assert [part.start for part, _ in parts] == sorted(part.start for part, _ in parts)
    return np.concatenate([rows for _, rows in parts])


def test_without_features_a_row_is_only_bounded():
    row_map = RowMap(BOUNDS)
    np.testing.assert_array_equal(gathered(row_map), BOUNDS(ROWS))
    assert (row_map.row_norm, row_map.width(3)) == (2.0, 3)


def test_features_are_those_of_bounded_rows():
    row_map = RowMap(BOUNDS, Doubled())
    bounded = BOUNDS(ROWS)
    np.testing.assert_array_equal(gathered(row_map), np.concatenate([bounded, bounded], axis=1))
    assert (row_map.row_norm, row_map.width(3)) == (3.0, 6)
    assert pytest.approx(2.0 * np.sqrt(2), rel=1e-6) == np.linalg.norm(gathered(row_map), axis=1).max()
