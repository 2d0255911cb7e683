"""One grammar of error messages: name, requirement, value, way out."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NoReturn

LARGEST_SIZE = 2**31 - 1
"""Of one axis of an array: beyond it NumPy and JAX refuse in words of their own."""


class NoisyCGDError(Exception):
    """Base of every error that a user of this package can mend."""


class ParameterError(NoisyCGDError, ValueError):
    """A parameter breaks its requirement."""


class ParameterTypeError(NoisyCGDError, TypeError):
    """A parameter is of the wrong type."""


class DataError(NoisyCGDError, ValueError):
    """Data cannot be read or used as they are."""


class ModelFileError(NoisyCGDError, ValueError):
    """A saved model is missing, truncated, tampered with, or of another version."""


class UnprovenGuaranteeError(ParameterError):
    """The request leaves what is proved; no epsilon is printed for it."""


def message(name: str, requirement: str, value: object, way_out: str = "") -> str:
    """``"<name> must be <requirement>; got <value>. <way out>"``, the one form of every refusal."""
    return f"{name} must be {requirement}; got {_shown(value)}." + (f" {way_out}" if way_out else "")


def refuse(name: str, requirement: str, value: object, way_out: str = "") -> NoReturn:
    """Raise `ParameterError` in the one grammar."""
    raise ParameterError(message(name, requirement, value, way_out))


def check_real(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    way_out: str = "",
) -> float:
    """Return `value` as a finite float in the stated interval; ends are included unless declared open.

    Raises
    ------
    ParameterTypeError
        If `value` is no real number (booleans are none).
    ParameterError
        If it is not finite or lies outside the interval.
    """
    requirement = _interval("a number", low, high, open_low, open_high)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ParameterTypeError(message(name, requirement, value, way_out))
    try:
        number = float(value)
    except OverflowError:
        number = -math.inf if value < 0 else math.inf
    too_low = number <= low if open_low else number < low
    too_high = number >= high if open_high else number > high
    if not math.isfinite(number) or too_low or too_high:
        refuse(name, requirement, number, way_out)
    return number


def check_integer(name: str, value: object, *, low: int = 1, high: int | None = None, way_out: str = "") -> int:
    """Return `value` as an int in [low, high].

    Raises
    ------
    ParameterTypeError
        If `value` is no integer (booleans are none).
    ParameterError
        If it lies outside the interval.
    """
    requirement = _interval("an integer", low, math.inf if high is None else high, False, False)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ParameterTypeError(message(name, requirement, value, way_out))
    number = int(value)
    if number < low or (high is not None and number > high):
        refuse(name, requirement, number, way_out)
    return number


def check_choice(name: str, value: object, choices: Collection[str], way_out: str = "") -> str:
    """Return `value` if it is one of `choices`, else raise `ParameterError` listing them."""
    if not isinstance(value, str) or value not in choices:
        refuse(name, "one of " + ", ".join(repr(c) for c in choices), value, way_out)
    return value


def rounded_up(value: float, digits: int = 6) -> str:
    """`value` with that many significant digits, rounded up: a bound stays a bound in print."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 6) -> str:
    """The same rounded down, for what may be no more than stated, and for lower bounds."""
    return _rounded(value, digits, ROUND_FLOOR)


def delta_in_print(delta: float) -> str:
    """Delta in few digits and never too small: epsilon beside it holds for no smaller one."""
    short = f"{delta:g}"
    return short if float(short) >= delta else rounded_up(delta)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(value)
    number = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))).normalize()
    return f"{number:f}" if not number or -10 <= number.adjusted() < 16 else f"{number:e}"


def _interval(noun: str, low: float, high: float, open_low: bool, open_high: bool) -> str:
    least, most = _end(low, ROUND_CEILING), _end(high, ROUND_FLOOR)
    if float(least) > float(most):
        least, most = str(low), str(high)
    parts = []
    if low > -math.inf:
        parts.append(f"{'above' if open_low else 'at least'} {least}")
    if high < math.inf:
        parts.append(f"{'below' if open_high else 'at most'} {most}")
    return " ".join([noun, " and ".join(parts)]) if parts else f"{noun} that is finite"


def _end(value: float, rounding: str) -> str:
    """An end of an interval, rounded into it: who follows the advice is not refused again."""
    if isinstance(value, int):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else _rounded(value, 6, rounding)


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
