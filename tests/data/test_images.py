import gzip
import io
import re
import struct
import tarfile

import numpy as np
import pytest

from noisycgd._validation import DataError
from noisycgd.data import images
from noisycgd.data.images import CIFAR_PARTS, idx_bytes, read_cifar_archive, read_cifar_batch, read_idx

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def cifar_bytes(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, n, dtype=np.uint8)
    pixels = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
    return np.concatenate([labels[:, None], pixels], axis=1).tobytes(), labels, pixels


def write_archive(path, contents, folder="cifar-10-batches-bin/"):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(folder + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("array", [PIXELS, PIXELS[0], PIXELS[0, 0], PIXELS[None]])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_reads_what_the_format_says(tmp_path, array, suffix):
    header = b"\x00\x00\x08" + bytes([array.ndim]) + b"".join(struct.pack(">I", n) for n in array.shape)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(header + array.tobytes()) if suffix else header + array.tobytes())
    result = read_idx(path)
    np.testing.assert_array_equal(result, array)
    assert result.dtype == np.uint8
    assert result.flags.writeable
    assert idx_bytes(result) == header + array.tobytes()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "magic"),
        (b"\x00\x00", "magic"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "magic number 00000d01"),
        (b"\x00\x00\x08\x00", "magic"),
        (b"\x00\x00\x08\x09" + bytes(50), "magic"),
        (b"\x00\x00\x08\x03\x00\x00", "cut off"),
        (idx_bytes(PIXELS)[:-1], "24 bytes after its header.*got 23"),
        (idx_bytes(PIXELS) + b"\x00", "got 'more'"),
        (idx_bytes(PIXELS[:0]), "shape"),
        (struct.pack(">HBB3I", 0, 8, 3, *[2**32 - 1] * 3), "values"),
        (struct.pack(">HBB1I", 0, 8, 1, images.MAX_BYTES) + b"abc", "got 3"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_damage(tmp_path, content, match, packed):
    path = tmp_path / ("file.gz" if packed else "file")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=match) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_gzip_damage(tmp_path):
    path = tmp_path / "file.gz"
    whole = gzip.compress(idx_bytes(PIXELS))
    for content in (whole[:-12], whole[:20], b"plain text", whole[:-8] + bytes(8)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(str(path))):
            read_idx(path)
    with pytest.raises(DataError, match="No such file"):
        read_idx(tmp_path / "absent")


@pytest.mark.parametrize("suffix", [".bin", ".bin.gz"])
def test_cifar_batch(tmp_path, suffix):
    content, labels, pixels = cifar_bytes(3)
    path = tmp_path / f"data_batch_1{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    X, y = read_cifar_batch(path)
    np.testing.assert_array_equal(X, pixels)
    np.testing.assert_array_equal(y, labels)
    assert (X.dtype, y.dtype, X.flags.writeable) == (np.uint8, np.int64, True)


@pytest.mark.parametrize(
    ("content", "match"),
    [(b"", "0 bytes"), (bytes(3072), "3072 bytes"), (bytes(3074), "3074 bytes"), (b"\x0a" + bytes(3072), "label 10")],
)
def test_cifar_damage(tmp_path, content, match):
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_cifar_batch(tmp_path / "data_batch_1.bin")
    good = {f"{part}.bin": cifar_bytes(1)[0] for part in CIFAR_PARTS}
    path = write_archive(tmp_path / "a.tar.gz", good | {"data_batch_3.bin": content})
    with pytest.raises(DataError, match=rf"data_batch_3\.bin must be .*{match}"):
        read_cifar_archive(path)


def test_cifar_archive_reads_members_in_any_order_and_extracts_nothing(tmp_path):
    parts = {part: cifar_bytes(2, seed) for seed, part in enumerate(CIFAR_PARTS)}
    contents = {f"{part}.bin": parts[part][0] for part in reversed(CIFAR_PARTS)}
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", {"readme.html": b"<html>", **contents})
    for (X, y), part in zip(read_cifar_archive(path), CIFAR_PARTS, strict=True):
        np.testing.assert_array_equal(y, parts[part][1])
        np.testing.assert_array_equal(X, parts[part][2])
    assert list(tmp_path.iterdir()) == [path]


def test_cifar_archive_damage(tmp_path):
    contents = {f"{part}.bin": cifar_bytes(2)[0] for part in CIFAR_PARTS}
    path = write_archive(tmp_path / "a.tar.gz", {k: v for k, v in contents.items() if "4" not in k})
    with pytest.raises(DataError, match=r"without data_batch_4\.bin"):
        read_cifar_archive(path)
    whole = write_archive(path, contents).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no archive"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(str(path))):
            read_cifar_archive(path)


def test_a_link_in_the_archive_is_not_followed(tmp_path):
    outside = tmp_path / "test_batch.bin"
    outside.write_bytes(cifar_bytes(1)[0])
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for part in CIFAR_PARTS[:-1]:
            archive.add(outside, f"cifar-10-batches-bin/{part}.bin")
        link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
    with pytest.raises(DataError, match=r"without test_batch\.bin"):
        read_cifar_archive(path)


def test_an_oversized_member_is_cut_at_the_cap(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 5000)
    contents = {f"{part}.bin": cifar_bytes(1)[0] for part in CIFAR_PARTS}
    path = write_archive(tmp_path / "a.tar.gz", contents | {"test_batch.bin": bytes(10_000_000)})
    with pytest.raises(DataError, match="5000 bytes"):
        read_cifar_archive(path)
