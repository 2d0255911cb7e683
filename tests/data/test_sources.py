import datetime
import gzip
import re
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from noisycgd._validation import DataError
from noisycgd.data.sources import TABLE_SUFFIXES, numeric_matrix, read_npz, read_table, to_matrix, to_vector, unquoted

COLUMNS = {"a": [1.5, 2.5], "b": [3, 4], "s": ["x", "y"]}
NUMBERS = {"a": [1.0, 2.5], "b": [3, 4], "c": [True, False]}
MATRIX = [[1.0, 3.0, 1.0], [2.5, 4.0, 0.0]]


def write_table(path, table):
    suffix = next(s for s in sorted(TABLE_SUFFIXES, key=len, reverse=True) if path.name.endswith(s))
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif suffix in (".feather", ".arrow"):
        pyarrow.feather.write_feather(table, path)
    else:
        options = pyarrow.csv.WriteOptions(delimiter="\t" if ".tsv" in suffix else ",")
        with gzip.open(path, "wb") if suffix.endswith(".gz") else path.open("wb") as stream:
            pyarrow.csv.write_csv(table, stream, options)
    return path


@pytest.mark.parametrize(
    "value", ["patient O'Hara: HIV+", 'said "HIV+" loudly', "HIV+", "O'Hara\nHIV+'s", "`HIV+`[HIV+]"]
)
@pytest.mark.parametrize("quote", ["'", '"'])
def test_what_an_error_quotes_is_cut_out_whatever_marks_it_holds(value, quote):
    text = unquoted(ValueError(f"conversion error to double: invalid value {quote}{value}{quote} (row 3)"))
    assert text == "conversion error to double: invalid value ... (row 3)"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("Got [271.8 1.]"), "Got ..."),
        (ValueError("unclosed 'secret"), "unclosed ..."),
        (ValueError("first\nsecret"), "first"),
        (ValueError(""), "ValueError"),
        (
            ValueError("'utf-8' codec can't decode byte 0xeb in position 79"),
            "... codec can't decode byte 0xeb in position 79",
        ),
        (ValueError("metrics can't handle a mix of targets"), "metrics can't handle a mix of targets"),
        (ValueError("Not a gzipped file (b'se')"), "Not a gzipped file (...)"),
        (
            PermissionError(13, "[errno 13] Failed to open 'x'. Detail: [errno 13] Denied"),
            "Failed to open .... Detail: Denied",
        ),
        (FileNotFoundError(2, "No such file", "/secret"), "No such file"),
    ],
)
def test_unquoted_errors(error, shown):
    assert unquoted(error) == shown


def test_text_among_numbers_is_refused_without_a_word_of_it(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,y\n1,0\npatient O'Hara: HIV+,1\n")
    with pytest.raises(DataError, match="column 'age' must be a number, or empty") as caught:
        read_table(path, {"age": pa.float64()})
    assert not re.search("Hara|HIV|patient", str(caught.value))


@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
def test_every_format_gives_the_same_columns(tmp_path, suffix):
    path = write_table(tmp_path / f"data{suffix}", pa.table(COLUMNS))
    assert read_table(path).to_pydict() == COLUMNS
    assert read_table(str(path)).to_pydict() == COLUMNS


def test_upper_case_suffix_and_folder_names_like_partitions(tmp_path):
    folder = tmp_path / "year=2020"
    folder.mkdir()
    path = write_table(folder / "data.parquet", pa.table(COLUMNS))
    path = path.rename(folder / "DATA.PARQUET")
    assert read_table(path).column_names == ["a", "b", "s"]


def test_arrow_stream_format_is_refused_by_name(tmp_path):
    path = tmp_path / "data.arrow"
    with pa.ipc.new_stream(path, pa.table(COLUMNS).schema) as writer:
        writer.write_table(pa.table(COLUMNS))
    with pytest.raises(DataError, match=re.escape(str(path))):
        read_table(path)


@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
@pytest.mark.parametrize("content", ["empty", "half", "noise"])
def test_damaged_files_give_one_line_naming_the_file(tmp_path, suffix, content):
    path = write_table(tmp_path / f"data{suffix}", pa.table({"a": [0.5] * 50, "b": [1.5] * 50}))
    whole = path.read_bytes()
    noise = np.random.default_rng(0).integers(128, 256, 200, dtype=np.uint8).tobytes()
    # Half a text file is a shorter text file unless it ends within a record.
    half = b"a,b\n1,2\n3" if suffix == ".csv" else b"a\tb\n1\t2\n3" if suffix == ".tsv" else whole[: len(whole) // 2]
    path.write_bytes({"empty": b"", "half": half, "noise": b"\n" * 3 + noise}[content])
    if content == "noise" and suffix in (".csv", ".tsv"):
        path.write_bytes(b"a,b\n1,2\n" + noise)
    with pytest.raises(DataError) as caught:
        read_table(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("data.csv", "a,b\n", "0 rows"),
        ("data.csv", "a,b,a,b\n1,2,3,4\n", "'a', 'b' more than once"),
        ("data.csv", "a,b\n1,2,3\n", "Expected 2 columns, got 3"),
        ("data.xlsx", "anything", r"ending in \.csv, .*'\.xlsx'"),
        ("data.gz", "anything", "ending in"),
    ],
)
def test_unusable_files_say_why(tmp_path, name, content, match):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=match):
        read_table(tmp_path / name)


@pytest.mark.parametrize("content", ["name\nJos\xe9\n", "Jos\xe9\n1\n"])
def test_text_in_another_encoding_is_refused(tmp_path, content):
    (tmp_path / "data.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=r"data\.csv"):
        read_table(tmp_path / "data.csv")
    (tmp_path / "data.csv").write_bytes(content.encode())
    assert read_table(tmp_path / "data.csv").num_rows == 1


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="a folder"):
        read_table(tmp_path / "folder.csv")


def test_forged_offsets_are_found_before_they_are_followed(tmp_path):
    path = tmp_path / "data.arrow"
    pyarrow.feather.write_feather(pa.table({"s": ["x", "y", "z"]}), path, compression="uncompressed")
    whole = path.read_bytes()
    offsets = np.arange(4, dtype=np.int32).tobytes()
    assert whole.count(offsets) == 1
    path.write_bytes(whole.replace(offsets, np.array([0, 1, 2**30, 2**30 + 1], np.int32).tobytes()))
    with pytest.raises(DataError, match=r"data\.arrow"):
        read_table(path)


def test_parquet_without_columns_is_refused(tmp_path):
    pyarrow.parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "data.parquet")
    with pytest.raises(DataError, match="0 rows of 1 columns"):
        read_table(tmp_path / "data.parquet")


def test_stated_types_keep_one_record_from_changing_how_others_are_read(tmp_path):
    for last in ("07", "A7"):
        (tmp_path / "data.csv").write_text(f"zip\n01\n{last}\n")
        assert read_table(tmp_path / "data.csv", {"zip": pa.string()})["zip"][0].as_py() == "01"
    # The control: guessed types do depend on the other record.
    (tmp_path / "data.csv").write_text("zip\n01\n07\n")
    assert read_table(tmp_path / "data.csv")["zip"][0].as_py() == 1


def test_npz_round_trip_leaves_other_arrays_out(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "a"])
    np.savez_compressed(tmp_path / "data.npz", X=X, y=y, z=np.array([None]))
    arrays = read_npz(tmp_path / "data.npz")
    assert set(arrays) == {"X", "y"}
    np.testing.assert_array_equal(arrays["X"], X)
    np.testing.assert_array_equal(arrays["y"], y)
    np.savez(tmp_path / "only.npz", X=X.astype(np.uint8))
    assert read_npz(tmp_path / "only.npz")["X"].dtype == np.uint8


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"x": np.ones((2, 2))}, "named X; got 'none'"),
        ({"X": np.ones(3)}, r"shape \(3,\)"),
        ({"X": np.ones((2, 2, 2))}, "Reshape"),
        ({"X": np.ones((0, 2))}, "non-empty"),
        ({"X": np.array([["a"]])}, "numbers"),
        ({"X": np.ones((2, 2), complex)}, "complex128"),
        ({"X": np.array([[None]])}, "without objects"),
        ({"X": np.ones((2, 2)), "y": np.array([None, 1])}, "without objects"),
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, "for each of 2 rows"),
        ({"X": np.ones((2, 2)), "y": np.ones((2, 1))}, r"shape \(2, 1\)"),
    ],
)
def test_npz_refusals(tmp_path, arrays, match):
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(DataError, match=match) as caught:
        read_npz(tmp_path / "data.npz")
    assert str(tmp_path / "data.npz") in str(caught.value)


def test_npz_that_is_none(tmp_path):
    np.save(tmp_path / "data.npy", np.ones((2, 2)))
    (tmp_path / "data.npy").rename(tmp_path / "data.npz")
    with pytest.raises(DataError, match="readable"):
        read_npz(tmp_path / "data.npz")
    with pytest.raises(DataError, match="no such file"):
        read_npz(tmp_path / "absent.npz")


def test_npz_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, X=np.zeros((1000, 1000)))
    assert read_npz(path)["X"].shape == (1000, 1000)
    monkeypatch.setattr("noisycgd.data.sources._BOMB_BYTES", 1 << 20)
    monkeypatch.setattr(np, "load", lambda *args, **kwargs: pytest.fail("unpacked"))
    with pytest.raises(DataError, match=r"X\.npy"):
        read_npz(path)


def test_npz_whose_directory_lies_about_a_size(tmp_path):
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "X.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999, 9)}"
        )
    with pytest.raises(DataError, match=re.escape(str(path))):
        read_npz(path)


def test_numeric_matrix_selects_and_orders():
    table = pa.table(NUMBERS)
    np.testing.assert_array_equal(numeric_matrix(table), MATRIX)
    np.testing.assert_array_equal(numeric_matrix(table, ["c", "a"]), [[1.0, 1.0], [0.0, 2.5]])
    with pytest.raises(DataError, match="'zz'"):
        numeric_matrix(table, ["a", "zz"])
    with pytest.raises(DataError, match="with columns"):
        numeric_matrix(table, [])


def test_numeric_matrix_is_float32_only_where_that_is_exact():
    exact = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float32()]
    table = pa.table({str(t): pa.array([0, 1], t) for t in exact} | {"bool": [True, False]})
    assert numeric_matrix(table).dtype == np.float32
    for wide in (pa.int32(), pa.int64(), pa.float64(), pa.decimal128(38, 2)):
        assert numeric_matrix(pa.table({"a": pa.array([2, 1]).cast(wide)})).dtype == np.float64
    assert numeric_matrix(pa.table({"a": pa.array([2**24 + 1], pa.int32())}))[0, 0] == 2**24 + 1


def test_numeric_matrix_counts_what_is_missing():
    table = pa.table({"a": [1.0, None, float("nan")], "b": [1, 2, 3], "c": [float("inf"), 0.0, 0.0]})
    with pytest.raises(DataError, match=r"2 in 'a', 1 in 'c'.*schema draft"):
        numeric_matrix(table)
    with pytest.raises(DataError, match="3 in 'a'"):
        numeric_matrix(pa.table({"a": pa.array([None] * 3, pa.float32())}))


@pytest.mark.parametrize("values", [["x"], [None], [{"a": 1}], [b"x"], [datetime.date(2020, 1, 1)]])
def test_numeric_matrix_names_the_column_that_is_no_number(values):
    with pytest.raises(DataError, match=r"Column 'odd' must be numeric.*noisycgd schema draft FILE"):
        numeric_matrix(pa.table({"a": [1], "odd": pa.array(values)}))


def arrow_tables():
    table = pa.table(NUMBERS)
    return [
        pl.DataFrame(NUMBERS),
        table,
        pa.RecordBatch.from_pydict(NUMBERS),
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        pa.concat_tables([table.slice(0, 1), table.slice(1)]),
    ]


@pytest.mark.parametrize("X", arrow_tables(), ids=lambda X: type(X).__name__)
def test_to_matrix_keeps_names_through_scikit_learn(X):
    matrix, names = to_matrix(X)
    assert names == ("a", "b", "c")
    estimator = BaseEstimator()
    np.testing.assert_array_equal(validate_data(estimator, matrix, dtype=[np.float64, np.float32]), MATRIX)
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]
    other, _ = to_matrix(pl.DataFrame(NUMBERS).select("b", "a", "c"))
    with pytest.raises(ValueError, match="feature names should match"):
        validate_data(estimator, other, reset=False)


@pytest.mark.parametrize(
    "X", [np.eye(2), [[1, 2]], pd.DataFrame(NUMBERS), None, "nonsense"], ids=lambda X: type(X).__name__
)
def test_to_matrix_leaves_what_scikit_learn_knows(X):
    matrix, names = to_matrix(X)
    assert matrix is X
    assert names is None


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (pl.DataFrame({"a": [1, None]}), "1 in 'a'"),
        (pl.DataFrame({"a": ["x"]}), "numeric"),
        (pl.DataFrame({"a": [1]}).lazy(), "collect"),
        (pl.Series([1]), "a table"),
        (pa.table([[1], [2]], names=["a", "a"]), "more than once"),
        (pa.table({}), "with columns"),
    ],
)
def test_to_matrix_refusals(X, match):
    with pytest.raises(DataError, match=match):
        to_matrix(X)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (pl.Series(["a", "b"]), ["a", "b"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pa.array([1, 2]), [1, 2]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
        (pl.DataFrame({"y": [True, False]}), [True, False]),
        (pa.RecordBatch.from_pydict({"y": [1.5]}), [1.5]),
    ],
)
def test_to_vector_reads_arrow(y, expected):
    vector = to_vector(y)
    assert isinstance(vector, np.ndarray)
    assert vector.tolist() == expected


@pytest.mark.parametrize("dtype", ["Int64", "UInt64", "int64[pyarrow]", "boolean", "bool[pyarrow]"])
def test_to_vector_takes_pandas_own_integers_for_what_they_are(dtype):
    values = [True, False, True] if "bool" in dtype else [0, 2**53, 2**53 + 1]
    vector = to_vector(pd.Series(values, dtype=dtype))
    assert isinstance(vector, np.ndarray)
    assert vector.dtype.kind in ("b" if "bool" in dtype else "iu")
    assert vector.tolist() == values
    with pytest.raises(DataError, match=r"^y must be without missing values; got .1 missing"):
        to_vector(pd.Series([*values, None], dtype=dtype))


def test_to_vector_leaves_the_rest_and_refuses():
    for y in (np.ones(2), [1, 2], pd.Series([1]), pd.DataFrame({"y": [1]})):
        assert to_vector(y) is y
    with pytest.raises(DataError, match="1 missing"):
        to_vector(pl.Series([1, None]))
    with pytest.raises(DataError, match="3 columns"):
        to_vector(pl.DataFrame(NUMBERS))
