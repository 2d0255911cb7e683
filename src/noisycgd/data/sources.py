"""From whatever a user has to columns: table files, NumPy archives, and the data frames of other libraries.

Nothing here unpickles. No map looks at more than one row, except to refuse the table as a whole.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, NoisyCGDError, message

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".feather", ".arrow")

_SCHEMA_HINT = "Write a schema that says how to read it: noisycgd schema draft FILE."
# Deflate reaches about 1000:1 on zeros; arrays of any use stay far below this.
_BOMB_RATIO, _BOMB_BYTES = 200, 1 << 30


@contextmanager
def reading(path: str | Path, requirement: str, way_out: str) -> Iterator[None]:
    """Turn whatever a parser raises on the file at `path` into one `DataError` line that names the file.

    Parsers of foreign bytes raise nearly anything (``zlib.error``, ``OverflowError``, ``MemoryError`` ...), so the net
    is wide and the bodies under it are kept to the parser's own calls.
    """
    try:
        yield
    except NoisyCGDError:
        raise
    except Exception as error:
        reason = re.sub(r"(got \d+): .*", r"\1", unquoted(error))
        raise DataError(message(str(path), requirement, reason, way_out)) from None


def unquoted(error: Exception) -> str:
    """First line of a foreign library's error, without what it may quote: a private value has no place in a log.

    Such a value may hold quotation marks and line ends itself, so all from the first mark to the last one goes, and
    all behind a bracket. A mark within a word is an apostrophe.
    """
    text = (getattr(error, "strerror", None) or str(error)).strip() or type(error).__name__
    text = re.sub(r"\[errno \d+\] ?", "", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<!\w)b?[\"'`](.*[\"'`](?!\w)|.*$)", "...", text, count=1, flags=re.DOTALL)
    return re.sub(r"[\[{].*", "...", text.splitlines()[0])


def read_table(path: str | Path, column_types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """Read a table file, chosen by suffix (`TABLE_SUFFIXES`).

    Parameters
    ----------
    path : path
        CSV (comma), TSV (tab), each gzipped or not, with a header line in UTF-8; Parquet; Feather or Arrow IPC file.
    column_types : mapping of str to pyarrow.DataType, optional
        How to parse these columns of a CSV or TSV file. Types that are not given are guessed from all records, so that
        one record could change how others are read; a schema gives them (`Schema.read_table`). Files of the other
        formats state their types.

    Returns
    -------
    pyarrow.Table
        At least one row and one column; column names are unique.

    Raises
    ------
    DataError
        Naming the file, if it is missing, of another kind, damaged, empty, or repeats a column name.
    """
    path = Path(path)
    suffix = _checked_suffix(path, TABLE_SUFFIXES)
    with reading(path, f"a readable {suffix} file", "Check that it is complete and is what its suffix says."):
        table = _parse(path, suffix, column_types)
        names = table.column_names  # raises if they are not UTF-8
        # pyarrow trusts the offsets in a file, and a forged one would end the process in its first use.
        _validate(table)
    if not table.num_columns or not table.num_rows:
        shape = f"{table.num_rows} rows of {table.num_columns} columns"
        raise DataError(message(str(path), "a table with rows and columns", shape, "Check that the export succeeded."))
    check_unique(str(path), names)
    return table


def read_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read a NumPy archive: ``{"X": (n, d) numbers}``, and ``"y": (n,)`` if it is there; other arrays are left out.

    Raises
    ------
    DataError
        Naming the file, if it is missing, damaged, lacks X, holds objects, or the shapes do not fit.
    """
    path = Path(path)
    _checked_suffix(path, (".npz",))
    with reading(
        path, "a readable .npz archive without objects", "Write it with numpy.savez_compressed(FILE, X=X, y=y)."
    ):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.file_size > max(_BOMB_BYTES, _BOMB_RATIO * member.compress_size):
                    raise DataError(
                        message(
                            f"{path}:{member.filename}",
                            "an array",
                            f"{member.file_size} bytes of padding",
                            "Save it anew.",
                        )
                    )
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: np.asarray(archive[key]) for key in ("X", "y") if key in archive.files}
    X, y = arrays.get("X"), arrays.get("y")
    way_out = "Save it with numpy.savez_compressed(FILE, X=X, y=y)."
    if X is None:
        raise DataError(message(str(path), "an archive with an array named X", "none", way_out))
    if X.ndim != 2 or not X.size or X.dtype.kind not in "biuf":
        got = f"shape {X.shape} of {X.dtype}"
        raise DataError(message(f"{path}:X", "a non-empty (rows, columns) array of numbers", got, "Reshape it first."))
    if y is not None and (y.shape != X.shape[:1] or y.dtype.kind not in "biufU"):
        got = f"shape {y.shape} of {y.dtype}"
        raise DataError(message(f"{path}:y", f"one number or string for each of {len(X)} rows", got, way_out))
    return arrays


def numeric_matrix(table: pa.Table, columns: Sequence[str] | None = None) -> NDArray[np.float32] | NDArray[np.float64]:
    """(n, d) matrix of the named columns (all, if none are named), in that order; booleans become 0 and 1.

    float32 if that holds every column's type exactly, else float64.

    Raises
    ------
    DataError
        If a column is absent or not numeric, or has missing or non-finite values; the message counts them.
    """
    table = _numeric_table(table if columns is None else select(table, columns))
    dtype = np.result_type(*(field.type.to_pandas_dtype() for field in table.schema))
    matrix = np.empty((table.num_rows, table.num_columns), dtype)
    for j, column in enumerate(table.columns):
        matrix[:, j] = column.to_numpy()
    return matrix


def to_matrix(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Make `X` fit for scikit-learn's ``validate_data``, with its column names.

    NumPy arrays, lists, sparse matrices and pandas frames pass untouched, and without names: scikit-learn reads
    pandas' itself; only the names and types of its columns are looked at here. Whatever else speaks Arrow (polars,
    pyarrow tables and record batches, DuckDB ...) becomes a pyarrow table of floats: ``validate_data`` then checks its
    column names as it does pandas'.

    Raises
    ------
    DataError
        If the table has no or repeated columns, or one that is not numeric, or missing or non-finite values.
    """
    if hasattr(X, "collect_schema") and not hasattr(X, "__arrow_c_stream__"):
        raise DataError(message("X", "a table in memory", f"a {type(X).__name__}", "Call its .collect() first."))
    if hasattr(X, "iloc") or not hasattr(X, "__arrow_c_stream__"):
        if hasattr(X, "dtypes") and hasattr(X, "columns"):
            _check_pandas(X)
        return X, None
    import pyarrow as pa

    with reading("X", "a table", "Pass a data frame or a two-dimensional array."):
        table = pa.table(X)
    check_unique("X", table.column_names)
    return _numeric_table(table), tuple(table.column_names)


def to_vector(y: Any) -> Any:
    """Make `y` fit for scikit-learn: Arrow and polars columns, or tables of one column, become (n,) NumPy arrays.

    So do pandas' nullable integers and booleans, which scikit-learn would take for floats: two large labels could
    become one. Everything else passes untouched. Raises `DataError` on missing values or several columns.
    """
    if hasattr(y, "iloc") and np.ndim(y) == 2 and np.shape(y)[1] == 1:
        column = to_vector(y.iloc[:, 0])
        return column[:, None] if isinstance(column, np.ndarray) else y
    kind: Any = getattr(y, "dtype", None)
    if hasattr(kind, "numpy_dtype") and kind.kind in "biu":
        _refuse_missing(int(y.isna().sum()))
        return y.to_numpy(kind.numpy_dtype)
    if hasattr(y, "iloc") or not (hasattr(y, "__arrow_c_stream__") or hasattr(y, "__arrow_c_array__")):
        return y
    import pyarrow as pa

    with reading("y", "one column", "Pass a one-dimensional array."):
        column = pa.chunked_array(y) if hasattr(y, "__arrow_c_stream__") else pa.chunked_array([pa.array(y)])
        parts = column.flatten()
    if len(parts) != 1:
        raise DataError(message("y", "one column", f"{len(parts)} columns", "Select the target's column."))
    column = parts[0]
    _refuse_missing(column.null_count)
    return column.to_numpy()


def _refuse_missing(count: int) -> None:
    if count:
        raise DataError(message("y", "without missing values", f"{count} missing", "Drop those rows."))


def select(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The named columns in that order; raises `DataError` naming those that are absent or repeated."""
    check_unique("the table", table.column_names)
    known = set(table.column_names)
    absent = [name for name in columns if name not in known]
    if absent:
        got = "none named " + ", ".join(map(repr, absent))
        # Not what there is: without a header line, the names are the first record.
        way_out = f"Correct the names; `noisycgd schema draft FILE` lists the {table.num_columns} columns."
        raise DataError(message("The table", "one with the columns asked for", got, way_out))
    return table.select(list(columns))


def check_unique(name: str, columns: Sequence[Any]) -> None:
    """Raise `DataError` if a column name stands twice: which of them is meant would be a guess."""
    repeated = [column for column, times in Counter(columns).items() if times > 1]
    if repeated:
        got = ", ".join(map(repr, repeated)) + " more than once"
        raise DataError(message(name, "a table whose columns have different names", got, "Rename or drop one."))


def _check_pandas(frame: Any) -> None:
    """Refuse columns that would be read as what they are not; those of objects may hold numbers."""
    check_unique("X", list(frame.columns))
    for name, kind in frame.dtypes.items():
        # Categories and pandas' own texts call themselves objects.
        plain = isinstance(kind, np.dtype)
        if getattr(kind, "kind", "V") not in ("biufO" if plain else "biuf"):
            raise DataError(message(f"Column {name!r}", "numeric", f"{kind} values", _SCHEMA_HINT))


def _checked_suffix(path: Path, suffixes: Sequence[str]) -> str:
    if path.is_dir():
        raise DataError(message(str(path), "a file", "a folder", "Name the file itself."))
    # Longest first: "data.csv.gz" is no ".gz".
    suffix = next((s for s in sorted(suffixes, key=len, reverse=True) if path.name.lower().endswith(s)), None)
    if suffix is None:
        got = f"suffix {path.suffix!r}"
        raise DataError(message(str(path), "a file ending in " + ", ".join(suffixes), got, "Convert or rename it."))
    if not path.is_file():
        raise DataError(message(str(path), "an existing file", "no such file", "Correct the path."))
    return suffix


def _parse(path: Path, suffix: str, column_types: Mapping[str, pa.DataType] | None) -> pa.Table:
    if suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path, partitioning=None)
    if suffix in (".feather", ".arrow"):
        import pyarrow.feather

        return pyarrow.feather.read_table(path)
    import pyarrow.csv

    delimiter = "\t" if suffix.startswith(".tsv") else ","
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    try:
        table = pyarrow.csv.read_csv(
            path,
            parse_options=options,
            convert_options=pyarrow.csv.ConvertOptions(column_types=column_types),
        )
    except pyarrow.ArrowInvalid as error:
        found = re.match(r"In CSV column #(\d+): CSV conversion error to (\w+)", str(error))
        if found is None:
            raise
        with pyarrow.csv.open_csv(path, parse_options=options) as stream:
            column = stream.schema.names[int(found[1])]
        number = found[2] == "double"
        requirement = "a number, or empty, in every row" if number else "text in UTF-8"
        got, way_out = ("another value", "Mend it.") if number else ("another encoding", "Convert the file.")
        raise DataError(message(f"{path}: column {column!r}", requirement, got, way_out)) from None
    # pyarrow's guess for text in another encoding.
    if pyarrow.binary() in table.schema.types:
        raise ValueError("text that is not UTF-8")
    return table


def _validate(table: pa.Table) -> None:
    import pyarrow as pa

    try:
        table.validate(full=True)
    except pa.ArrowException:
        # What it says holds the value that is wrong.
        raise ValueError("columns that contradict themselves") from None


def _numeric_table(table: pa.Table) -> pa.Table:
    """Every column as float32 or float64, finite; `DataError` names those that cannot be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not table.num_columns:
        raise DataError(message("The table", "one with columns", "none", "Name the feature columns."))
    narrow = (pa.bool_(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.float16(), pa.float32())
    columns, bad = [], {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if not (
            pa.types.is_boolean(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
        ):
            got = f"{kind} values"
            raise DataError(message(f"Column {name!r}", "numeric", got, _SCHEMA_HINT))
        number = column.cast(pa.float32() if kind in narrow else pa.float64(), safe=False)
        finite = pc.sum(pc.fill_null(pc.is_finite(number), False)).as_py() or 0
        if finite < len(number):
            bad[name] = len(number) - finite
        columns.append(number)
    if bad:
        got = ", ".join(f"{count} in {name!r}" for name, count in bad.items())
        way_out = f"Remove those rows, or state how missing values are handled. {_SCHEMA_HINT}"
        raise DataError(message("Numeric columns", "without missing or non-finite values", got, way_out))
    return pa.table(columns, names=table.column_names)
