import numpy as np
import pytest

from noisycgd import ConvexReLUClassifier, LinearClassifier, SSPClassifier
from noisycgd._validation import NoisyCGDError
from noisycgd.estimators import _many
from noisycgd.estimators._many import fit_many
from noisycgd.training import many, predictable_randomness, system_randomness
from noisycgd.training.many import Way

N, D = 90, 5
RNG = np.random.default_rng(3)
Y = np.arange(N) % 3
X = RNG.standard_normal((N, D)) + 3 * np.eye(D)[Y]


def mixed():
    """Two shapes that alternate, a method that runs alone, and another model."""
    classes = {"classes": [0, 1, 2], "random_state": 0}
    return [
        ConvexReLUClassifier(n_hyperplanes=4, epochs=3, **classes),
        LinearClassifier(epochs=3, **classes),
        ConvexReLUClassifier(n_hyperplanes=4, epochs=3, learning_rate=0.1, margin=2.0, **classes),
        LinearClassifier(epochs=3, method="dpsgd", **classes),
        LinearClassifier(epochs=3, l2=0.1, **classes),
        SSPClassifier(features="identity", **classes),
        ConvexReLUClassifier(n_hyperplanes=4, epochs=3, epsilon=4.0, **classes),
    ]


def randomnesses(count):
    with predictable_randomness(5):
        source = system_randomness()
        return [source.spawn(t) for t in range(count)]


def fitted_alone():
    estimators = mixed()
    return [e._fit(X, Y, r) for e, r in zip(estimators, randomnesses(len(estimators)), strict=True)]


@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("runs_per_program", [2, 100])
def test_each_gets_the_model_that_it_would_get_alone(monkeypatch, way, runs_per_program):
    together = []

    def watched(batches, *arguments):
        together.append(len(batches))
        return many.train_cyclic_many(batches, *arguments, way=way)

    monkeypatch.setattr(_many, "fastest_way", lambda shape, n_runs: way if n_runs > 1 else Way.TURNS)
    monkeypatch.setattr(_many, "train_cyclic_many", watched)
    monkeypatch.setattr(many.Shape, "runs_per_program", runs_per_program)
    estimators = mixed()
    found = list(fit_many(estimators, X, Y, randomnesses(len(estimators))))
    assert found == estimators
    for one, other in zip(found, fitted_alone(), strict=True):
        np.testing.assert_allclose(one.weights_, other.weights_, atol=1e-5 * np.abs(other.weights_).max())
        assert one.guarantee_ == other.guarantee_
        assert set(vars(one)) == set(vars(other))
    # Three networks of one shape; the two NoisyCGD linear models are another.
    expected = {Way.TURNS: []}.get(way, [2, 2] if runs_per_program == 2 else [3, 2])
    assert together == expected


def test_an_error_leaves_all_that_train_together_unfitted(monkeypatch):
    def failing(*arguments):
        raise NoisyCGDError("no luck")

    monkeypatch.setattr(_many, "fastest_way", lambda shape, n_runs: Way.PROGRAM)
    monkeypatch.setattr(_many, "train_cyclic_many", failing)
    estimators = mixed()
    with pytest.raises(NoisyCGDError, match="no luck"):
        list(fit_many(estimators, X, Y, randomnesses(len(estimators))))
    for estimator in estimators:
        assert not [name for name in vars(estimator) if name.endswith("_")]
