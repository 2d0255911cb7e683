"""Parsers of two public image formats: IDX (MNIST) and CIFAR-10's binary version."""

from __future__ import annotations

import gzip
import math
import os
import struct
import tarfile
from contextlib import closing
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, message
from noisycgd.data.sources import reading

CIFAR_PARTS = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
CIFAR_ROW = 3 * 32 * 32

# Sizes stated inside a file, and gzip's expansion, are the file's word: the cap keeps a forged one from exhausting
# memory (the largest official file unpacks to 47 MB).
MAX_BYTES = 1 << 30

_AGAIN = "Get the file again from its official source."


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """IDX file of unsigned bytes, gzipped (by suffix) or not -> array of the shape in its header.

    Raises `DataError` naming the file on a wrong magic number, an empty array, truncation or trailing bytes.
    """
    with reading(path, "a readable IDX file", _AGAIN), closing(_open(path)) as stream:
        magic = stream.read(4)
        # Bytes: two zeros, the type (8 = unsigned byte), the number of dimensions.
        if len(magic) < 4 or magic[:3] != b"\x00\x00\x08" or not 1 <= magic[3] <= 4:
            raise DataError(message(str(path), "an IDX file of unsigned bytes", f"magic number {magic.hex()}", _AGAIN))
        header = stream.read(4 * magic[3])
        if len(header) < 4 * magic[3]:
            raise DataError(message(str(path), "a complete IDX file", "a header that is cut off", _AGAIN))
        shape = struct.unpack(f">{magic[3]}I", header)
        size = math.prod(shape)
        if not 0 < size <= MAX_BYTES:
            raise DataError(message(str(path), f"an IDX file of 1 to {MAX_BYTES} values", f"shape {shape}", _AGAIN))
        content = _read_up_to(stream, size + 1)
    if len(content) != size:
        got = "more" if len(content) > size else len(content)
        raise DataError(message(str(path), f"{size} bytes after its header (shape {shape})", got, _AGAIN))
    return np.frombuffer(content, np.uint8).reshape(shape)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """Inverse of `read_idx`: the uncompressed file of an array of unsigned bytes with 1 to 4 dimensions."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def read_cifar_batch(path: str | Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One file of CIFAR-10's binary version -> images (n, 3072), planes red, green, blue, and labels (n,).

    Raises `DataError` naming the file on a length that is no whole number of records, or a label above 9.
    """
    with reading(path, "a readable CIFAR-10 binary file", _AGAIN), closing(_open(path)) as stream:
        content = _read_up_to(stream, MAX_BYTES)
    return _cifar_records(content, str(path))


def read_cifar_archive(path: str | Path) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """``cifar-10-binary.tar.gz`` -> (images, labels) of each of `CIFAR_PARTS`, read member by member.

    Raises `DataError` naming the archive if it is damaged or lacks a member.
    """
    contents: dict[str, bytearray] = {}
    with reading(path, "a complete gzipped tar archive", _AGAIN), tarfile.open(path, "r:gz") as archive:
        for member in archive:
            stem, suffix = os.path.splitext(os.path.basename(member.name))
            # Regular files only: a link could lead anywhere.
            if stem in CIFAR_PARTS and suffix == ".bin" and member.isreg():
                stream = archive.extractfile(member)
                contents[stem] = _read_up_to(stream, MAX_BYTES) if stream is not None else bytearray()
    absent = ", ".join(f"{part}.bin" for part in CIFAR_PARTS if part not in contents)
    if absent:
        raise DataError(message(str(path), "CIFAR-10's binary archive", f"one without {absent}", _AGAIN))
    return [_cifar_records(contents[part], f"{path}:{part}.bin") for part in CIFAR_PARTS]


def _cifar_records(content: bytearray, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not content or len(content) % (1 + CIFAR_ROW):
        requirement = f"a whole number of records of {1 + CIFAR_ROW} bytes"
        raise DataError(message(name, requirement, f"{len(content)} bytes", _AGAIN))
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + CIFAR_ROW)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise DataError(message(name, "CIFAR-10 with labels 0 to 9", f"label {labels.max()}", _AGAIN))
    return np.ascontiguousarray(records[:, 1:]), labels


def _open(path: str | Path) -> IO[bytes]:
    path = Path(path)
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read_up_to(stream: IO[bytes], size: int) -> bytearray:
    """At most `size` bytes, by chunks: one read of `size` would allocate it before the first byte arrives."""
    content = bytearray()
    while len(content) < size and (chunk := stream.read(min(size - len(content), 1 << 20))):
        content += chunk
    return content
