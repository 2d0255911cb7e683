import warnings
import weakref

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from noisycgd import LinearClassifier, SSPRegressor
from noisycgd.estimators import _company

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


class Duck:
    """A transformer that only looks like one of scikit-learn's."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


class Wrapper(ClassifierMixin, BaseEstimator):
    """Somebody's estimator that fits one of ours and nothing else."""

    def fit(self, X, y):
        self.model_ = clone(MODEL).fit(X, y)
        return self


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


@pytest.mark.parametrize(
    ("inner", "learned"),
    [
        (make_pipeline(Normalizer(), FunctionTransformer()), False),
        (make_pipeline(Normalizer(), StandardScaler()), True),
        (FeatureUnion([("a", Normalizer()), ("b", "passthrough")]), False),
        (ColumnTransformer([("a", StandardScaler(), [0])]), True),
        (Duck(), True),
    ],
)
def test_steps_of_steps_are_looked_at(inner, learned):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        Pipeline([("outer", Normalizer()), ("inner", Pipeline([("step", inner), ("model", MODEL)]))]).fit(X, Y)
    assert bool(found) is learned
    assert not learned or "StandardScaler" in str(found[0].message) or "Duck" in str(found[0].message)


def test_a_target_that_is_scaled_by_its_records_warns():
    outer = TransformedTargetRegressor(SSPRegressor(target_range=(-9, 9)), transformer=StandardScaler())
    with pytest.warns(UserWarning, match="a guarantee within TransformedTargetRegressor"):
        outer.fit(X, X[:, 0])


@pytest.mark.parametrize("outer", [SEVERAL[0], SEVERAL[-1]], ids=lambda outer: type(outer).__name__)
def test_a_worker_warns_too(outer, monkeypatch):
    # In a worker nothing but scikit-learn's own functions is on the stack.
    monkeypatch.setattr(_company, "MetaEstimatorMixin", Wrapper)
    monkeypatch.setattr(_company, "_warned", weakref.WeakSet())
    with pytest.warns(UserWarning, match="a guarantee within scikit-learn must be that of everything"):
        clone(outer).fit(X, Y)


def test_a_fit_that_learns_alone_does_not_warn():
    MODEL.fit(X, Y)
    cross_val_score(MODEL, X, Y, cv=2)
    public = FrozenEstimator(StandardScaler().fit(X + 1))
    make_pipeline(Normalizer(), FunctionTransformer(np.tanh), "passthrough", public, MODEL).fit(X, Y)
    Wrapper().fit(X, Y)
    FixedThresholdClassifier(MODEL, threshold=0.3).fit(X, Y)
