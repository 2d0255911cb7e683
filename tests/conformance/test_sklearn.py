"""scikit-learn's own checks, and its tools around the estimators."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import RegressorMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from noisycgd import (
    ConvexReLUClassifier,
    ConvexReLURegressor,
    LinearClassifier,
    ReLUNetworkClassifier,
    SSPClassifier,
    SSPRegressor,
)
from noisycgd.training import predictable_randomness

SMALL = {"epochs": 2}
LEARNERS = [
    ConvexReLUClassifier(n_hyperplanes=4, **SMALL),
    LinearClassifier(**SMALL),
    ConvexReLURegressor(n_hyperplanes=4, **SMALL),
]
ESTIMATORS = [
    *LEARNERS,
    LinearClassifier(method="dpsgd", epochs=1, noise_multiplier=5.0),
    ReLUNetworkClassifier(width=4, epochs=1, noise_multiplier=5.0),
    SSPClassifier(features="identity"),
    SSPRegressor(features="identity"),
]

# Each of these compares the predictions of two fits, and every fit draws fresh secret noise.
TWO_FITS = {
    "check_fit_idempotent": "compares a fit with a second one on the same data; each has fresh secret noise",
    "check_supervised_y_2d": "compares fits on y and on y as a column; each has fresh secret noise",
}
TWO_CLASSIFIERS = {
    **TWO_FITS,
    "check_classifier_data_not_an_array": "compares fits on arrays and on array-likes; each has fresh secret noise",
}
TWO_REGRESSORS = {
    **TWO_FITS,
    "check_regressor_data_not_an_array": "compares fits on arrays and on array-likes; each has fresh secret noise",
    "check_regressors_int": "compares fits on integer and on float targets; each has fresh secret noise",
}


def expected_failed_checks(estimator):
    return TWO_REGRESSORS if isinstance(estimator, RegressorMixin) else TWO_CLASSIFIERS


def name_of(estimator):
    return type(estimator).__name__


# Two noisy fits may agree by chance, so that an expected failure cannot be demanded here ...
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failed_checks, xfail_strict=False)
def test_scikit_learn(estimator, check):
    check(estimator)


# ... but they pass once both fits get the same noise: nothing but the noise makes them fail.
@pytest.mark.parametrize(
    ("estimator", "check"),
    [(estimator, check) for estimator in ESTIMATORS for check in expected_failed_checks(estimator)],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_checks_that_compare_two_fits_pass_with_predictable_noise(estimator, check):
    with predictable_randomness(3):
        getattr(estimator_checks, check)(name_of(estimator), clone(estimator))


# scikit-learn skips these for estimators that call themselves non-deterministic; the predictions of one fitted model
# are deterministic all the same.
@pytest.mark.parametrize("check", ["check_methods_sample_order_invariance", "check_methods_subset_invariance"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_predictions_depend_on_their_own_row_alone(estimator, check):
    getattr(estimator_checks, check)(name_of(estimator), clone(estimator))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_a_pipeline_is_consistent_with_predictable_noise(estimator):
    X, y = two_clusters()
    with predictable_randomness(1):
        alone = clone(estimator).set_params(random_state=0).fit(X, y)
        piped = make_pipeline(clone(alone)).fit(X, y)
    np.testing.assert_array_equal(piped.predict(X), alone.predict(X))


def two_clusters(n=48, d=5):
    rng = np.random.default_rng(7)
    y = np.arange(n) % 2
    return rng.standard_normal((n, d)) + 3 * y[:, None], y


@pytest.mark.parametrize("estimator", LEARNERS, ids=name_of)
class TestTools:
    def test_clone_and_parameters(self, estimator):
        changed = clone(estimator).set_params(epsilon=0.5, schedule=[0.5, 0.25], random_state=3, column_bounds=(0, 1))
        copy = clone(changed)
        assert copy.get_params() == changed.get_params()
        assert not [name for name in vars(copy) if name.endswith("_")]
        with pytest.raises(ValueError, match="Invalid parameter 'noise'"):
            copy.set_params(noise=0)

    def test_clone_of_a_fitted_one_is_unfitted(self, estimator):
        fitted = clone(estimator).fit(*two_clusters())
        assert not [name for name in vars(clone(fitted)) if name.endswith("_")]

    def test_fit_does_not_change_parameters(self, estimator):
        unfitted = clone(estimator).set_params(column_bounds=np.array([-9.0, 9.0]), random_state=1)
        before = {name: repr(value) for name, value in unfitted.get_params().items()}
        unfitted.fit(*two_clusters())
        assert {name: repr(value) for name, value in unfitted.get_params().items()} == before

    def test_pipeline(self, estimator):
        X, y = two_clusters()
        pipe = make_pipeline(FunctionTransformer(np.tanh), clone(estimator)).fit(X, y)
        assert pipe.predict(X).shape == y.shape
        assert np.isfinite(pipe.score(X, y))

    def test_grid_search(self, estimator):
        X, y = two_clusters()
        search = GridSearchCV(clone(estimator), {"epsilon": [1e5, 1e6]}, cv=2)
        with pytest.warns(UserWarning, match="PrivateSelection"):
            search.fit(X, y)
        assert search.best_estimator_.guarantee_.epsilon == pytest.approx(search.best_params_["epsilon"], rel=1e-6)

    def test_cross_validation_learns_when_the_budget_is_vast(self, estimator):
        # Two clusters 6.7 standard deviations apart. The negative control has hardly any budget: each of its models
        # points anywhere, and all 12 of them are that good with a probability below 2^-12.
        X, y = two_clusters()
        settings = {"epochs": 30, "bias": 1.0, "random_state": 0}
        vast, tiny = (clone(estimator).set_params(epsilon=e, **settings) for e in (1e6, 1e-4))
        with predictable_randomness(0):
            score = cross_val_score(vast, X, y, cv=2).mean()
        assert score > (0.9 if hasattr(estimator, "loss") else 0.5)
        tiny_scores = [tiny.fit(X, y).score(X, y) for _ in range(12)]
        assert min(tiny_scores) < score

    def test_repr_shows_what_was_changed(self, estimator):
        text = repr(clone(estimator).set_params(epsilon=0.25))
        assert text.startswith(f"{name_of(estimator)}(epochs=2, epsilon=0.25")
        assert "delta" not in text

    def test_pandas_output_is_not_disturbed(self, estimator):
        X, y = two_clusters()
        frame = pd.DataFrame(X, columns=list("abcde"))
        fitted = clone(estimator).fit(frame, pd.Series(y))
        assert fitted.feature_names_in_.tolist() == list("abcde")
        assert fitted.predict(frame).shape == (48,)
