import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from noisycgd._validation import DataError, ParameterError, ParameterTypeError
from noisycgd.data import RowBounds
from noisycgd.data.bounds import CHUNK_ROWS

any_rows = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)


def make(row_norm=1.0, method="normalize", center=False, bias=0.0, column_bounds=None, n_features=3):
    return RowBounds.create(row_norm, method, center, bias, column_bounds, n_features)


def norms(rows):
    return np.linalg.norm(rows.astype(np.float64), axis=1)


@settings(deadline=None, max_examples=150)
@given(
    rows=any_rows,
    row_norm=st.sampled_from([1e-9, 0.3, 1.0, 37.5, 1e9]),
    method=st.sampled_from(["normalize", "clip"]),
    center=st.booleans(),
    bias=st.sampled_from([0.0, 1.0, -2.5, 1e-300, 5e-324, 1e308]),
    column_bounds=st.sampled_from([None, (0.0, 1.0), (-1e300, 1e307), (0.1, 0.7)]),
)
def test_no_row_exceeds_the_radius(rows, row_norm, method, center, bias, column_bounds):
    bounds = make(row_norm, method, center and rows.shape[1] > 1, bias, column_bounds, rows.shape[1])
    out = bounds(rows)
    assert out.dtype == np.float32
    assert out.shape == (len(rows), bounds.width(rows.shape[1]))
    assert np.isfinite(out).all()
    assert (norms(out) <= row_norm * (1 + 1e-6)).all()


@settings(deadline=None, max_examples=100)
@given(rows=any_rows, row_norm=st.sampled_from([1e-9, 1.0, 1e9]))
def test_normalize_puts_every_other_row_on_the_sphere_and_leaves_zero_rows(rows, row_norm):
    out = norms(make(row_norm, n_features=rows.shape[1])(rows))
    zero = ~rows.any(axis=1)
    assert (out[zero] == 0).all()
    np.testing.assert_allclose(out[~zero], row_norm, rtol=1e-6)


@pytest.mark.parametrize("method", ["normalize", "clip"])
def test_directions_and_lengths(method):
    rows = np.array([[3.0, 4.0, 0.0], [0.3, 0.0, -0.4], [0.0, 0.0, 0.0]])
    out = make(2.0, method)(rows)
    inside = [1.2, 0.0, -1.6] if method == "normalize" else [0.3, 0.0, -0.4]
    np.testing.assert_allclose(out, [[1.2, 1.6, 0.0], inside, [0.0, 0.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("tiny", [1e-308, 5e-324, 1e-200])
def test_tiny_entries(tiny):
    np.testing.assert_allclose(make()(np.array([[tiny, 0, -tiny]])), [[0.5**0.5, 0, -(0.5**0.5)]], rtol=1e-6)
    assert norms(make(method="clip")(np.array([[tiny, 0, -tiny]])))[0] < 1e-40


def test_huge_entries():
    for method in ("normalize", "clip"):
        np.testing.assert_allclose(make(3.0, method)(np.full((1, 3), 1e308)), [[3**0.5] * 3], rtol=1e-6)


def test_a_constant_row_is_zero_after_centring():
    for value in (0.1, 1 / 3, 1e308, -7e-310, 255):
        for method in ("normalize", "clip"):
            assert not make(1.0, method, center=True, n_features=97)(np.full((1, 97), value)).any()


def test_rounding_error_becomes_no_direction():
    # In exact arithmetic each of these rows cancels to zero.
    centred = make(center=True)(np.array([[0.1 + 0.2, 0.3, 0.3], [1e308, 1e308 * (1 - 2e-16), 1e308]]))
    assert not centred.any()
    bounded = make(column_bounds=[[0.1, 0.7], [-0.3, 0.9], [1 / 3, 2 / 3]])(np.array([[0.4, 0.3, 0.5]]))
    assert not bounded.any()
    both = make(center=True, column_bounds=[[0.0, 0.3], [0.0, 0.7], [0.0, 1.1]])(np.array([[0.03, 0.07, 0.11]]))
    assert not both.any()


def test_small_but_real_differences_keep_their_direction():
    # One unit of float32 rounding is still data: only what float64 cannot resolve counts as zero.
    row = np.array([[1.0, 1.0, 1.0 + 2**-23]])
    expected = np.array([[-1.0, -1.0, 2.0]]) / np.sqrt(6)
    np.testing.assert_allclose(make(center=True)(row), expected, rtol=1e-6)


def test_centring_a_single_column_is_refused():
    for bias in (0.0, 1.0):
        with pytest.raises(ParameterError, match=r"^center_rows must be False for a single column"):
            make(center=True, bias=bias, n_features=1)


def test_bias_survives_a_row_that_centring_cancels():
    np.testing.assert_array_equal(make(2.0, center=True, bias=1e-20)(np.full((1, 3), 5.0)), [[0, 0, 0, 2.0]])


def test_order_is_columns_then_centring_then_bias_then_bounding():
    rows = np.array([[0.0, 10.0, 30.0], [-4.0, 2.0, 4.0]])
    low, high = np.array([0.0, 0.0, 0.0]), np.array([4.0, 20.0, 20.0])
    x = (np.clip(rows, low, high) - low) / (high - low) * 2 - 1
    x = x - x.mean(axis=1, keepdims=True)
    x = np.concatenate([x, np.full((2, 1), 0.5)], axis=1)
    for method in ("normalize", "clip"):
        length = np.linalg.norm(x, axis=1, keepdims=True)
        expected = x / length * (0.75 if method == "normalize" else np.minimum(0.75, length))
        bounds = make(0.75, method, center=True, bias=0.5, column_bounds=np.stack([low, high], axis=1))
        np.testing.assert_allclose(bounds(rows), expected, atol=1e-6)


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("options", [{}, {"center": True, "bias": 1.0}, {"column_bounds": (-1.0, 1.0)}])
def test_a_row_never_depends_on_the_others(options, layout):
    rng = np.random.default_rng(0)
    rows = np.asarray(rng.standard_normal((CHUNK_ROWS + 3, 3)), order=layout)
    bounds = make(**options)
    together = np.concatenate([part for _, part in bounds.chunks(rows)])
    others = np.asarray(rng.standard_normal(rows.shape) * 1e6, order=layout)
    for i in (0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 2):
        np.testing.assert_allclose(bounds(rows[i : i + 1])[0], together[i], rtol=3e-7, atol=1e-7)
        changed = others.copy(order="K")
        changed[i] = rows[i]
        np.testing.assert_array_equal(np.concatenate([part for _, part in bounds.chunks(changed)])[i], together[i])


def test_chunks_cover_every_row_once():
    rows = np.ones((2 * CHUNK_ROWS + 1, 2))
    slices = [part for part, _ in make(n_features=2).chunks(rows)]
    assert [(s.start, s.stop) for s in slices] == [
        (0, CHUNK_ROWS),
        (CHUNK_ROWS, 2 * CHUNK_ROWS),
        (2 * CHUNK_ROWS, 2 * CHUNK_ROWS + 1),
    ]


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.int64, np.int8, np.float32, np.float16])
def test_dtypes(dtype):
    rows = np.array([[1, 0, 1], [0, 0, 0]], dtype=dtype)
    np.testing.assert_allclose(make(n_features=3)(rows), [[0.5**0.5, 0, 0.5**0.5], [0, 0, 0]], rtol=1e-6)
    # An unsigned row is subtracted from as a real number.
    np.testing.assert_allclose(make(center=True)(rows)[0], np.array([1, -2, 1]) / np.sqrt(6), rtol=1e-6)


def test_input_is_left_alone():
    rows = np.array([[3.0, 4.0, 0.0]])
    make(center=True, column_bounds=(0.0, 1.0))(rows)
    np.testing.assert_array_equal(rows, [[3.0, 4.0, 0.0]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_input(bad):
    for column_bounds in (None, (0.0, 1.0)):
        with pytest.raises(DataError, match="X must be finite; got NaN or infinity"):
            make(column_bounds=column_bounds)(np.array([[1.0, 2.0, 3.0], [0.0, bad, 0.0]]))


@pytest.mark.parametrize("column_bounds", [None, (0.0, 255.0), [[0, 1], [-1, 2], [0.1, 0.7]]])
@pytest.mark.parametrize("method", ["normalize", "clip"])
def test_from_dict_inverts_to_dict(method, column_bounds):
    bounds = make(2.5, method, True, -0.5, column_bounds)
    again = RowBounds.from_dict(json.loads(json.dumps(bounds.to_dict())), 3)
    assert again.to_dict() == bounds.to_dict()
    rows = np.random.default_rng(1).standard_normal((5, 3))
    np.testing.assert_array_equal(again(rows), bounds(rows))


def test_width():
    assert make().width(3) == 3
    assert make(bias=-0.1).width(3) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"row_norm": 0}, "row_norm must be a number at least 1e-09 and at most 1e[+]09; got 0"),
        ({"row_norm": -1.0}, "row_norm"),
        ({"row_norm": 1e-40}, "row_norm"),
        ({"row_norm": 1e39}, "row_norm"),
        ({"row_norm": float("nan")}, "row_norm"),
        ({"row_norm": float("inf")}, "row_norm"),
        ({"method": "none"}, "row_bounding must be one of 'normalize', 'clip'; got 'none'"),
        ({"bias": float("inf")}, "bias must be a number that is finite"),
        ({"column_bounds": (1.0, 0.0)}, "column_bounds must be finite with low < high in every column"),
        ({"column_bounds": (1.0, 1.0)}, "low < high"),
        ({"column_bounds": (0.0, np.inf)}, "finite"),
        ({"column_bounds": (np.nan, 1.0)}, "finite"),
        ({"column_bounds": 3.0}, "low < high"),
        ({"column_bounds": [[0, 1], [0, 1]]}, r"column_bounds must be a \(low, high\) pair or of shape \(3, 2\)"),
        ({"column_bounds": [(0, 1, 2)]}, "pair or of shape"),
        ({"column_bounds": "wide"}, "pair or of shape"),
        ({"column_bounds": {"low": 0}}, "pair or of shape"),
        ({"column_bounds": (-1e308, 1e308)}, "neither too far apart nor too close"),
        ({"column_bounds": (0.0, 5e-324)}, "neither too far apart nor too close"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(ParameterError, match=words):
        make(**options)


@pytest.mark.parametrize("options", [{"row_norm": "1"}, {"row_norm": True}, {"bias": None}])
def test_types(options):
    with pytest.raises(ParameterTypeError):
        make(**options)


def test_from_dict_checks_again():
    values = make().to_dict() | {"row_norm": -1.0}
    with pytest.raises(ParameterError, match="row_norm"):
        RowBounds.from_dict(values, 3)
