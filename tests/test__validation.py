import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd._validation import (
    DataError,
    ModelFileError,
    NoisyCGDError,
    ParameterError,
    ParameterTypeError,
    UnprovenGuaranteeError,
    check_choice,
    check_integer,
    check_real,
    delta_in_print,
    message,
    refuse,
    rounded_down,
    rounded_up,
)


def test_the_grammar_is_name_requirement_value_way_out():
    assert message("eta", "above 0", -1) == "eta must be above 0; got -1."
    assert message("loss", "convex", "hinge", "Use x.") == "loss must be convex; got 'hinge'. Use x."


@pytest.mark.parametrize("value", ["x" * 1000, [0.0] * 1000])
def test_long_values_are_cut(value):
    text = message("a", "short", value)
    assert len(text) < 120
    assert text.endswith("....")


def test_refuse_raises_in_the_grammar():
    with pytest.raises(ParameterError, match=r"^a must be b; got 3\. c$"):
        refuse("a", "b", 3, "c")


def test_every_error_is_ours_and_of_the_builtin_kind_that_callers_catch():
    for error in (ParameterError, DataError, ModelFileError, UnprovenGuaranteeError):
        assert issubclass(error, NoisyCGDError)
        assert issubclass(error, ValueError)
    assert issubclass(ParameterTypeError, NoisyCGDError)
    assert issubclass(ParameterTypeError, TypeError)
    assert issubclass(UnprovenGuaranteeError, ParameterError)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.float64(1), np.int8(1), Fraction(1)])
def test_real_numbers_of_every_kind_become_floats(value):
    number = check_real("a", value, low=0)
    assert number == 1.0
    assert type(number) is float


@pytest.mark.parametrize("value", ["1", None, True, np.True_, 1j, [1.0], np.ones(1), np.array(1.0), Decimal(1)])
def test_what_is_no_real_number(value):
    with pytest.raises(ParameterTypeError, match="a must be a number above 0; got"):
        check_real("a", value, low=0, open_low=True)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, np.float32("inf"), 10**400, -(10**400)], ids=lambda value: str(value)[:5]
)
def test_what_is_not_finite(value):
    with pytest.raises(ParameterError, match="a must be a number that is finite; got"):
        check_real("a", value)


@settings(deadline=None, max_examples=100)
@given(
    value=st.floats(-3, 3),
    low=st.floats(-2, 0),
    high=st.floats(0, 2),
    open_low=st.booleans(),
    open_high=st.booleans(),
)
def test_intervals(value, low, high, open_low, open_high):
    inside = (value > low or (value == low and not open_low)) and (value < high or (value == high and not open_high))
    options = {"low": low, "high": high, "open_low": open_low, "open_high": open_high}
    if inside:
        assert check_real("a", value, **options) == value
    else:
        with pytest.raises(ParameterError):
            check_real("a", value, **options)


@pytest.mark.parametrize(
    ("options", "inside", "outside"),
    [
        ({"low": 0, "high": 1}, (0, 1), (-1e-300, 1 + 1e-15)),
        ({"low": 0, "high": 1, "open_low": True, "open_high": True}, (1e-300, 1 - 1e-15), (0, 1)),
    ],
)
def test_ends_are_included_unless_open(options, inside, outside):
    for value in inside:
        assert check_real("a", value, **options) == value
    for value in outside:
        with pytest.raises(ParameterError):
            check_real("a", value, **options)


def test_the_requirement_spells_the_interval_and_the_way_out():
    with pytest.raises(ParameterError, match=r"^d must be a number above 0 and below 1; got 2\.0\. Lower it\.$"):
        check_real("d", 2, low=0, high=1, open_low=True, open_high=True, way_out="Lower it.")
    with pytest.raises(ParameterError, match=r"^d must be a number at least 0 and at most 1; got -2\.0\.$"):
        check_real("d", -2, low=0, high=1)
    with pytest.raises(ParameterError, match=r"^n must be an integer at least 2 and at most 4; got 5\. Lower it\.$"):
        check_integer("n", 5, low=2, high=4, way_out="Lower it.")


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_of_every_kind_become_ints(value):
    assert type(check_integer("n", value)) is int
    assert check_integer("n", value, low=3, high=3) == 3


@pytest.mark.parametrize("value", [3.0, "3", None, False, np.True_, np.float64(3), [3]])
def test_what_is_no_integer(value):
    with pytest.raises(ParameterTypeError, match="n must be an integer at least 1; got"):
        check_integer("n", value)


@pytest.mark.parametrize("value", [0, -1, 6, 10**30])
def test_integers_out_of_range(value):
    with pytest.raises(ParameterError, match="n must be an integer at least 1 and at most 5"):
        check_integer("n", value, high=5)


def test_choices():
    assert check_choice("kind", "b", ["a", "b"]) == "b"
    for value in ("c", "B", "", None, 1, ["a"]):
        with pytest.raises(ParameterError, match=r"kind must be one of 'a', 'b'; got .*Ask\."):
            check_choice("kind", value, ["a", "b"], "Ask.")


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (1.3357048903949, 4, "1.336"),
        (4.0, 6, "4"),
        (3.9999999999, 6, "4"),
        (0.4, 6, "0.4"),
        (1e-7, 3, "0.0000001"),
        (math.inf, 6, "inf"),
    ],
)
def test_bounds_are_rounded_up_in_print(value, digits, shown):
    assert rounded_up(value, digits) == shown


@given(st.floats(1e-12, 1e6), st.integers(2, 9))
def test_what_is_printed_is_on_the_safe_side_and_near(value, digits):
    low, high = float(rounded_down(value, digits)), float(rounded_up(value, digits))
    assert low <= value <= high
    assert high - low <= 10.0 ** (1 - digits) * value * (1 + 1e-6)
    # Rounding twice moves nothing.
    assert rounded_down(low, digits) == rounded_down(value, digits)


@given(st.floats(1e-30, 0.99))
def test_a_printed_delta_is_never_too_small(delta):
    assert delta <= float(delta_in_print(delta)) <= delta * (1 + 1e-5)


@pytest.mark.parametrize("delta", [1e-5, 1e-12, 0.25, 2.5e-7])
def test_a_delta_of_few_digits_is_printed_as_it_is(delta):
    assert delta_in_print(delta) == f"{delta:g}"


def test_a_named_limit_is_itself_allowed():
    for low, high in ((1 / 3, 1e9 / 7), (2e-13 / 3, 2 / 3)):
        with pytest.raises(ParameterError) as raised:
            check_real("a", -1, low=low, high=high)
        least, most = (
            float(part.split()[0].rstrip(";")) for part in str(raised.value).split("at least ")[1].split("at most ")
        )
        assert low <= least <= most <= high
        assert check_real("a", least, low=low, high=high) == least
    # Ends that six digits cannot tell apart are given in full.
    with pytest.raises(ParameterError, match=r"at least 0\.3333333333333333 and at most 0\.33333334;"):
        check_real("a", 1, low=1 / 3, high=0.33333334)


@pytest.mark.parametrize(("value", "shown"), [(1.23e300, "1.23e+300"), (1e-300, "1e-300"), (1e15, "1" + 15 * "0")])
def test_numbers_far_from_one_are_short(value, shown):
    assert rounded_up(value) == shown
