"""Whatever bytes a file holds, a reader returns or raises `DataError`; any other exception fails these tests."""

import gzip
import io
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisycgd._validation import DataError
from noisycgd.data.images import CIFAR_PARTS, idx_bytes, read_cifar_archive, read_cifar_batch, read_idx
from noisycgd.data.schema import Schema, draft_schema
from noisycgd.data.sources import numeric_matrix, read_npz, read_table

TABLE = pa.table({"a": [1.5, None, 3.0] * 4, "b": [1, 2, 3] * 4, "s": ["x", "y", 'q"'] * 4, "y": ["u", "v", "u"] * 4})
SCHEMA = Schema.from_toml(draft_schema(TABLE, "y"))


def table_bytes(write, **kwargs):
    stream = io.BytesIO()
    write(TABLE, stream, **kwargs)
    return stream.getvalue()


def npz_bytes(save):
    stream = io.BytesIO()
    save(stream, X=np.arange(12.0).reshape(4, 3), y=np.array(["a", "b", "a", "b"]))
    return stream.getvalue()


def archive_bytes():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for part in CIFAR_PARTS:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{part}.bin")
            member.size = 3073
            archive.addfile(member, io.BytesIO(bytes(3073)))
    return stream.getvalue()


def use_table(path):
    table = read_table(path)
    for use in (numeric_matrix, SCHEMA.encode, SCHEMA.encode_target, lambda t: draft_schema(t, t.column_names[-1])):
        try:
            use(table)
        except DataError:
            continue


def use_table_with_schema(path):
    SCHEMA.encode(SCHEMA.read_table(path))


IDX = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 2, 2))
CSV = table_bytes(pyarrow.csv.write_csv)
ARROW = table_bytes(pyarrow.feather.write_feather, compression="uncompressed")
READERS = {
    "idx": (read_idx, "file", IDX),
    "idx-gz": (read_idx, "file.gz", gzip.compress(IDX)),
    "cifar": (read_cifar_batch, "data_batch_1.bin", bytes(3073)),
    "cifar-gz": (read_cifar_batch, "data_batch_1.bin.gz", gzip.compress(bytes(3073))),
    "cifar-archive": (read_cifar_archive, "cifar-10-binary.tar.gz", archive_bytes()),
    "csv": (use_table, "data.csv", CSV),
    "csv-schema": (use_table_with_schema, "data.csv", CSV),
    "csv-gz": (use_table, "data.csv.gz", gzip.compress(CSV)),
    "parquet": (use_table, "data.parquet", table_bytes(pyarrow.parquet.write_table)),
    "feather": (use_table, "data.feather", table_bytes(pyarrow.feather.write_feather)),
    "arrow": (use_table, "data.arrow", ARROW),
    "npz": (read_npz, "data.npz", npz_bytes(np.savez)),
    "npz-packed": (read_npz, "data.npz", npz_bytes(np.savez_compressed)),
    "schema": (Schema.load, "schema.toml", SCHEMA.to_toml().encode()),
}


@st.composite
def mutations(draw, whole):
    """Cut, overwrite, insert, delete or repeat pieces of a valid file; sometimes plain noise."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        # Headers and footers are where formats keep their sizes and offsets.
        at = draw(st.sampled_from([at, at % 64, max(len(content) - 1 - at % 64, 0)]))
        piece = draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 4, bytes(4), b"\n", b'"', b","]))
        match draw(st.sampled_from(["overwrite", "cut", "insert", "delete", "repeat"])):
            case "overwrite":
                content[at : at + len(piece)] = piece
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = piece
            case "delete":
                del content[at : at + len(piece)]
            case "repeat":
                content[at:at] = content[at : at + 64]
    return bytes(content)


@pytest.mark.parametrize("kind", READERS)
def test_the_unharmed_file_is_read(tmp_path, kind):
    read, name, whole = READERS[kind]
    (tmp_path / name).write_bytes(whole)
    read(tmp_path / name)


@pytest.mark.parametrize("kind", READERS)
def test_a_harmed_file_is_read_or_refused(tmp_path, kind):
    read, name, whole = READERS[kind]
    path = tmp_path / name
    refusals = []

    @given(mutations(whole))
    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    def check(content):
        path.write_bytes(content)
        try:
            read(path)
        except DataError as error:
            refusals.append(str(error))

    check()
    assert refusals
    assert not [text for text in refusals if "\n" in text]


@given(st.text() | st.text(alphabet='[]="\n.\\#{}a1', max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_schema_or_refused(text):
    with pytest.raises(DataError):
        Schema.from_toml(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["target", "columns", "name", "classes", "bounds", "type", "categories", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON)
@settings(max_examples=200, deadline=None)
def test_any_json_is_a_schema_or_refused(values, more):
    for candidate in (values, {"target": values, "columns": more}, {**SCHEMA.to_dict(), "columns": {"a": more}}):
        try:
            schema = Schema.from_dict(candidate)
        except DataError:
            continue
        assert Schema.from_toml(schema.to_toml()) == schema
