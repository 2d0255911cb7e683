import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, TunedThresholdClassifierCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from noisycgd import LinearClassifier

X = np.random.default_rng(0).standard_normal((40, 3))
Y = np.arange(40) % 2
MODEL = LinearClassifier(epochs=1, noise_multiplier=1.0)
SEVERAL = [
    GridSearchCV(MODEL, {"bias": [0.0, 1.0]}, cv=2),
    RandomizedSearchCV(MODEL, {"bias": [0.0, 1.0]}, cv=2, n_iter=2),
    GridSearchCV(make_pipeline(StandardScaler(), MODEL), {"linearclassifier__bias": [0.0, 1.0]}, cv=2),
    SequentialFeatureSelector(MODEL, n_features_to_select=1, cv=2),
    TunedThresholdClassifierCV(MODEL, cv=2, thresholds=3),
    OneVsRestClassifier(MODEL),
    BaggingClassifier(MODEL, n_estimators=2),
]


@pytest.mark.parametrize("outer", SEVERAL, ids=lambda outer: type(outer).__name__)
def test_one_of_several_fits_warns_once(outer):
    outer = clone(outer)
    expected = rf"^a guarantee within {type(outer).__name__} must be that of everything .*PrivateSelection"
    with pytest.warns(UserWarning, match=expected) as found:
        outer.fit(X, Y)
    assert len(found) == 1
    # Warnings are errors here: the same object says it once, another one again.
    outer.fit(X, Y)
    with pytest.warns(UserWarning, match=expected):
        clone(outer).fit(X, Y)


def test_a_step_that_learned_from_the_records_warns():
    piped = make_pipeline(Normalizer(), StandardScaler(), MODEL)
    with pytest.warns(UserWarning, match=r"within Pipeline must be .*'StandardScaler'.*FrozenEstimator") as found:
        piped.fit(X, Y)
    assert len(found) == 1


class Wrapper(ClassifierMixin, BaseEstimator):
    """Somebody's estimator that fits one of ours and nothing else."""

    def fit(self, X, y):
        self.model_ = clone(MODEL).fit(X, y)
        return self


def test_a_fit_that_learns_alone_does_not_warn():
    MODEL.fit(X, Y)
    cross_val_score(MODEL, X, Y, cv=2)
    public = FrozenEstimator(StandardScaler().fit(X + 1))
    make_pipeline(Normalizer(), FunctionTransformer(np.tanh), "passthrough", public, MODEL).fit(X, Y)
    Wrapper().fit(X, Y)
