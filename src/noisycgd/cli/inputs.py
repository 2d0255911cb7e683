"""From a command-line argument (a data set's name or a file) to arrays, and what is public about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, ModelFileError, check_integer, check_real, message
from noisycgd.data.columns import Categories
from noisycgd.data.datasets import DATASETS, load_dataset
from noisycgd.data.schema import REVIEW_MARK, Schema
from noisycgd.data.sources import numeric_matrix, read_npz, read_table, select, to_vector

# Digits come without a test part; a quarter is held out.
DIGITS_TEST_FRACTION = 0.25


@dataclass(frozen=True)
class Reading:
    """How records were read; a model keeps it, so that later ones are read alike.

    Attributes
    ----------
    schema : Schema or None
        Public facts of the table.
    target : str or None
        Column of the target.
    columns : tuple of str or None
        Feature columns of a table without a schema.
    split : (str, float, int) or None
        Named data set of which a share was held out by a seed.
    """

    schema: Schema | None = None
    target: str | None = None
    columns: tuple[str, ...] | None = None
    split: tuple[str, float, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `from_dict` reads them back."""
        return {**vars(self), "schema": None if self.schema is None else self.schema.to_dict()}

    @classmethod
    def from_dict(cls, values: Any) -> Reading:
        """Inverse of `to_dict`, from a model's file; raises ModelFileError or DataError on anything else."""
        try:
            given = dict(values)
            schema, columns, split = given.pop("schema"), given.pop("columns"), given.pop("split", None)
            if not all(isinstance(part, list | None) for part in (columns, split)):
                raise TypeError
            found = cls(
                None if schema is None else Schema.from_dict(schema),
                given.pop("target"),
                None if columns is None else tuple(columns),
                None if split is None else (str(split[0]), float(split[1]), int(split[2])),
            )
            texts = (() if found.target is None else (found.target,)) + (found.columns or ())
            if given or not all(isinstance(text, str) for text in texts):
                raise ValueError
        except DataError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError):
            raise ModelFileError(
                message("table in model.json", "as `noisycgd fit` wrote it", values, "Train and save the model again.")
            ) from None
        return found


@dataclass(frozen=True, eq=False)
class Records:
    """Rows, perhaps with targets, and how they were read.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,) or None
    public : bool
        Whether the records are a named public data set.
    classes : tuple or None
        Public class labels, if they are known without looking at records.
    target_range : (float, float) or None
        Public bounds of a regression target.
    reading : Reading
        How they were read.
    assumed_public : tuple of str
        What was read off the records instead.
    inferred : tuple of str
        Numbers among it: they make the guarantee conditional.
    unlisted : tuple of (str, int)
        Columns and how many rows have a category there that the schema does not list.
    """

    X: NDArray[Any]
    y: NDArray[Any] | None
    public: bool = False
    classes: tuple[Any, ...] | None = None
    target_range: tuple[float, float] | None = None
    reading: Reading = Reading()
    assumed_public: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    unlisted: tuple[tuple[str, int], ...] = ()

    def take(self, rows: NDArray[np.intp]) -> Records:
        """The records at `rows`."""
        y = None if self.y is None else self.y[rows]
        return replace(self, X=self.X[rows], y=y)

    @property
    def targets(self) -> NDArray[Any]:
        """The targets; raises DataError if there are none."""
        if self.y is None:
            raise DataError("The .npz archive must have targets; got none. Save an array y beside X.")
        return self.y


def training_data(
    source: str,
    *,
    target: str | None,
    schema: Path | None,
    data_dir: Path | None,
    test: Path | None,
    test_fraction: float | None,
    split_seed: int,
) -> tuple[Records, Records | None]:
    """Records to train on, and records to test on if there are any."""
    if source in DATASETS:
        for option, value in (("--schema", schema), ("--target", target), ("--test", test)):
            if value is not None:
                raise DataError(message(option, f"left out for the named data set {source!r}", value))
        data = load_dataset(source, data_dir)
        train = Records(data.X_train, data.y_train, public=True, classes=data.classes)
        if data.X_test is not None and test_fraction is None:
            return train, Records(data.X_test, data.y_test, public=True, classes=data.classes)
        share = DIGITS_TEST_FRACTION if test_fraction is None else test_fraction
        return _split(replace(train, reading=Reading(split=(source, share, split_seed))), share, split_seed)
    reading = Reading(None if schema is None else Schema.load(schema), target)
    train = replace(_read_file(source, reading, needs_target=True), inferred=_unreviewed(schema))
    if test is not None:
        if test_fraction is not None:
            raise DataError(message("--test-fraction", "left out when --test is given", test_fraction))
        check_beside(test, train.reading)
        check_other_file("--test", test, source)
        held_out = _read_file(str(test), train.reading, needs_target=True)
        check_others("--test", held_out, train)
        return train, held_out
    return (train, None) if test_fraction is None else _split(train, test_fraction, split_seed)


def later_data(source: str, reading: Reading, *, data_dir: Path | None, needs_target: bool) -> Records:
    """Records for a trained model: the test part of a named data set, or a file read as the training table was.

    A named data set without a test part is given whole, but to a model that was trained on a part of it.
    """
    if source in DATASETS:
        data = load_dataset(source, data_dir)
        if data.X_test is not None:
            return Records(data.X_test, data.y_test, public=True)
        whole = Records(data.X_train, data.y_train, public=True)
        if reading.split is None or reading.split[0] != source:
            return whole
        return _split(whole, *reading.split[1:])[1]
    return _read_file(source, reading, needs_target=needs_target, later=True)


def check_beside(path: Path, reading: Reading) -> None:
    """Refuse a table to test or score on if the records to train on have no named columns, hence no target's name."""
    unnamed = reading.schema is None and reading.columns is None
    if unnamed and path.suffix != ".npz" and path.exists():
        requirement = "an .npz archive with X and y, since the records to train on have no named columns"
        raise DataError(message(str(path), requirement, "a table"))


def check_other_file(option: str, path: Path, source: str) -> None:
    """Refuse a file that another part of the same command reads already."""
    if source not in DATASETS and path.exists() and Path(source).exists() and path.samefile(source):
        raise DataError(message(option, f"another file than {source}", str(path), "Name another table."))


def check_others(option: str, records: Records, known: Records, what: str = "the records to train on") -> None:
    """Refuse records that are those of another part of the same command."""
    if records.X.shape == known.X.shape and np.array_equal(records.X, known.X):
        raise DataError(message(option, f"other records than {what}", "the same ones", "Name another table."))


def _read_file(source: str, reading: Reading, *, needs_target: bool, later: bool = False) -> Records:
    path = Path(source)
    if path.suffix == ".npz":
        if reading.schema is not None:
            raise DataError(message(source, "a table with named columns, as the schema has them", "an .npz archive"))
        if reading.target is not None and reading.columns is None:
            raise DataError(
                message("--target", "left out for an .npz file, which has no named columns", reading.target)
            )
        arrays = read_npz(path)
        return Records(arrays["X"], arrays.get("y"))
    if not path.suffix and not path.exists():
        known = ", ".join(DATASETS)
        raise DataError(message("DATA", f"a file, or one of {known}", source, "Check the name."))
    if reading.schema is not None:
        return _read_with_schema(path, reading, reading.schema, needs_target, later)
    return _read_without_schema(path, reading, needs_target)


def _read_with_schema(path: Path, reading: Reading, schema: Schema, needs_target: bool, later: bool) -> Records:
    if reading.target not in (None, schema.target):
        raise DataError(message("--target", f"{schema.target!r}, the schema's target", reading.target))
    table = schema.read_table(path, with_target=needs_target)
    facts = schema.target_values
    classes = tuple(facts.values) if isinstance(facts, Categories) else None
    return Records(
        schema.encode(table),
        schema.encode_target(table, clip=False) if needs_target else None,
        classes=classes,
        target_range=None if isinstance(facts, Categories) else (facts.low, facts.high),
        reading=replace(reading, target=schema.target),
        unlisted=tuple(schema.unlisted(table).items()) if later else (),
    )


def _read_without_schema(path: Path, reading: Reading, needs_target: bool) -> Records:
    target = reading.target
    if needs_target and target is None:
        raise DataError(
            f"--target must be given for a table without a schema; got none. Columns of {path} are listed by "
            f"noisycgd schema draft {path}."
        )
    table = read_table(path)
    y = None
    if needs_target and target is not None:
        y = to_vector(select(table, [target])[target])
        # In a CSV a missing text is an empty one.
        if missing := sum(isinstance(text, str) and not text for text in y if y.dtype.kind in "OU"):
            got, way_out = f"{missing} missing", "Drop those rows, or state all classes in a schema."
            raise DataError(message(f"Target {target!r}", "without missing values", got, way_out))
    columns = reading.columns
    if columns is None:
        columns = tuple(name for name in table.column_names if name != target)
        if not columns:
            raise DataError(message(str(path), "a table with columns besides the target", table.column_names))
    return Records(
        numeric_matrix(table, columns),
        y,
        reading=replace(reading, columns=columns),
        assumed_public=("the names and types of the table's columns: no schema was given",),
    )


def _unreviewed(schema: Path | None) -> tuple[str, ...]:
    """What a drafted schema still says of itself: its bounds and categories come from the records."""
    marked = 0 if schema is None else schema.read_text(encoding="utf-8").count(REVIEW_MARK)
    if not marked:
        return ()
    return (f"{marked} lines of the schema still marked {REVIEW_MARK!r}: review them, then delete the marks",)


def _split(records: Records, fraction: float, seed: int) -> tuple[Records, Records]:
    """Hold out a share chosen by a public seed, before anything looks at the records."""
    fraction = check_real("--test-fraction", fraction, low=0, high=1, open_low=True, open_high=True)
    seed = check_integer("--split-seed", seed, low=0, high=2**32 - 1)
    n = len(records.X)
    n_test = round(n * fraction)
    if not 0 < n_test < n:
        raise DataError(message("--test-fraction", f"such that both parts of {n} records hold some", fraction))
    order = np.random.default_rng(seed).permutation(n)
    return records.take(np.sort(order[n_test:])), records.take(np.sort(order[:n_test]))
