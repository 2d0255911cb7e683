import numpy as np
import pytest
from scipy import stats

from noisycgd import LinearClassifier
from noisycgd._validation import NoisyCGDError, ParameterError, ParameterTypeError
from noisycgd.estimators._reading import read_records
from noisycgd.training.noise import predictable_randomness, system_randomness
from noisycgd.tuning.scores import private_score, public_score, score_std
from noisycgd.tuning.trials import Trial

RNG = np.random.default_rng(8)
X = RNG.standard_normal((40, 3))
Y = np.arange(40) % 2
READER = LinearClassifier()
read_records(READER, X, Y)


class Constant:
    """Says 1 of every record."""

    def predict(self, X):
        return np.ones(len(X), int)


def trial(index):
    return Trial({}, LinearClassifier(), system_randomness().spawn(index))


class TestPrivate:
    def test_is_accuracy_plus_planned_noise(self):
        # Tests of mean and variance at level 1e-6 each under fresh randomness; noise scaled by 0.9 is rejected.
        score = private_score(0.5, X, Y)
        with predictable_randomness(2):
            found = [score((trial(t), Constant())) for t in range(5000)]
        std = 1 / (40 * 0.5)
        assert stats.kstest(found, stats.norm(0.5, std).cdf).pvalue > 1e-6

        def spread_pvalue(std):
            p = stats.chi2(len(found)).sf(np.sum((np.array(found) - 0.5) ** 2) / std**2)
            return 2 * min(p, 1 - p)

        assert spread_pvalue(std) > 1e-6
        assert spread_pvalue(0.9 * std) < 1e-6

    def test_its_noise_hides_one_record(self):
        for n in (1, 7, 1000):
            assert 1 / n / score_std(0.3, n) <= 0.3
            assert 1 / n / score_std(0.3, n) == pytest.approx(0.3, rel=1e-11)

    def test_noise_is_fresh_and_cannot_be_left_out(self):
        score = private_score(0.5, X, Y)
        outcome = (trial(0), Constant())
        assert len({score(outcome) for _ in range(5)}) == 5

    def test_noise_does_not_depend_on_what_a_trial_drew(self):
        score = private_score(0.5, X, Y)
        with predictable_randomness(2):
            one, two = trial(3), trial(3)
            two.randomness.key()
            assert score((one, Constant())) == score((two, Constant()))
            assert score((one, Constant())) != score((trial(4), Constant()))


class TestPublic:
    def fitted(self):
        return LinearClassifier(epochs=2, noise_multiplier=1e-3).fit(X, Y)

    def test_is_the_estimator_s_own_score(self):
        model = self.fitted()
        assert public_score(READER, X, Y, None)((trial(0), model)) == model.score(X, Y)

    def test_takes_scorers(self):
        model = self.fitted()
        assert public_score(READER, X, Y, "neg_log_loss")((trial(0), model)) < 0
        assert public_score(READER, X, Y, lambda m, X, y: 7)((trial(0), model)) == 7.0

    def test_refuses_a_score_that_is_no_number(self):
        with pytest.raises(NoisyCGDError, match="score must be a finite number"):
            public_score(READER, X, Y, lambda m, X, y: float("nan"))((trial(0), self.fitted()))

    def test_refuses_unknown_scorers(self):
        with pytest.raises(ParameterError, match="scoring must be one of"):
            public_score(READER, X, Y, "beauty")
        with pytest.raises(ParameterTypeError, match="scoring must be a scorer"):
            public_score(READER, X, Y, 3)

    @pytest.mark.parametrize("data", [(X[:, :2], Y), (X, Y[:9]), (X * np.nan, Y)])
    def test_refuses_other_data_before_any_trial(self, data):
        with pytest.raises(ValueError, match=r"features|as long as|NaN"):
            public_score(READER, *data, None)
