"""From a command-line argument (a data set's name or a file) to arrays, and what is public about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, check_integer, check_real, message
from noisycgd.data.columns import Categories
from noisycgd.data.datasets import DATASETS, load_dataset
from noisycgd.data.schema import REVIEW_MARK, Schema
from noisycgd.data.sources import numeric_matrix, read_npz, read_table, select, to_vector

# Digits come without a test part; a quarter is held out.
DIGITS_TEST_FRACTION = 0.25


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
    table : dict or None
        How a table became rows; stored in the model so that `predict` reads the next table alike.
    assumed_public : tuple of str
        What was read off the records instead.
    inferred : tuple of str
        Numbers among it: they make the guarantee conditional.
    """

    X: NDArray[Any]
    y: NDArray[Any] | None
    public: bool = False
    classes: tuple[Any, ...] | None = None
    target_range: tuple[float, float] | None = None
    table: dict[str, Any] | None = None
    assumed_public: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()

    def take(self, rows: NDArray[np.intp]) -> Records:
        """The records at `rows`."""
        y = None if self.y is None else self.y[rows]
        return replace(self, X=self.X[rows], y=y)

    @property
    def targets(self) -> NDArray[Any]:
        """The targets; raises DataError if there are none."""
        if self.y is None:
            raise DataError("The data must have targets; got none. Name their column with --target, or save y.")
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
        return _split(train, DIGITS_TEST_FRACTION if test_fraction is None else test_fraction, split_seed)
    table: dict[str, Any] = {
        "schema": None if schema is None else Schema.load(schema).to_dict(),
        "target": target,
        "columns": None,
    }
    train = replace(_read_file(source, table, needs_target=True), inferred=_unreviewed(schema))
    if test is not None:
        if test_fraction is not None:
            raise DataError(message("--test-fraction", "left out when --test is given", test_fraction))
        return train, _read_file(str(test), train.table or table, needs_target=True)
    return (train, None) if test_fraction is None else _split(train, test_fraction, split_seed)


def later_data(source: str, table: dict[str, Any] | None, *, data_dir: Path | None, needs_target: bool) -> Records:
    """Records for a trained model: the test part of a named data set, or a file read as the training table was."""
    if source in DATASETS:
        data = load_dataset(source, data_dir)
        if data.X_test is None:
            return Records(data.X_train, data.y_train, public=True)
        return Records(data.X_test, data.y_test, public=True)
    return _read_file(source, table or {"schema": None, "target": None, "columns": None}, needs_target=needs_target)


def _read_file(source: str, table: dict[str, Any], *, needs_target: bool) -> Records:
    path = Path(source)
    if path.suffix == ".npz":
        if table["schema"] is not None:
            raise DataError(message("--schema", "left out for an .npz file, which has no named columns", source))
        arrays = read_npz(path)
        return Records(arrays["X"], arrays.get("y"))
    if not path.suffix and not path.exists():
        known = ", ".join(DATASETS)
        raise DataError(message("DATA", f"a file, or one of {known}", source, "Check the name."))
    if table["schema"] is not None:
        return _read_with_schema(path, table, needs_target)
    return _read_without_schema(path, table, needs_target)


def _read_with_schema(path: Path, described: dict[str, Any], needs_target: bool) -> Records:
    schema = Schema.from_dict(described["schema"])
    if described["target"] not in (None, schema.target):
        raise DataError(message("--target", f"{schema.target!r}, the schema's target", described["target"]))
    table = schema.read_table(path)
    has_target = needs_target or schema.target in table.column_names
    facts = schema.target_values
    classes = tuple(facts.values) if isinstance(facts, Categories) else None
    return Records(
        schema.encode(table),
        schema.encode_target(table) if has_target else None,
        classes=classes,
        target_range=None if isinstance(facts, Categories) else (facts.low, facts.high),
        table={**described, "target": schema.target},
    )


def _read_without_schema(path: Path, described: dict[str, Any], needs_target: bool) -> Records:
    target = described["target"]
    if needs_target and target is None:
        raise DataError(
            f"--target must be given for a table without a schema; got none. Columns of {path} are listed by "
            f"noisycgd schema draft {path}."
        )
    table = read_table(path)
    y = None
    if needs_target or (target is not None and target in table.column_names):
        y = to_vector(select(table, [target])[target])
    columns = described["columns"]
    if columns is None:
        columns = [name for name in table.column_names if name != target]
        if not columns:
            raise DataError(message(str(path), "a table with columns besides the target", table.column_names))
    return Records(
        numeric_matrix(table, columns),
        y,
        table={**described, "columns": list(columns)},
        assumed_public=("the names and types of the table's columns: no schema was given",),
    )


def _unreviewed(schema: Path | None) -> tuple[str, ...]:
    """What a drafted schema still says of itself: its bounds and categories come from the records."""
    lines = 0 if schema is None else schema.read_text(encoding="utf-8").count(REVIEW_MARK)
    return (f"{lines} lines of the schema still marked {REVIEW_MARK!r}: review them, then delete the marks",) * (
        lines > 0
    )


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
