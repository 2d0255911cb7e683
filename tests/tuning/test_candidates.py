import numpy as np
import pytest
from scipy import stats

from noisycgd import ConvexReLUClassifier, SSPClassifier
from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.tuning.candidates import Candidates

MODEL = ConvexReLUClassifier()


def made(candidates, model=MODEL):
    return Candidates(candidates, model)


class TestGrid:
    def test_lists_all_combinations(self):
        found = list(made([{"l2": [0.0, 0.1], "epochs": [1, 2, 3]}, {"bias": [1.0]}]).grid())
        assert len(found) == 7
        assert {"l2": 0.1, "epochs": 3} in found
        assert {"bias": 1.0} in found

    def test_draws_each_combination_equally_often(self):
        # Chi-square at level 1e-6 under fresh randomness.
        candidates = made([{"l2": [0.0, 0.1], "epochs": [1, 2, 3]}, {"bias": [1.0]}])
        rng = np.random.default_rng(3)
        listed = list(candidates.grid())
        counts = np.bincount([listed.index(candidates.draw(rng)) for _ in range(7000)], minlength=7)
        assert stats.chisquare(counts).pvalue > 1e-6
        # The negative control: choosing a dict first would favour the small one.
        by_dict = np.array([7000 / 12] * 6 + [3500])
        assert stats.chisquare(counts, by_dict).pvalue < 1e-6

    def test_an_empty_dict_is_the_estimator_as_it_is(self):
        assert made({}).draw(np.random.default_rng(0)) == {}


class TestDistributions:
    def test_draws_from_them_and_from_lists(self):
        candidates = made({"l2": stats.uniform(1.0, 2.0), "epochs": [1, 2], "batch_size": stats.randint(5, 9)})
        assert not candidates.is_grid
        rng = np.random.default_rng(4)
        drawn = [candidates.draw(rng) for _ in range(200)]
        assert {d["epochs"] for d in drawn} == {1, 2}
        assert {d["batch_size"] for d in drawn} == {5, 6, 7, 8}
        assert all(type(d["l2"]) is float and type(d["batch_size"]) is int for d in drawn)
        # Kolmogorov-Smirnov at level 1e-6 under fresh randomness.
        assert stats.kstest([d["l2"] for d in drawn], stats.uniform(1.0, 2.0).cdf).pvalue > 1e-6

    def test_no_global_seed_is_touched(self):
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        made({"l2": stats.uniform()}).draw(np.random.default_rng(0))
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_possible_values_count_the_default_of_dicts_without_the_name():
    candidates = made([{"method": ["dpsgd"]}, {"l2": stats.uniform()}])
    assert candidates.possible("method", "noisycgd") == ["dpsgd", "noisycgd"]
    assert candidates.possible("l2", 0.0) == [0.0]


@pytest.mark.parametrize("name", ["epsilon", "delta", "mu", "noise_multiplier"])
def test_privacy_is_not_tuned(name):
    with pytest.raises(ParameterError, match=r"other than privacy's; got .*the selection's own epsilon"):
        made({name: [1.0]})


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        ("l2", ParameterTypeError, "candidates must be a dict or a list of dicts"),
        ([3], ParameterTypeError, "candidates must be a dict or a list of dicts"),
        ([], ParameterError, "at least one dict"),
        ({"l2": 0.1}, ParameterTypeError, "candidates for l2 must be a list or a distribution"),
        ({"loss": "logistic"}, ParameterTypeError, "candidates for loss must be a list"),
        ({"l2": []}, ParameterError, "candidates for l2 must be at least one value"),
        ({"hyperplanes": [2]}, ParameterError, "parameters of the estimator .*n_hyperplanes"),
        ({"classes": [[0, 1]]}, ParameterError, "that shape a model"),
        ({"allow_unproven": [True]}, ParameterError, "that shape a model"),
        ({"method": stats.uniform()}, ParameterError, "candidates for method must be a list"),
        ({"learning_rate": [1.0], "learning_rate_fraction": [1.0]}, ParameterError, "learning_rate must be left out"),
    ],
)
def test_refusals(candidates, error, message):
    with pytest.raises(error, match=message):
        made(candidates)


def test_a_model_without_learning_rate_has_no_fraction_of_it():
    with pytest.raises(ParameterError, match="parameters of the estimator"):
        made({"learning_rate_fraction": [1.0]}, SSPClassifier())
