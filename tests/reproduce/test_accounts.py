import pytest

from noisycgd.comparison import Comparison, Curve
from reproduce.accounts import comparison, comparison_picture, comparison_table
from reproduce.experiments import load_experiment
from reproduce.figures import image


def test_epochs_have_the_papers_numbers():
    # docs/paper_epsilons.md has the same ones.
    table = comparison_table(comparison(load_experiment("figure-epsilon-epochs").comparison))
    last = [line.split("|")[-2].strip() for line in table.splitlines()[4:]]
    assert last == ["1.4212", "1.4076", "1.3465", "1.1964", "0.9527", "1.3173"]


def test_shuffling_has_the_papers_batches():
    found = comparison(load_experiment("figure-shuffling").comparison | {"points": 9})
    assert [curve.name for curve in found.curves[1:]] == ["shuffled, 60 batches", "shuffled, 1000 batches"]
    # docs/paper_epsilons.md: at 60 batches it is worse than no amplification, at 1000 better.
    header, _, plain, few, many = (
        [c.strip() for c in line.split("|")] for line in comparison_table(found).splitlines()[2:]
    )
    at = header.index("delta = 1e-5")
    assert (plain[at], few[at]) == ("1.5550", "2.0908")
    # Its minimum over the local epsilon is 0.6132.
    assert 0.6132 <= float(many[at]) < 0.62


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "must be of epochs or shuffling; got None"),
        ({"of": "colours"}, "must be of epochs or shuffling; got colours"),
        ({"of": "shuffling", "colour": 3}, "must have the settings of shuffling; .*colour"),
    ],
)
def test_settings_that_mean_nothing(settings, message):
    with pytest.raises(ValueError, match=message):
        comparison(settings)


@pytest.fixture
def made():
    def make(log_y):
        curves = (
            Curve("one", (1.0, 2.0, 3.0), (1e-6, 1e-5, 1e-4), "final-model"),
            Curve("two", (0.5, 2.0), (1e-6, 1e-4), "all-iterates"),
        )
        return Comparison("title", "x", "y", curves, log_y)

    return make


def test_a_table_has_the_points_that_all_curves_have(made):
    lines = comparison_table(made(log_y=True)).splitlines()
    assert lines[0] == "Epsilon, rounded up: title."
    assert "delta = 1e-6" in lines[2]
    assert "delta = 1e-5" not in lines[2]
    assert lines[4].split("|")[3].strip() == "1.0000"
    lines = comparison_table(made(log_y=False)).splitlines()
    assert "epoch 2 " in lines[2]
    assert "epoch 3 " not in lines[2]


@pytest.mark.parametrize("log_y", [False, True])
def test_the_same_picture_is_the_same_bytes(made, log_y):
    assert image(comparison_picture(made(log_y)), "png") == image(comparison_picture(made(log_y)), "png")
