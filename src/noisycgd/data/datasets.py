"""Named public data sets: from the user's folder, a system package, or the official mirror; nothing is unpickled."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import DataError, check_choice, message
from noisycgd.data.images import CIFAR_PARTS, idx_bytes, read_cifar_archive, read_cifar_batch, read_idx

ENVIRONMENT_VARIABLE = "NOISYCGD_DATA"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One official file.

    Attributes
    ----------
    name : str
        File name on the mirror.
    md5 : str
        Of the file as published (compressed).
    content_md5 : str
        Of the uncompressed file: it tells an official file however it was packed. Empty where there is none.
    """

    name: str
    md5: str
    content_md5: str = ""


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Public facts of one named data set.

    Attributes
    ----------
    name, title : str
        Key in `DATASETS`, and the name people use.
    image_shape : tuple of int
        Shape that a row reshapes to, channels first.
    max_value : int
        Largest value an entry can have; the least is 0.
    class_names : tuple of str
        Meaning of the labels 0, 1, ...
    n_train, n_test : int
        Rows of the official parts.
    files : tuple of RemoteFile
        What the mirror holds; empty if the data come with scikit-learn.
    base_url : str
        Where the files are, with a trailing slash.
    folders : tuple of str
        Where to look under a data folder, in this order.
    system_folders : tuple of str
        Where system packages put the files.
    """

    name: str
    title: str
    image_shape: tuple[int, ...]
    max_value: int
    class_names: tuple[str, ...]
    n_train: int
    n_test: int
    find: Callable[[DatasetInfo, Path], Dataset | None] = field(repr=False)
    files: tuple[RemoteFile, ...] = ()
    base_url: str = ""
    folders: tuple[str, ...] = ()
    system_folders: tuple[str, ...] = ()

    @property
    def n_features(self) -> int:
        """d, entries of one row."""
        return math.prod(self.image_shape)

    @property
    def classes(self) -> tuple[int, ...]:
        """All labels that can occur, a public fact."""
        return tuple(range(len(self.class_names)))


@dataclass(frozen=True, eq=False, slots=True)
class Dataset:
    """A named data set in memory.

    Attributes
    ----------
    name : str
        Key in `DATASETS`.
    X_train : ndarray of shape (n, d), uint8
        Rows in the official order; images flattened, channels first.
    y_train : ndarray of shape (n,), int64
        Labels, each one of `classes`.
    X_test, y_test : ndarray or None
        Official test part, None where there is none.
    classes : tuple of int
        All labels that can occur, a public fact; `DATASETS[name].class_names` has their meaning.
    source : str
        Folder or archive that was read.
    official : bool
        Whether the contents were found identical to the official files; False also if there is no checksum to tell by.
    """

    name: str
    X_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.uint8] | None
    y_test: NDArray[np.int64] | None
    classes: tuple[int, ...]
    source: str
    official: bool

    @property
    def n_rows(self) -> int:
        """n, rows of the training part."""
        return int(self.X_train.shape[0])


def load_dataset(name: str, data_dir: str | Path | None = None, download: bool = True) -> Dataset:
    """Load a named data set.

    The files are taken from the first place that has all of them: `data_dir` (without it, the folder in the
    environment variable ``NOISYCGD_DATA``) and its customary subfolders, a system package, the download cache.
    Official layouts only: IDX files, CIFAR-10's binary version (files or archive), each gzipped or not.

    Parameters
    ----------
    name : str
        Key of `DATASETS`: "digits", "mnist", "fashion-mnist" or "cifar10".
    data_dir : path, optional
        Folder with the official files.
    download : bool
        Whether to fetch missing files from the official mirror into the user's cache, checked against their MD5.

    Returns
    -------
    Dataset
        Rows as unsigned bytes, labels 0, 1, ...

    Raises
    ------
    ParameterError
        If the name is unknown.
    DataError
        If the folder does not exist, the files are damaged, or they are nowhere and cannot be fetched.
    """
    info = DATASETS[check_choice("name", name, tuple(DATASETS))]
    for folder in _candidates(info, data_dir):
        found = info.find(info, folder)
        if found is not None:
            return found
    if not download:
        _missing(info, "no complete set of them")
    _fetch(info)
    found = info.find(info, _cache(info))
    return found if found is not None else _missing(info, "a download that cannot be read back")


def _candidates(info: DatasetInfo, data_dir: str | Path | None) -> Iterator[Path]:
    """Folders to look in, best first; the cache comes last, so that a second run needs no network."""
    stated, name = data_dir, "data_dir"
    if stated is None:
        stated, name = os.environ.get(ENVIRONMENT_VARIABLE), ENVIRONMENT_VARIABLE
    # Data that come with a library need no folder.
    if stated and info.folders:
        root = Path(stated).expanduser()
        if not root.is_dir():
            raise DataError(message(name, "an existing folder", str(root), "Correct the path."))
        yield from (root / folder for folder in info.folders)
    yield from (Path(folder) for folder in info.system_folders)
    yield _cache(info)


def _cache(info: DatasetInfo) -> Path:
    import pooch

    return Path(pooch.os_cache("noisycgd")) / info.name


def _fetch(info: DatasetInfo) -> None:
    import pooch

    for file in info.files:
        try:
            pooch.retrieve(info.base_url + file.name, known_hash=f"md5:{file.md5}", fname=file.name, path=_cache(info))
        except Exception as error:  # requests, urllib3, a wrong checksum, a full disk: the way out is the same
            _missing(info, f"a failed download of {info.base_url}{file.name} ({type(error).__name__})")


def _missing(info: DatasetInfo, got: str) -> NoReturn:
    names = ", ".join(file.name for file in info.files)
    way_out = f"Put them into a folder and name it with --data-dir (data_dir=) or {ENVIRONMENT_VARIABLE}."
    # Not through `message`, which would shorten the address.
    text = f"The files of {info.title} must be at hand ({names}, unpacked or not); got {got}. {way_out}"
    raise DataError(text) from None


def _find_digits(info: DatasetInfo, folder: Path) -> Dataset:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rows, labels = X.astype(np.uint8), y.astype(np.int64)
    return Dataset(info.name, rows, labels, None, None, info.classes, "scikit-learn", True)


def _find_idx(info: DatasetInfo, folder: Path) -> Dataset | None:
    paths = [path for file in info.files if (path := _existing(folder, file.name.removesuffix(".gz"))) is not None]
    if len(paths) < len(info.files):
        return None
    arrays = [read_idx(path) for path in paths]
    digests = [hashlib.md5(idx_bytes(array), usedforsecurity=False).hexdigest() for array in arrays]
    # MNIST and Fashion-MNIST share their file names: one in place of the other is the wrong data, not damaged data.
    if any(file.content_md5 in digests for other in DATASETS.values() if other is not info for file in other.files):
        return None
    train, test = (_labelled(info, paths[i : i + 2], *arrays[i : i + 2]) for i in (0, 2))
    official = digests == [file.content_md5 for file in info.files]
    return Dataset(info.name, *train, *test, info.classes, str(folder), official)


def _labelled(
    info: DatasetInfo, paths: list[Path], images: NDArray[np.uint8], labels: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(n, 28, 28) images and (n,) labels -> rows (n, 784) and labels as integers, or `DataError` naming the file."""
    shape, classes = info.image_shape[-2:], len(info.classes)
    for path, good, requirement, got in (
        (paths[0], images.shape[1:] == shape, f"images of shape {shape}", images.shape[1:]),
        (paths[1], labels.shape == images.shape[:1], f"{len(images)} labels, one for each image", labels.shape),
        (paths[1], labels.max() < classes, f"labels below {classes}", labels.max()),
    ):
        if not good:
            raise DataError(message(str(path), requirement, got, "Check that it is the file its name says."))
    return images.reshape(len(images), -1), labels.astype(np.int64)


def _find_cifar(info: DatasetInfo, folder: Path) -> Dataset | None:
    files = [path for part in CIFAR_PARTS if (path := _existing(folder, f"{part}.bin")) is not None]
    archive = folder / info.files[0].name
    if len(files) == len(CIFAR_PARTS):
        parts, source, official = [read_cifar_batch(path) for path in files], folder, False
    elif os.path.isfile(archive):
        parts, source = read_cifar_archive(archive), archive
        with archive.open("rb") as stream:
            official = hashlib.file_digest(stream, "md5").hexdigest() == info.files[0].md5
    else:
        return None
    X, y = (np.concatenate([part[i] for part in parts[:-1]]) for i in (0, 1))
    X_test, y_test = parts[-1]
    return Dataset(info.name, X, y, X_test, y_test, info.classes, str(source), official)


def _existing(folder: Path, name: str) -> Path | None:
    """`name` under any of its customary spellings: "train-images-idx3-ubyte" is also "train-images.idx3-ubyte"."""
    for spelling in (name, name.replace("-idx", ".idx")):
        for suffix in ("", ".gz"):
            path = folder / (spelling + suffix)
            if os.path.isfile(path):
                return path
    return None


def _idx_files(md5s: str, content_md5s: str) -> tuple[RemoteFile, ...]:
    stems = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(map(RemoteFile, (f"{stem}-ubyte.gz" for stem in stems), md5s.split(), content_md5s.split()))


_NUMERALS = tuple(str(i) for i in range(10))

DATASETS: Mapping[str, DatasetInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            DatasetInfo("digits", "scikit-learn's digits", (1, 8, 8), 16, _NUMERALS, 1797, 0, _find_digits),
            DatasetInfo(
                name="mnist",
                title="MNIST",
                image_shape=(1, 28, 28),
                max_value=255,
                class_names=_NUMERALS,
                n_train=60_000,
                n_test=10_000,
                find=_find_idx,
                files=_idx_files(
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
                    "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
                    "6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624 "
                    "2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637",
                ),
                base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
                folders=("", "mnist", "MNIST/raw"),
            ),
            DatasetInfo(
                name="fashion-mnist",
                title="Fashion-MNIST",
                image_shape=(1, 28, 28),
                max_value=255,
                class_names=(
                    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
                    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
                ),
                n_train=60_000,
                n_test=10_000,
                find=_find_idx,
                files=_idx_files(
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
                    "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
                    "f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9 "
                    "8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965",
                ),
                base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                folders=("", "fashion-mnist", "FashionMNIST/raw", "fashion"),
                # Debian and Ubuntu: the package dataset-fashion-mnist.
                system_folders=("/usr/share/datasets/fashion-mnist",),
            ),
            DatasetInfo(
                name="cifar10",
                title="CIFAR-10",
                image_shape=(3, 32, 32),
                max_value=255,
                class_names=(
                    *("airplane", "automobile", "bird", "cat", "deer"),
                    *("dog", "frog", "horse", "ship", "truck"),
                ),
                n_train=50_000,
                n_test=10_000,
                find=_find_cifar,
                files=(RemoteFile("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
                base_url="https://www.cs.toronto.edu/~kriz/",
                folders=(
                    "",
                    "cifar10",
                    "cifar-10",
                    "cifar-10-batches-bin",
                    "cifar-10/cifar-10-batches-bin",
                    "cifar10/cifar-10-batches-bin",
                ),
            ),
        )
    }
)
