import math
import tomllib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd._validation import DataError
from noisycgd.data.columns import Categories, Interval, rounded_outward, toml_key, toml_string, toml_value


def column(values, kind=None):
    return pa.chunked_array([pa.array(values, kind)])


def test_interval_clips_and_keeps_missing_apart():
    numbers = Interval(0, 10).clip(column([-5.0, 3.0, 99.0, math.inf, -math.inf, math.nan, None]), "a")
    np.testing.assert_array_equal(numbers, [0, 3, 10, 10, 0, np.nan, np.nan])
    scaled = Interval(0, 10).scale(numbers)
    np.testing.assert_allclose(scaled, [-1, -0.4, 1, 1, -1, 0, 0], atol=1e-15)


@pytest.mark.parametrize(
    "values",
    [column([1, 0]), column([True, False]), column(["1", "0.0"]), column([1, 0], pa.uint8()), column([1.0, 0.0])],
)
def test_interval_reads_every_kind_of_number(values):
    np.testing.assert_array_equal(Interval(0, 5).clip(values, "a"), [1, 0])


@pytest.mark.parametrize("values", [["x"], [{"a": 1}], [b"x"]])
def test_interval_names_a_column_without_numbers(values):
    with pytest.raises(DataError, match="Column 'odd' must be numbers"):
        Interval(0, 1).clip(column(values), "odd")


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_scaled_values_lie_within_one(data):
    # Also for intervals next to overflow and underflow.
    finite = st.floats(-8e307, 8e307)
    low, high = sorted((data.draw(finite), data.draw(finite)))
    if low == high:
        return
    interval = Interval(low, high)
    values = data.draw(st.lists(st.none() | st.floats(), min_size=1, max_size=5))
    scaled = interval.scale(interval.clip(column(values, pa.float64()), "a"))
    assert np.all(np.abs(scaled) <= 1)
    np.testing.assert_array_equal(interval.scale(np.array([low, high])), [-1, 1])


@pytest.mark.parametrize(
    ("categories", "values", "codes"),
    [
        (("a", "b"), ["b", "a", "c", None, ""], [1, 0, -1, -1, -1]),
        (("a", ""), ["", None], [1, -1]),
        (("1", "x"), [1, 2, None], [0, -1, -1]),
        (("1", "x"), [1.0, 1.5, math.nan], [0, -1, -1]),
        (("None", "nan"), [None, math.nan], [-1, -1]),
        (("01", "1"), ["01", "1"], [0, 1]),
        ((1, 2), [2, 1, 3], [1, 0, -1]),
        ((1, 2), [2.0, 1.5, None, math.inf], [1, -1, -1, -1]),
        ((1, 2), ["1", " 2", "01", "1.0", "1.5", "x", "nan", "inf"], [0, 1, 0, 0, -1, -1, -1, -1]),
        ((0, 1), [True, False], [1, 0]),
        ((False, True), [True, False, None], [1, 0, -1]),
        ((False, True), ["TRUE", "false", "yes"], [1, 0, -1]),
        ((False, True), [1, 0, 2], [1, 0, -1]),
        ((-(2**63), 2**63 - 1), [2**63 - 1, -(2**63), 2**63 - 2], [1, 0, -1]),
    ],
)
def test_categories_match_by_meaning(categories, values, codes):
    np.testing.assert_array_equal(Categories(categories).codes(column(values), "a"), codes)


def test_categories_across_chunks_and_dictionaries():
    first = pa.array(["a", "b"]).dictionary_encode()
    second = pa.array(["b", None, "a"]).dictionary_encode()
    codes = Categories(("b",)).codes(pa.chunked_array([first, second]), "a")
    np.testing.assert_array_equal(codes, [-1, 0, 0, -1, -1])
    null_inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, "b"]))
    np.testing.assert_array_equal(Categories(("b",)).codes(pa.chunked_array([null_inside]), "a"), [-1, 0, -1])
    assert Categories(("b",)).codes(pa.chunked_array([], pa.string()), "a").shape == (0,)
    np.testing.assert_array_equal(Categories(("b",)).codes(column([None, None]), "a"), [-1, -1])


def test_categories_name_a_column_without_such_values():
    with pytest.raises(DataError, match="Column 'odd' must be categories"):
        Categories(("a",)).codes(column([{"a": 1}]), "odd")


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (17, 83, (10, 90)),
        (-3, 6, (-3, 6)),
        (-3.2, 5.1, (-4, 6)),
        (-3.2, 7.1, (-10, 10)),
        (0.1, 0.3, (0.1, 0.3)),
        (0.11, 0.29, (0.1, 0.3)),
        (0, 0, (-1, 1)),
        (5, 5, (0, 10)),
        (-0.5, -0.5, (-1.5, 0.5)),
        (5e-324, 5e-324, (-1, 1)),
    ],
)
def test_rounding_outward_by_hand(low, high, bounds):
    assert rounded_outward(low, high).plain() == list(bounds)


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
@settings(max_examples=200, deadline=None)
def test_rounding_outward_contains_and_stays_finite(a, b):
    low, high = min(a, b), max(a, b)
    interval = rounded_outward(low, high)
    assert interval.low <= low <= high <= interval.high
    assert interval.low < interval.high
    assert math.isfinite(interval.high - interval.low)
    # Friendly: no more than one step, a tenth to one width, is added to either side.
    if interval.low < low < high:
        assert low - interval.low <= (high - low) * (1 + 1e-9) or interval.low <= low - 1


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_strings_and_keys_survive_toml(text):
    assert tomllib.loads(f"{toml_key(text)} = {toml_string(text)}") == {text: text}


@given(st.lists(st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()))
@settings(max_examples=100, deadline=None)
def test_values_survive_toml(values):
    result = tomllib.loads(f"a = {toml_value(values)}")["a"]
    assert result == values
    assert [type(v) for v in result] == [type(v) for v in values]


def test_values_that_python_does_not_have_are_refused_in_words():
    # The year is far beyond datetime's.
    dates = pa.chunked_array([pa.array([10**8], pa.int32()).cast(pa.date32())])
    with pytest.raises(DataError, match="Column 'a' must be categories, as the schema says; got 'date32"):
        Categories(("b",)).codes(dates, "a")
