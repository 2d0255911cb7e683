import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd.data import RowBounds, make_batches
from noisycgd.data.bounds import CHUNK_ROWS
from noisycgd.features import make_gates

D = 4


def make(rows, targets, order, b, *, kind="antithetic", method="clip", row_norm=2.0, bias=0.0):
    bounds = RowBounds.create(row_norm, method, False, bias, None, rows.shape[1])
    features = make_gates(kind, bounds.width(rows.shape[1]), 6, 0)
    return make_batches(rows, targets, order, b, bounds, features), bounds, features


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 60),
    share=st.floats(0.01, 1.0),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["linear", "iid", "antithetic"]),
)
def test_every_record_stands_exactly_once_where_the_order_puts_it(n, share, seed, kind):
    rng = np.random.default_rng(seed)
    b = max(1, math.floor(share * n))
    rows, order = rng.standard_normal((n, D)), rng.permutation(n)
    batches, bounds, features = make(rows, np.arange(n, dtype=np.int32), order, b, kind=kind)
    k = math.ceil(n / b)
    assert batches.rows.shape == (k, b, D)
    assert batches.patterns.shape == (k, b, features.n_gates)
    flat = batches.targets.reshape(-1)
    np.testing.assert_array_equal(flat[:n], order)
    np.testing.assert_array_equal(batches.rows.reshape(-1, D)[:n], bounds(rows)[order])
    np.testing.assert_array_equal(batches.patterns.reshape(k * b, -1)[:n], features.patterns(bounds(rows))[order])
    for filled in (batches.rows, batches.patterns, batches.targets):
        assert not filled.reshape(k * b, -1)[n:].any()
    assert (batches.scales.reshape(-1)[n:] == 1).all()


def test_no_order_keeps_the_order_given_across_chunks():
    n = CHUNK_ROWS + 5
    rows = np.random.default_rng(0).standard_normal((n, D))
    batches, bounds, _ = make(rows, np.arange(n, dtype=np.int32), None, 1000)
    np.testing.assert_array_equal(batches.targets.reshape(-1)[:n], np.arange(n))
    np.testing.assert_array_equal(batches.rows.reshape(-1, D)[:n], bounds(rows))


@pytest.mark.parametrize("method", ["normalize", "clip"])
@pytest.mark.parametrize("kind", ["linear", "iid", "antithetic"])
def test_scales_are_rho_over_the_norm_of_the_features(kind, method):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((50, D)) * np.logspace(-6, 2, 50)[:, None]
    batches, _, features = make(rows, np.zeros(50, np.int32), None, 50, kind=kind, method=method, bias=0.1)
    rho = features.feature_norm(2.0)
    for x, gates, scale in zip(batches.rows[0], batches.patterns[0], batches.scales[0], strict=True):
        phi = np.outer(gates * features.levels.astype(np.float64), x.astype(np.float64))
        norm = np.linalg.norm(phi)
        if norm == 0:
            assert scale == 1
            continue
        assert scale >= 1
        assert scale == pytest.approx(rho / norm, rel=2e-6)
        # A record clipped at c * scale has a gradient of at most c * rho, with room for float32 arithmetic.
        assert float(scale) * norm <= rho * (1 - 5e-7)


def test_scales_of_rows_that_are_as_good_as_zero():
    rows = np.array([[0.0] * D, [1e-40] * D, [1e-44, 0, 0, 0], [1e-300] * D, [1e-28] * D])
    batches, _, _ = make(rows, np.zeros(5, np.int32), None, 5, kind="linear")
    np.testing.assert_array_equal(batches.scales[0, :4], 1)
    assert batches.scales[0, 4] == pytest.approx(1e28, rel=1e-6)


def test_a_row_whose_gates_are_all_closed_has_scale_one():
    rows = np.random.default_rng(2).standard_normal((400, D))
    batches, _, _ = make(rows, np.zeros(400, np.int32), None, 400, kind="iid")
    closed = ~batches.patterns[0].any(axis=1)
    assert closed.any()
    assert (batches.scales[0, closed] == 1).all()


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_dtypes(dtype):
    batches, _, _ = make(np.eye(D, dtype=np.uint8), np.arange(D, dtype=dtype), None, 3)
    assert batches.targets.dtype == dtype
    assert (batches.rows.dtype, batches.patterns.dtype, batches.scales.dtype) == (np.float32, np.int8, np.float32)
