import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score

from noisycgd import LinearClassifier
from noisycgd.estimators import _search

X = np.random.default_rng(0).standard_normal((40, 3))
Y = np.arange(40) % 2
MODEL = LinearClassifier(epochs=1, noise_multiplier=1.0)
SEARCHES = [
    GridSearchCV(MODEL, {"bias": [0.0, 1.0]}, cv=2),
    RandomizedSearchCV(MODEL, {"bias": [0.0, 1.0]}, cv=2, n_iter=2),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(_search, "_warned", False)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: type(s).__name__)
def test_a_search_warns_once(search):
    with pytest.warns(UserWarning, match=r"must be that of the whole search.*PrivateSelection") as found:
        search.fit(X, Y)
    assert len(found) == 1
    # Warnings are errors here.
    search.fit(X, Y)


def test_a_fit_and_a_cross_validation_do_not_warn():
    MODEL.fit(X, Y)
    cross_val_score(MODEL, X, Y, cv=2)
    assert not _search._warned
