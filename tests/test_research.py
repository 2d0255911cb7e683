"""Watching shows the iterates that there are, changes none of them, and voids every guarantee."""

import threading

import jax
import numpy as np
import pytest

from noisycgd import (
    ConvexReLUClassifier,
    ConvexReLURegressor,
    LinearClassifier,
    PrivateSelection,
    ReLUNetworkClassifier,
    SSPClassifier,
    load_model,
)
from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.contrasts import to_logit_weights
from noisycgd.estimators._many import fit_many
from noisycgd.research import watched_iterates
from noisycgd.training import cyclic, poisson, predictable_randomness, system_randomness
from noisycgd.types import Status

N, D, EPOCHS = 60, 4, 5
Y = np.arange(N) % 3
X = np.random.default_rng(2).standard_normal((N, D)) + 3 * np.eye(D)[Y]
PUBLIC = {"epochs": EPOCHS, "random_state": 0}
ESTIMATORS = {
    "noisycgd": lambda: ConvexReLUClassifier(n_hyperplanes=4, classes=[0, 1, 2], **PUBLIC),
    "regressor": lambda: ConvexReLURegressor(n_hyperplanes=4, target_range=(0, 2), **PUBLIC),
    "dpsgd": lambda: LinearClassifier(method="dpsgd", batch_size=20, classes=[0, 1, 2], **PUBLIC),
    "noisy-gd": lambda: LinearClassifier(method="noisy-gd", classes=[0, 1, 2], **PUBLIC),
    "network": lambda: ReLUNetworkClassifier(width=5, batch_size=20, classes=[0, 1, 2], **PUBLIC),
}
EVERY = pytest.mark.parametrize("kind", list(ESTIMATORS))


def fit(kind, seed=1):
    with predictable_randomness(seed):
        return ESTIMATORS[kind]().fit(X, Y)


def watch(kind, every=1, seed=1):
    seen = {}
    with watched_iterates(lambda epoch, model: seen.update({epoch: model}), every):
        return fit(kind, seed), seen


def parameters(model):
    leaves = [model.weights_] if hasattr(model, "weights_") else model.parameters_
    return np.concatenate([leaf.ravel() for leaf in leaves])


@pytest.fixture
def iterates(monkeypatch):
    """Parameters after each epoch, as the loops hold them."""
    found = []

    def spied(run_epoch, leaves):
        def run(*arguments, **options):
            state = run_epoch(*arguments, **options)
            found.append([np.array(leaf) for leaf in leaves(state)])
            return state

        return run

    monkeypatch.setattr(cyclic, "run_epoch", spied(cyclic.run_epoch, lambda weights: [weights]))
    spied_poisson = spied(poisson.run_poisson_epoch, lambda state: jax.tree.leaves(state.parameters))
    monkeypatch.setattr(poisson, "run_poisson_epoch", spied_poisson)
    return found


@EVERY
def test_each_model_holds_the_iterate_of_its_epoch(kind, iterates):
    _, seen = watch(kind)
    assert list(seen) == [1, 2, 3, 4, 5]
    assert len(iterates) == EPOCHS
    if kind == "noisy-gd":
        # One step per epoch, and the mean of all is released.
        iterates = [[np.mean([leaves[0] for leaves in iterates[: e + 1]], axis=0)] for e in range(EPOCHS)]
    for leaves, model in zip(iterates, seen.values(), strict=True):
        if kind == "network":
            expected = np.concatenate([np.ravel(leaf) for leaf in leaves])
        else:
            basis = np.eye(1) if kind == "regressor" else cyclic.contrast_basis(model._make_loss(1.0, 1.0), 3)
            expected = to_logit_weights(leaves[0], basis).ravel()
        np.testing.assert_allclose(parameters(model), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@EVERY
def test_watching_changes_no_bit(kind):
    alone, (watched, seen) = fit(kind), watch(kind)
    np.testing.assert_array_equal(parameters(watched), parameters(alone))
    np.testing.assert_array_equal(parameters(seen[EPOCHS]), parameters(alone))
    np.testing.assert_array_equal(getattr(watched, "permutation_", None), getattr(alone, "permutation_", None))
    assert watched.plan_.epsilon == alone.plan_.epsilon
    # Negative controls: another seed, and another epoch.
    assert (parameters(fit(kind, seed=2)) != parameters(alone)).any()
    assert (parameters(seen[EPOCHS - 1]) != parameters(alone)).any()


@EVERY
def test_what_is_seen_is_a_fitted_model(kind):
    model, seen = watch(kind)
    for shown in seen.values():
        assert type(shown) is type(model)
        assert set(vars(shown)) == set(vars(model))
        assert shown.score(X, Y) <= 1
        assert shown.guarantee_ == model.guarantee_
    assert len({id(shown) for shown in (model, *seen.values())}) == EPOCHS + 1


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (100, [5])])
@pytest.mark.parametrize("kind", ["noisycgd", "dpsgd"])
def test_every_so_many_epochs_and_the_last_one_are_seen(kind, every, epochs):
    assert list(watch(kind, every)[1]) == epochs


@EVERY
def test_the_guarantee_is_void(kind, tmp_path):
    seen = []
    with watched_iterates(lambda epoch, model: seen.append(model), every=3):
        watched = ESTIMATORS[kind]().fit(X, Y)
    for model in (*seen, watched):
        assert model.guarantee_.status is Status.VOID
        assert any("watched the training" in reason for reason in model.guarantee_.reasons)
        assert "leaves" in model.guarantee_.conditions[-1].name
        assert "NOT so" in model.guarantee_.conditions[-1].enforced
    assert load_model(watched.save(tmp_path / "model")).guarantee_ == watched.guarantee_
    # What was only planned is still told.
    alone = ESTIMATORS[kind]().fit(X, Y)
    assert alone.guarantee_.status is Status.PROVED
    assert watched.plan_.epsilon == alone.guarantee_.epsilon


def test_a_model_without_iterates_is_void_too():
    with watched_iterates(lambda epoch, model: pytest.fail("there is none")):
        model = SSPClassifier(features="identity", classes=[0, 1, 2]).fit(X, Y)
    assert model.guarantee_.status is Status.VOID


@pytest.mark.parametrize("kind", ["noisycgd", "dpsgd"])
def test_nothing_is_called_and_nothing_is_copied_without_a_watch(kind, monkeypatch):
    seen, shown = [], []

    def counted(function):
        def call(*arguments):
            shown.append(arguments)
            return function(*arguments)

        return call

    monkeypatch.setattr("noisycgd.training.cyclic.to_logit_weights", counted(to_logit_weights))
    monkeypatch.setattr("noisycgd.estimators._gated.to_logit_weights", counted(to_logit_weights))
    monkeypatch.setattr("noisycgd.estimators._base.copy.copy", lambda model: pytest.fail("copied"))
    with watched_iterates(lambda epoch, model: seen.append(model)):
        pass
    model = fit(kind)
    assert (len(shown), seen) == (1, [])
    assert "watched" not in str(model.guarantee_)
    # Negative control: the same spies see a watch.
    with pytest.raises(pytest.fail.Exception, match="copied"):
        watch(kind)
    assert len(shown) > 1


def test_what_an_observer_does_to_a_model_does_not_reach_the_run():
    def spoil(epoch, model):
        model.weights_[:] = 0
        model.set_params(l2=3.0)
        del model.bounds_

    alone = fit("noisycgd")
    with watched_iterates(spoil):
        watched = fit("noisycgd")
    np.testing.assert_array_equal(watched.weights_, alone.weights_)
    assert watched.l2 == 0
    assert watched.score(X, Y) == alone.score(X, Y)


def test_fits_of_an_observer_are_its_own():
    seen = []

    def observe(epoch, model):
        seen.append(epoch)
        assert ESTIMATORS["dpsgd"]().fit(X, Y).guarantee_.status is Status.PROVED

    with watched_iterates(observe):
        ESTIMATORS["noisycgd"]().fit(X, Y)
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_an_observer_ends_the_fit_and_the_watch(error):
    def stop(epoch, model):
        raise error("stop")

    model = ESTIMATORS["noisycgd"]()
    with pytest.raises(error, match="stop"), watched_iterates(stop):
        model.fit(X, Y)
    assert not hasattr(model, "weights_")
    assert model.fit(X, Y).guarantee_.status is Status.PROVED


def test_a_watch_stays_in_its_thread():
    models = []
    with watched_iterates(lambda epoch, model: pytest.fail("another thread's")):
        thread = threading.Thread(target=lambda: models.append(ESTIMATORS["noisycgd"]().fit(X, Y)))
        thread.start()
        thread.join()
    assert models[0].guarantee_.status is Status.PROVED


def test_several_fits_at_once_are_watched_one_by_one():
    seen = []
    with predictable_randomness(4):
        source = system_randomness()
    estimators = [ESTIMATORS["noisycgd"]() for _ in range(3)]
    with watched_iterates(lambda epoch, model: seen.append(epoch), every=4):
        models = list(fit_many(estimators, X, Y, [source.spawn(t) for t in range(3)]))
    assert seen == 3 * [4, 5]
    assert {model.guarantee_.status for model in models} == {Status.VOID}


def test_a_selection_is_refused():
    search = PrivateSelection(LinearClassifier(epochs=2, classes=[0, 1, 2]), {"bias": [0.0, 1.0]})
    message = "watched_iterates must be around fits of single estimators; got 'PrivateSelection'"
    with pytest.raises(ParameterError, match=message), watched_iterates(lambda epoch, model: None):
        search.fit(X, Y)


def test_parameters_are_checked():
    with pytest.raises(ParameterTypeError, match="observer must be callable"), watched_iterates(3):
        pass
    for every in (0, -1):
        with pytest.raises(ParameterError, match="every must be an integer"), watched_iterates(print, every):
            pass
