import dataclasses
import gzip
import hashlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from noisycgd._validation import DataError, ParameterError
from noisycgd.data import datasets
from noisycgd.data.datasets import DATASETS, ENVIRONMENT_VARIABLE, load_dataset
from noisycgd.data.images import CIFAR_PARTS, idx_bytes

IDX_STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """No data folder, no system package, an empty cache, and no network."""
    import pooch

    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)

    def refuse(url, **kwargs):
        raise ConnectionError(f"no route to {url}")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    bare = {name: dataclasses.replace(info, system_folders=()) for name, info in DATASETS.items()}
    monkeypatch.setattr(datasets, "DATASETS", bare)


def idx_arrays(n=5, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(
        array
        for m in (n, 2)
        for array in (rng.integers(0, 256, (m, 28, 28), dtype=np.uint8), rng.integers(0, 10, m, dtype=np.uint8))
    )


def write_idx(folder, arrays, gz=True, dotted=False):
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in zip(IDX_STEMS, arrays, strict=True):
        name = stem.replace("-idx", ".idx") if dotted else stem
        content = idx_bytes(array)
        (folder / (name + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)
    return folder


def write_cifar(folder, gz=False):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    records = {part: rng.integers(0, 10, (2, 3073), dtype=np.uint8) for part in CIFAR_PARTS}
    for part, array in records.items():
        content = array.tobytes()
        (folder / f"{part}.bin{'.gz' * gz}").write_bytes(gzip.compress(content) if gz else content)
    return records


def assert_is(dataset, arrays):
    images, labels, test_images, test_labels = arrays
    np.testing.assert_array_equal(dataset.X_train, images.reshape(len(images), -1))
    np.testing.assert_array_equal(dataset.y_train, labels)
    np.testing.assert_array_equal(dataset.X_test, test_images.reshape(len(test_images), -1))
    np.testing.assert_array_equal(dataset.y_test, test_labels)


def test_digits():
    dataset = load_dataset("digits")
    X, y = load_digits(return_X_y=True)
    np.testing.assert_array_equal(dataset.X_train, X)
    np.testing.assert_array_equal(dataset.y_train, y)
    assert dataset.X_train.dtype == np.uint8
    assert dataset.X_test is None
    assert dataset.y_test is None
    info = DATASETS["digits"]
    assert (dataset.n_rows, dataset.X_train.shape[1]) == (info.n_train, info.n_features) == (1797, 64)
    assert (dataset.X_train.max(), dataset.classes, dataset.official) == (info.max_value, tuple(range(10)), True)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
def test_idx_folder_itself(tmp_path, name, gz, dotted):
    arrays = idx_arrays()
    dataset = load_dataset(name, write_idx(tmp_path / "data", arrays, gz, dotted), download=False)
    assert_is(dataset, arrays)
    assert (dataset.name, dataset.n_rows, dataset.official) == (name, 5, False)
    assert dataset.X_train.dtype == dataset.X_test.dtype == np.uint8
    assert dataset.y_train.dtype == dataset.y_test.dtype == np.int64
    assert dataset.source == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "fashion"),
    ],
)
def test_customary_idx_folders(tmp_path, name, folder):
    write_idx(tmp_path / folder, idx_arrays())
    assert load_dataset(name, tmp_path, download=False).source == str(tmp_path / folder)


@pytest.mark.parametrize("folder", ["", "cifar10", "cifar-10", "cifar-10-batches-bin", "cifar-10/cifar-10-batches-bin"])
@pytest.mark.parametrize("gz", [True, False])
def test_cifar_folders(tmp_path, folder, gz):
    records = write_cifar(tmp_path / folder, gz)
    dataset = load_dataset("cifar10", tmp_path, download=False)
    train = np.concatenate([records[part] for part in CIFAR_PARTS[:-1]])
    np.testing.assert_array_equal(dataset.X_train, train[:, 1:])
    np.testing.assert_array_equal(dataset.y_train, train[:, 0])
    np.testing.assert_array_equal(dataset.X_test, records["test_batch"][:, 1:])
    np.testing.assert_array_equal(dataset.y_test, records["test_batch"][:, 0])
    assert (dataset.n_rows, dataset.official) == (10, False)


def test_cifar_archive_is_official_only_by_its_checksum(tmp_path, monkeypatch):
    import tarfile

    write_cifar(tmp_path / "cifar-10-batches-bin")
    archive = tmp_path / "only" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as stream:
        stream.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
    dataset = load_dataset("cifar10", archive.parent, download=False)
    np.testing.assert_array_equal(dataset.X_train, load_dataset("cifar10", tmp_path, download=False).X_train)
    assert (dataset.source, dataset.official) == (str(archive), False)
    info = datasets.DATASETS["cifar10"]
    file = dataclasses.replace(info.files[0], md5=hashlib.md5(archive.read_bytes()).hexdigest())
    monkeypatch.setitem(datasets.DATASETS, "cifar10", dataclasses.replace(info, files=(file,)))
    assert load_dataset("cifar10", archive.parent, download=False).official


def test_argument_beats_environment_beats_system_package_beats_cache(tmp_path, monkeypatch):
    places = [tmp_path / place for place in ("argument", "environment", "system", "cache/noisycgd/mnist")]
    for seed, place in enumerate(places):
        write_idx(place, idx_arrays(seed=seed))
    info = dataclasses.replace(datasets.DATASETS["mnist"], system_folders=(str(places[2]),))
    monkeypatch.setitem(datasets.DATASETS, "mnist", info)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(places[1]))
    assert_is(load_dataset("mnist", places[0]), idx_arrays(seed=0))
    assert_is(load_dataset("mnist"), idx_arrays(seed=1))
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)
    assert_is(load_dataset("mnist"), idx_arrays(seed=2))
    monkeypatch.setitem(datasets.DATASETS, "mnist", dataclasses.replace(info, system_folders=()))
    assert_is(load_dataset("mnist"), idx_arrays(seed=3))


def with_contents_of(info, arrays):
    digests = [hashlib.md5(idx_bytes(array)).hexdigest() for array in arrays]
    files = tuple(dataclasses.replace(f, content_md5=d) for f, d in zip(info.files, digests, strict=True))
    return dataclasses.replace(info, files=files)


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, monkeypatch):
    arrays = idx_arrays()
    write_idx(tmp_path / "data", arrays)
    assert not load_dataset("mnist", tmp_path / "data").official
    monkeypatch.setitem(datasets.DATASETS, "mnist", with_contents_of(datasets.DATASETS["mnist"], arrays))
    assert load_dataset("mnist", tmp_path / "data").official
    with pytest.raises(DataError, match="Fashion-MNIST must be at hand"):
        load_dataset("fashion-mnist", tmp_path / "data", download=False)
    write_idx(tmp_path / "data" / "fashion", idx_arrays(seed=1))
    assert_is(load_dataset("fashion-mnist", tmp_path / "data"), idx_arrays(seed=1))


def test_an_incomplete_set_is_passed_over(tmp_path):
    folder = write_idx(tmp_path / "data", idx_arrays())
    (folder / f"{IDX_STEMS[3]}.gz").unlink()
    with pytest.raises(DataError, match="no complete set"):
        load_dataset("mnist", folder, download=False)


@pytest.mark.parametrize(
    ("which", "array", "match"),
    [
        (0, np.zeros((5, 27, 28), np.uint8), r"images of shape \(28, 28\)"),
        (1, np.zeros(4, np.uint8), "5 labels, one for each"),
        (1, np.full(5, 10, np.uint8), "labels below 10"),
        (3, np.zeros((2, 1), np.uint8), "2 labels"),
    ],
)
def test_files_that_do_not_fit_together(tmp_path, which, array, match):
    arrays = list(idx_arrays())
    arrays[which] = array
    with pytest.raises(DataError, match=match) as caught:
        load_dataset("mnist", write_idx(tmp_path / "data", arrays))
    assert IDX_STEMS[which] in str(caught.value)


def test_damaged_file_is_an_error_and_no_reason_to_download(tmp_path):
    folder = write_idx(tmp_path / "data", idx_arrays(), gz=False)
    path = folder / IDX_STEMS[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=IDX_STEMS[0]):
        load_dataset("mnist", folder)


def test_download_is_checked_and_kept(tmp_path, monkeypatch):
    import pooch

    calls, arrays = [], idx_arrays()

    def retrieve(url, known_hash, fname, path):
        calls.append((url, known_hash, fname))
        array = arrays[[f"{stem}.gz" for stem in IDX_STEMS].index(fname)]
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(gzip.compress(idx_bytes(array)))

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert_is(load_dataset("mnist"), arrays)
    info = DATASETS["mnist"]
    assert calls == [(info.base_url + f.name, f"md5:{f.md5}", f.name) for f in info.files]
    assert_is(load_dataset("mnist"), arrays)
    assert_is(load_dataset("mnist", download=False), arrays)
    assert len(calls) == 4


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_failed_download_names_the_files_and_the_way_out(name):
    with pytest.raises(DataError, match=r"--data-dir.*NOISYCGD_DATA") as caught:
        load_dataset(name)
    for file in DATASETS[name].files:
        assert file.name in str(caught.value)
    assert DATASETS[name].base_url in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(DataError, match="no complete set"):
        load_dataset(name, download=False)


def test_wrong_name_and_folder(tmp_path, monkeypatch):
    with pytest.raises(ParameterError, match="'digits', 'mnist', 'fashion-mnist', 'cifar10'"):
        load_dataset("minst")
    with pytest.raises(DataError, match="data_dir must be an existing folder"):
        load_dataset("mnist", tmp_path / "absent")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(DataError, match="NOISYCGD_DATA must be an existing folder"):
        load_dataset("mnist")
    # It is no file of a folder.
    assert load_dataset("digits").n_rows == 1797


def test_registry_states_public_facts():
    for name, info in DATASETS.items():
        assert info.name == name
        assert len(set(info.class_names)) == len(info.classes) == 10
        assert all(len(f.md5) == 32 for f in info.files)
        assert all(info.base_url.startswith("http") and info.base_url.endswith("/") for _ in info.files)
    assert [DATASETS[n].n_features for n in DATASETS] == [64, 784, 784, 3072]
    md5s = [md5 for info in DATASETS.values() for f in info.files for md5 in (f.md5, f.content_md5) if md5]
    assert len(set(md5s)) == len(md5s) == 17
    with pytest.raises(TypeError):
        DATASETS["mnist"] = DATASETS["digits"]


def test_importing_the_readers_is_light():
    # What the room's __init__ imports is its own promise: only what these modules add counts.
    code = """
import sys
import noisycgd.data
before = set(sys.modules)
import noisycgd.data.datasets, noisycgd.data.schema, noisycgd.data.sources
added = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not added & {"jax", "sklearn", "pyarrow", "pooch", "pandas", "polars"}, added
"""
    subprocess.run([sys.executable, "-c", code], check=True)
