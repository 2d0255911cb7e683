from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisycgd._validation import DataError
from noisycgd.cli.inputs import later_data, training_data

NOTHING = {"target": None, "schema": None, "data_dir": None, "test": None, "test_fraction": None}


def test_the_split_is_disjoint_complete_and_set_by_its_seed() -> None:
    splits = [training_data("digits", **NOTHING, split_seed=s) for s in (0, 0, 1)]
    (train, held_out), again, other = splits
    assert len(train.X) == 1348
    assert held_out is not None
    assert len(held_out.X) == 449
    np.testing.assert_array_equal(train.X, again[0].X)
    assert not np.array_equal(train.X, other[0].X)
    whole, _ = training_data("digits", **{**NOTHING, "test_fraction": 0.001}, split_seed=0)
    assert train.X.sum(dtype=int) + held_out.X.sum(dtype=int) == pytest.approx(whole.X.sum(dtype=int), rel=0.01)
    assert train.public
    assert train.classes == tuple(range(10))


@pytest.mark.parametrize("option", ["target", "schema", "test"])
def test_table_options_are_refused_for_named_data(option) -> None:
    with pytest.raises(DataError, match=f"--{option} must be left out"):
        training_data("digits", **{**NOTHING, option: "something"}, split_seed=0)


def test_later_data_reads_the_columns_of_training_in_their_order(tmp_path) -> None:
    (tmp_path / "train.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    (tmp_path / "later.csv").write_text("b,c,a\n20,0,10\n")
    train, _ = training_data(str(tmp_path / "train.csv"), **{**NOTHING, "target": "y"}, split_seed=0)
    later = later_data(str(tmp_path / "later.csv"), train.reading, data_dir=None, needs_target=False)
    np.testing.assert_array_equal(later.X, [[10, 20]])
    assert later.y is None
    with pytest.raises(DataError, match="'y'"):
        later_data(str(tmp_path / "later.csv"), train.reading, data_dir=None, needs_target=True)


def test_a_separate_test_table_is_read_like_the_training_table(tmp_path) -> None:
    (tmp_path / "train.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    (tmp_path / "test.csv").write_text("y,b,a\n1,20,10\n")
    train, held_out = training_data(
        str(tmp_path / "train.csv"), **{**NOTHING, "target": "y", "test": tmp_path / "test.csv"}, split_seed=0
    )
    assert held_out is not None
    np.testing.assert_array_equal(held_out.X, [[10, 20]])
    np.testing.assert_array_equal(held_out.targets, [1])
    assert len(train.X) == 2


def test_a_table_beside_an_archive_is_refused_with_the_way_out(tmp_path) -> None:
    np.savez(tmp_path / "train.npz", X=np.ones((6, 2)), y=np.arange(6) % 2)
    table = tmp_path / "test.csv"
    table.write_text("a,b,y\n1,2,0\n3,4,1\n")
    source, options = str(tmp_path / "train.npz"), {**NOTHING, "split_seed": 0}
    with pytest.raises(DataError, match=r"test\.csv must be an \.npz archive with X and y, since the records to train"):
        training_data(source, **{**options, "test": table})
    with pytest.raises(DataError, match=r"DATA must be a file, or one of .*absent.* Check the name"):
        training_data(source, **{**options, "test": tmp_path / "absent"})
    train, _ = training_data(source, **options)
    # A model may be used on a table all the same: rows alone need no names, and a target is named by an option.
    assert later_data(str(table), train.reading, data_dir=None, needs_target=False).X.shape == (2, 3)
    found = later_data(str(table), replace(train.reading, target="y"), data_dir=None, needs_target=True)
    assert (found.X.shape, found.targets.tolist()) == ((2, 2), [0, 1])
    with pytest.raises(DataError, match="--target must be given"):
        later_data(str(table), train.reading, data_dir=None, needs_target=True)
