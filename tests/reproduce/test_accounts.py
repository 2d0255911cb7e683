import pytest

from noisycgd.comparison import Comparison, Curve
from reproduce.accounts import (
    COMPARISONS,
    comparison_picture,
    comparison_table,
    epochs_comparison,
    shuffling_comparison,
)
from reproduce.experiments import load_experiment, names
from reproduce.figures import image


def test_every_config_without_runs_has_its_comparison():
    assert set(COMPARISONS) == {name for name in names() if load_experiment(name).kind == "accounting"}


def test_epochs_have_the_papers_numbers():
    # docs/paper_epsilons.md has the same ones.
    last = [line.split("|")[-2].strip() for line in comparison_table(epochs_comparison()).splitlines()[4:]]
    assert last == ["1.4212", "1.4076", "1.3465", "1.1964", "0.9527", "1.3173"]


def test_shuffling_has_the_papers_batches():
    comparison = shuffling_comparison(points=2)
    assert [curve.name for curve in comparison.curves[1:]] == ["shuffled, 60 batches", "shuffled, 1000 batches"]
    # At 60 batches it is worse than no amplification, at 1000 better.
    plain, few, many = (curve.x[0] for curve in comparison.curves)
    assert many < plain < few


@pytest.fixture
def comparison():
    def make(log_y):
        curves = (
            Curve("one", (1.0, 2.0, 3.0), (1e-6, 1e-5, 1e-4), "final-model"),
            Curve("two", (0.5, 2.0), (1e-6, 1e-4), "all-iterates"),
        )
        return Comparison("title", "x", "y", curves, log_y)

    return make


def test_a_table_has_the_points_that_all_curves_have(comparison):
    lines = comparison_table(comparison(log_y=True)).splitlines()
    assert lines[0] == "Epsilon, rounded up: title."
    assert "delta = 1e-6" in lines[2]
    assert "delta = 1e-5" not in lines[2]
    assert lines[4].split("|")[3].strip() == "1.0000"
    lines = comparison_table(comparison(log_y=False)).splitlines()
    assert "epoch 2 " in lines[2]
    assert "epoch 3 " not in lines[2]


@pytest.mark.parametrize("log_y", [False, True])
def test_the_same_picture_is_the_same_bytes(comparison, log_y):
    assert image(comparison_picture(comparison(log_y)), "png") == image(comparison_picture(comparison(log_y)), "png")
