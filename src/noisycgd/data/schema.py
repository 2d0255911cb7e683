"""Public facts of a table, kept in a TOML file: what each column is and which values it can have.

::

    [target]
    name = "label"
    classes = ["a", "b"]        # classification; for regression: bounds = [0.0, 10.0]
    [columns.age]
    type = "number"
    bounds = [0, 120]
    [columns.city]
    type = "category"
    categories = ["Amsterdam", "Espoo"]
    [columns.id]
    type = "ignore"

The rules, each a map of one row, so that one record never changes how another is encoded:

* a number is clipped to its bounds and scaled linearly to [-1, 1]; an infinite one is clipped, a missing one (or NaN)
  becomes 0, the middle;
* a category becomes one 0/1 feature for each listed value; a missing or unlisted value becomes all zeros;
* booleans are the categories ``[false, true]``, or a number with bounds ``[0, 1]``;
* an ignored column, and any column that the schema does not name, is left out;
* a target outside its bounds is clipped to them; a missing target, or one that is no listed class, is refused.

Values are matched by meaning, whatever type a file gives them: the category 1 is also 1.0 and "1", true is "True".
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, message
from noisycgd.data.columns import Categories, Interval, rounded_outward, toml_key, toml_string, toml_value
from noisycgd.data.sources import check_unique, read_table, reading, select

if TYPE_CHECKING:
    import pyarrow as pa

_FORM = 'See the form in the documentation of noisycgd.data.schema, or start from "noisycgd schema draft FILE".'


@dataclass(frozen=True, slots=True)
class Schema:
    """What is publicly known of a table.

    Attributes
    ----------
    columns : mapping of str to Interval, Categories or None
        Feature columns in order; None for one that is ignored.
    target : str
        Name of the target's column.
    target_values : Categories or Interval
        Its classes, or a regression target's bounds.

    Raises
    ------
    DataError
        From `load`, `from_toml` and `from_dict`, with the place, if the text is no such schema.
    """

    columns: Mapping[str, Interval | Categories | None]
    target: str
    target_values: Categories | Interval

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file; raises `DataError` naming the file and the place."""
        with reading(path, "a readable schema file (TOML, UTF-8)", _FORM):
            text = Path(path).read_text(encoding="utf-8")
        return cls.from_toml(text, str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "The schema") -> Schema:
        """Parse TOML; `name` begins the error messages."""
        with reading(name, "valid TOML", _FORM):
            values = tomllib.loads(text)
        return cls.from_dict(values, name)

    @classmethod
    def from_dict(cls, values: Any, name: str = "The schema") -> Schema:
        """Inverse of `to_dict`."""
        _check_table(values, name, "", ("target", "columns"))
        target, tables = values["target"], values["columns"]
        _check_table(target, name, "target", ("name",), ("classes", "bounds"))
        if not isinstance(target["name"], str):
            _bad(name, "target.name", "a column's name", target["name"])
        if ("classes" in target) == ("bounds" in target):
            _bad(name, "target", "given either classes or bounds", "both" if "bounds" in target else "neither")
        what: Categories | Interval
        if "bounds" in target:
            what = _interval(target["bounds"], name, "target.bounds")
        else:
            what = _categories(target["classes"], name, "target.classes", least=2)
        if not isinstance(tables, dict):
            _bad(name, "columns", "a table with one table for each column", tables)
        columns = {key: _column(value, name, f"columns.{key}") for key, value in tables.items()}
        if target["name"] in columns:
            _bad(name, f"columns.{target['name']}", "absent, since it is the target", "a feature column")
        schema = cls(columns, target["name"], what)
        if not schema.feature_names:
            _bad(name, "columns", "a table with a column that is not ignored", "none")
        check_unique(f"{name}: the features", schema.feature_names)
        return schema

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON and in the form of the TOML file; `from_dict` reads them back."""
        key = "bounds" if isinstance(self.target_values, Interval) else "classes"
        columns: dict[str, dict[str, Any]] = {}
        for name, fact in self.columns.items():
            if isinstance(fact, Interval):
                columns[name] = {"type": "number", "bounds": fact.plain()}
            elif isinstance(fact, Categories):
                columns[name] = {"type": "category", "categories": fact.plain()}
            else:
                columns[name] = {"type": "ignore"}
        return {"target": {"name": self.target, key: self.target_values.plain()}, "columns": columns}

    def to_toml(self) -> str:
        """The schema as a TOML file; `from_toml` reads it back."""
        values = self.to_dict()
        tables = {"target": values["target"], **{f"columns.{toml_key(k)}": v for k, v in values["columns"].items()}}
        return "\n".join(
            "\n".join([f"[{title}]", *(f"{key} = {toml_value(v)}" for key, v in table.items()), ""])
            for title, table in tables.items()
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d encoded features: "age", "city=Amsterdam", ..."""
        return tuple(
            feature
            for name, column in self.columns.items()
            if column is not None
            for feature in ([name] if isinstance(column, Interval) else [f"{name}={text}" for text in column.texts])
        )

    def read_table(self, path: str | Path, with_target: bool = True) -> pa.Table:
        """Read a table file whose CSV columns are parsed as the schema says, not as the other records suggest.

        Without the target its column may hold any text, as where it is still to be predicted. Raises `DataError` as
        `sources.read_table` does, and for text in a CSV where the schema has a number.
        """
        import pyarrow as pa

        facts = {**self.columns, **({self.target: self.target_values} if with_target else {})}
        types = {name: pa.float64() if isinstance(fact, Interval) else pa.string() for name, fact in facts.items()}
        return read_table(path, types)

    def unlisted(self, table: pa.Table) -> dict[str, int]:
        """Number of rows with a category that is not listed, for each column with such rows; `encode` ignores it.

        Missing values do not count. It depends on every record: not for those that a model is trained on.
        """
        found = {}
        for name, column in self.columns.items():
            if isinstance(column, Categories):
                values = select(table, [name])[name]
                missing = np.array([value in (None, "") or value != value for value in values.to_pylist()], dtype=bool)
                found[name] = int(((column.codes(values, name) < 0) & ~missing).sum())
        return {name: count for name, count in found.items() if count > 0}

    def encode(self, table: pa.Table) -> NDArray[np.float32]:
        """(n, d) features by the rules above, in the order of `feature_names`; entries in [-1, 1].

        Raises `DataError` naming a column that is absent, repeated, or of a type unlike the schema's.
        """
        used = [name for name, column in self.columns.items() if column is not None]
        table = select(table, used)
        X = np.zeros((table.num_rows, len(self.feature_names)), np.float32)
        j = 0
        for name in used:
            column = self.columns[name]
            if isinstance(column, Interval):
                X[:, j] = column.scale(column.clip(table[name], name))
                j += 1
            elif isinstance(column, Categories):
                codes = column.codes(table[name], name)
                known = np.flatnonzero(codes >= 0)
                X[known, j + codes[known]] = 1
                j += len(column.values)
        return X

    def encode_target(self, table: pa.Table, *, clip: bool = True) -> NDArray[Any]:
        """(n,) targets: values of the listed classes, or numbers in their own unit.

        Numbers are clipped to the bounds, or, to be scored against, with `clip=False` only beyond 1e100, whose squares
        might overflow.

        Raises `DataError` if the column is absent, or a value is missing or no listed class; the message counts them.
        """
        column = select(table, [self.target])[self.target]
        if isinstance(self.target_values, Interval):
            low, high = self.target_values.plain()
            targets = self.target_values.numbers(column, self.target)
            targets = np.where(clip | (np.abs(targets) > _LARGEST_TRUTH), targets.clip(low, high), targets)
            bad, requirement = np.isnan(targets), "a number in every row"
        else:
            codes = self.target_values.codes(column, self.target)
            targets = np.array(self.target_values.values)[codes]
            bad, requirement = codes < 0, "one of the schema's classes in every row"
        if bad.any():
            got = f"{int(bad.sum())} rows with another or no value"
            raise DataError(
                message(f"Target {self.target!r}", requirement, got, "Remove these rows, or mend the schema.")
            )
        return targets


def draft_schema(table: pa.Table, target: str) -> str:
    """Schema for `table` in TOML, inferred from its records, for a person to review.

    A draft is NOT public: its bounds and categories come from the data. Every inferred line carries a comment that says
    so. Numbers get bounds rounded outward; strings, booleans and integers of few different values become categories;
    whatever else is ignored, with the reason.

    Raises `DataError` if the target's column is absent, without values, or fit neither for classes nor for numbers.
    """
    select(table, [target])
    facts = {name: _inferred(table[name]) for name in table.column_names}
    what = facts.pop(target)
    if isinstance(what, Categories) and len(what.values) == 1:
        what = "a single value"
    if isinstance(what, str):
        raise DataError(message(f"Target {target!r}", "classes or numbers", what, "Name another target column."))
    if all(isinstance(fact, str) for fact in facts.values()):
        got = "; ".join(f"{name!r}: {fact}" for name, fact in facts.items()) or "the target alone"
        raise DataError(message("The table", "one with a usable feature column", got, "Add or convert columns."))
    line = "bounds = {} {}, for regression" if isinstance(what, Interval) else "classes = {} {}"
    lines = [_HEADER, "[target]", f"name = {toml_string(target)}", line.format(toml_value(what.plain()), _REVIEW)]
    for name, fact in facts.items():
        lines += ["", f"[columns.{toml_key(name)}]"]
        if isinstance(fact, Interval):
            lines += ['type = "number"', f"bounds = {toml_value(fact.plain())} {_REVIEW}"]
        elif isinstance(fact, Categories):
            lines += ['type = "category"', f"categories = {toml_value(fact.plain())} {_REVIEW}"]
        else:
            lines.append(f'type = "ignore" {_REVIEW}: {fact}')
    return "\n".join(lines) + "\n"


_LARGEST_TRUTH = 1e100
REVIEW_MARK = "review: inferred from data"
_REVIEW = f" # {REVIEW_MARK}"
_HEADER = """\
# This draft was written by looking at the records, so it is not public and no privacy guarantee covers it. Replace each
# marked line by what is known without them (a code book, a form, a law of nature): bounds that any record could have
# had, and all categories that could occur. Then remove its comment. A column with type = "ignore" is not used.
"""

# Integers of more values are numbers; strings of more values are names or free text.
_MAX_INTEGERS, _MAX_STRINGS = 10, 50


def _inferred(column: pa.ChunkedArray) -> Interval | Categories | str:
    """What a column seems to be, or why it cannot be used."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    real = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_boolean(kind):
        return Categories((False, True))
    if not (text or real or pa.types.is_integer(kind)):
        return f"{kind} values"
    if text:
        values = sorted({value for value in column.unique().to_pylist() if value})
        if not values:
            return "no values"
        if len(values) > _MAX_STRINGS or (len(values) > 10 and 2 * len(values) > len(column)):
            return f"{len(values)} different texts in {len(column)} rows"
        return Categories(tuple(values))
    numbers = column.cast(kind).cast(pa.float64(), safe=False).to_numpy()
    distinct = np.unique(numbers[np.isfinite(numbers)])
    if not distinct.size:
        return "no values"
    # Whole floats count as integers: pandas turns integers with gaps into floats.
    if distinct.size <= _MAX_INTEGERS and np.all(distinct == np.round(distinct)) and np.abs(distinct).max() < 2**53:
        return Categories(tuple(int(value) for value in distinct))
    if np.abs(distinct).max() > 1e300:
        return "numbers beyond 1e300"
    return rounded_outward(float(distinct[0]), float(distinct[-1]))


def _column(values: Any, name: str, place: str) -> Interval | Categories | None:
    """One ``[columns.NAME]`` table."""
    keys = {"number": ("bounds",), "category": ("categories",), "ignore": ()}
    kind = values.get("type") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in keys:
        _bad(name, f"{place}.type", "one of " + ", ".join(map(repr, keys)), kind)
    _check_table(values, name, place, ("type", *keys[kind]))
    if kind == "number":
        return _interval(values["bounds"], name, f"{place}.bounds")
    return _categories(values["categories"], name, f"{place}.categories") if kind == "category" else None


def _interval(values: Any, name: str, place: str) -> Interval:
    requirement = "[low, high], two finite numbers with low below high"
    if not isinstance(values, list) or len(values) != 2 or any(type(v) not in (int, float) for v in values):
        _bad(name, place, requirement, values)
    try:
        low, high = map(float, values)
    except OverflowError:
        _bad(name, place, requirement, "an integer beyond the range of numbers")
    # The width must be finite too: scaling divides by it.
    if not (low < high and math.isfinite(high - low)):
        _bad(name, place, requirement, values)
    return Interval(low, high)


def _categories(values: Any, name: str, place: str, least: int = 1) -> Categories:
    requirement = f"a list of {least} or more different strings, integers or booleans, all of one kind"
    if not isinstance(values, list) or len(values) < least or len({type(v) for v in values}) != 1:
        _bad(name, place, requirement, values)
    if type(values[0]) not in (str, int, bool) or len(set(values)) < len(values):
        _bad(name, place, requirement, values)
    if type(values[0]) is int and not all(-(2**63) <= v < 2**63 for v in values):
        _bad(name, place, "a list of integers of 64 bits", values)
    return Categories(tuple(values))


def _check_table(values: Any, name: str, place: str, required: Collection[str], optional: Collection[str] = ()) -> None:
    """`values` is a table with all the required keys and no unknown one."""
    if not isinstance(values, dict):
        _bad(name, place, "a table", values)
    for key in required:
        if key not in values:
            _bad(name, f"{place}.{key}".lstrip("."), "given", "nothing")
    for key in values:
        if key not in (*required, *optional):
            _bad(
                name, f"Key {place}.{key}".replace(" .", " "), "one of " + ", ".join((*required, *optional)), "another"
            )


def _bad(name: str, place: str, requirement: str, got: object) -> NoReturn:
    raise DataError(message(f"{name}: {place}", requirement, got, _FORM))
