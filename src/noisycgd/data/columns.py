"""What is publicly known of one column, and how its values become numbers; every map reads one value at a time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, message

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers in [low, high]; low < high, and high - low is finite."""

    low: float
    high: float

    def plain(self) -> list[float]:
        """[low, high]."""
        return [self.low, self.high]

    def clip(self, column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
        """(n,) numbers in [low, high]; NaN where missing. Raises `DataError` if the column holds no numbers."""
        return self.numbers(column, name).clip(self.low, self.high)

    @staticmethod
    def numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
        """(n,) numbers as they are; NaN where missing. Raises like `clip`."""
        import pyarrow as pa

        try:
            numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
        except (pa.ArrowException, ArithmeticError, ValueError):
            got = f"{column.type} values that are none"
            raise DataError(
                message(f"Column {name!r}", "numbers, as the schema says", got, "Mend the table or the schema.")
            ) from None
        return numbers

    def scale(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """[low, high] -> [-1, 1], linear; NaN -> 0."""
        scaled = 2 * ((numbers - self.low) / (self.high - self.low)) - 1
        return np.where(np.isnan(scaled), 0.0, scaled)


@dataclass(frozen=True, slots=True)
class Categories:
    """Listed values: at least one, all strings, all integers or all booleans, none twice."""

    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]

    def plain(self) -> list[Any]:
        """The values as a list."""
        return list(self.values)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each value as it stands in feature names."""
        return tuple(str(_text(value, type(value))) for value in self.values)

    def codes(self, column: pa.ChunkedArray, name: str) -> NDArray[np.intp]:
        """(n,) positions in `values`; -1 where missing or unlisted.

        Values are matched by meaning: where integers are listed, 1 is also 1.0 and "1"; where booleans are, true is
        also 1 and "True". Raises `DataError` if the column's type has no such values.
        """
        import pyarrow as pa

        kind = type(self.values[0])
        positions: dict[str | None, int] = {text: i for i, text in enumerate(self.texts)}
        codes = [np.empty(0, np.intp)]
        try:
            for chunk in column.chunks:
                encoded = chunk.dictionary_encode()
                distinct = encoded.dictionary.to_pylist()
                # The last entry serves the missing values.
                table = np.array([*(positions.get(_text(v, kind), -1) for v in distinct), -1], dtype=np.intp)
                codes.append(table[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)])
        except (pa.ArrowException, ArithmeticError, ValueError):
            way_out = "Let the schema ignore it."
            raise DataError(
                message(f"Column {name!r}", "categories, as the schema says", f"{column.type} values", way_out)
            ) from None
        return np.concatenate(codes)


def rounded_outward(low: float, high: float) -> Interval:
    """Bounds with few digits around [low, high], in steps of the power of ten at or below its width.

    A single value tells no width: it gets its own size to either side, at least 1. Numbers up to 1e300 in size.
    """
    a, b = Decimal(low), Decimal(high)
    step = Decimal(10) ** (b - a).adjusted()
    below = float((a / step).to_integral_value(ROUND_FLOOR) * step)
    above = float((b / step).to_integral_value(ROUND_CEILING) * step)
    if below < above:
        return Interval(below, above)
    return Interval(low - max(1.0, abs(low)), high + max(1.0, abs(high)))


def toml_key(text: str) -> str:
    """A key as it stands in TOML, quoted if it has to be."""
    return text if re.fullmatch("[A-Za-z0-9_-]+", text) else toml_string(text)


def toml_string(text: str) -> str:
    """TOML basic string."""
    escapes = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escapes.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text) + '"'


def toml_value(value: Any) -> str:
    """A string, boolean, number or list of them, in TOML."""
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(value: Any, kind: type) -> str | None:
    """One text for all spellings of a value among values of `kind`; None for a missing one."""
    if isinstance(value, str):
        if kind is str:
            return value
        value = _number(value) if kind is int else {"true": True, "false": False}.get(value.lower(), value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind is bool and value in (0, 1):
        value = bool(value)
    if kind is int and isinstance(value, bool):
        value = int(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _number(text: str) -> int | float | str:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
