import inspect
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

from noisycgd import ConvexReLUClassifier, ConvexReLURegressor, LinearClassifier
from noisycgd.estimators import _gated, load_model
from noisycgd.training import predictable_randomness
from noisycgd.types import Order, Status

N, D = 48, 5
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, D))
Y = np.arange(N) % 2
NAMES = list("abcde")
ESTIMATORS = {
    "relu": (ConvexReLUClassifier, {"n_hyperplanes": 4, "epochs": 2}),
    "linear": (LinearClassifier, {"epochs": 2}),
    "regressor": (ConvexReLURegressor, {"n_hyperplanes": 4, "epochs": 2}),
}
EVERY = pytest.mark.parametrize("kind", list(ESTIMATORS))


def make(kind="relu", **changes):
    cls, parameters = ESTIMATORS[kind]
    return cls(**{**parameters, **changes})


def fitted_attributes(estimator):
    return {name for name in vars(estimator) if name.endswith("_")}


def assert_unfitted(estimator):
    assert fitted_attributes(estimator) == set()
    with pytest.raises(NotFittedError):
        estimator.predict(X)


class TestGuarantee:
    @EVERY
    @pytest.mark.parametrize("epsilon", [0.3, 4.0])
    def test_meets_the_target_and_is_proved_by_default(self, kind, epsilon):
        g = make(kind, epsilon=epsilon).fit(X, Y).guarantee_
        assert epsilon * (1 - 1e-6) <= g.epsilon <= epsilon
        # The regressor reads its target's range off the records.
        status = Status.CONDITIONAL if kind == "regressor" else Status.PROVED
        assert (g.status, g.order, g.delta) == (status, Order.PERMUTED, 1e-5)
        assert (g.n_records, g.epochs, g.batch_size) == (N, 2, 28)

    @EVERY
    def test_does_not_depend_on_the_values_of_the_data(self, kind):
        public = {"target_range": (0, 1)} if kind == "regressor" else {"classes": [0, 1]}
        model = make(kind, **public)
        first = model.fit(X, Y).guarantee_
        permutation = model.permutation_
        assert model.fit(1e3 * np.abs(X) - 7, Y[::-1] // 2).guarantee_ == first
        assert not np.array_equal(model.permutation_, permutation)

    @EVERY
    def test_lists_inferred_facts_as_assumed_public(self, kind):
        public = {"target_range": (0, 1)} if kind == "regressor" else {"classes": [0, 1]}
        assert make(kind, **public).fit(X, Y).guarantee_.assumed_public == ()
        (fact,) = make(kind).fit(X, Y).guarantee_.assumed_public
        assert "read off the training" in fact

    @EVERY
    def test_a_given_order_costs_noise(self, kind):
        permuted, given = make(kind).fit(X, Y), make(kind, batch_order="given").fit(X, Y)
        assert given.permutation_ is None
        assert given.guarantee_.noise_multiplier > permuted.guarantee_.noise_multiplier
        assert given.guarantee_.order is Order.GIVEN
        assert sorted(permuted.permutation_) == list(range(N))

    def test_targets_in_place_of_epsilon(self):
        assert make(mu=0.5).fit(X, Y).guarantee_.mu == pytest.approx(0.5, rel=1e-6)
        assert make(epsilon=None, noise_multiplier=7.0).fit(X, Y).guarantee_.noise_multiplier == 7.0

    def test_the_noise_that_the_guarantee_states_is_added(self):
        # Zero rows have no gradient, so that the weights are noise alone. Two logits share one normal number, with
        # opposite signs and half its variance each, as their common shift is not trained. The scale of N such numbers
        # is within 4 standard deviations of its mean but for 6e-5.
        weights, model = [], make(schedule="constant", epochs=20, epsilon=1.0)
        for seed in range(8):
            with predictable_randomness(seed):
                weights.append(np.sqrt(2) * model.fit(np.zeros((N, D)), Y).weights_[:, ::2])
        weights, plan = np.array(weights), model.plan_
        expected = plan.learning_rates[0] * plan.noise_std * np.sqrt(plan.steps)
        tolerance = 4 * np.sqrt(1 / (2 * weights.size))
        assert weights.std() == pytest.approx(expected, rel=tolerance)
        assert weights.std() != pytest.approx(2 * expected, rel=tolerance)

    def test_predictable_noise_voids_it(self):
        with predictable_randomness(0):
            one, two = make(random_state=1).fit(X, Y), make(random_state=1).fit(X, Y)
        np.testing.assert_array_equal(one.weights_, two.weights_)
        assert one.guarantee_.status is Status.VOID
        assert make().fit(X, Y).guarantee_.status is Status.PROVED


class TestRandomState:
    @EVERY
    @pytest.mark.parametrize("seed", [0, 2**32 - 1, np.int64(5)])
    def test_seeds_the_hyperplanes_and_nothing_else(self, kind, seed):
        one, two = (make(kind, random_state=seed).fit(X, Y) for _ in range(2))
        np.testing.assert_array_equal(one.features_.hyperplanes, two.features_.hyperplanes)
        assert (one.weights_ != two.weights_).all()
        assert not np.array_equal(one.permutation_, two.permutation_)

    def test_without_one_hyperplanes_differ(self):
        one, two = make().fit(X, Y), make().fit(X, Y)
        assert (one.features_.hyperplanes != two.features_.hyperplanes).all()

    def test_a_generator_moves_on(self):
        model = make(random_state=np.random.RandomState(0))
        one = model.fit(X, Y).features_.hyperplanes
        assert (model.fit(X, Y).features_.hyperplanes != one).all()

    def test_the_global_seed_changes_nothing(self):
        np.random.seed(0)  # noqa: NPY002
        one = make().fit(X, Y)
        np.random.seed(0)  # noqa: NPY002
        two = make().fit(X, Y)
        assert (one.features_.hyperplanes != two.features_.hyperplanes).all()
        assert (one.weights_ != two.weights_).all()


def arrays_in(value, path="", seen=None):
    """Every array that can be reached from `value` through attributes, containers and closures."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | int | float | type | None):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray) or hasattr(value, "__jax_array__") or type(value).__module__.startswith("jax"):
        yield path, np.asarray(value)
        return
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        if value and all(isinstance(v, int | float) for v in value):
            yield path, np.asarray(list(value))
            return
        children = enumerate(value)
    else:
        slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
        children = [*getattr(value, "__dict__", {}).items(), *((s, getattr(value, s, None)) for s in slots)]
        children += [(c.cell_contents, c.cell_contents) for c in getattr(value, "__closure__", None) or ()]
    for name, child in children:
        yield from arrays_in(child, f"{path}.{name}", seen)


KEPT = {
    "weights_",
    "features_",
    "bounds_",
    "row_features_",
    "plan_",
    "permutation_",
    "guarantee_",
    "n_features_in_",
    "feature_names_in_",
    "classes_",
    "target_range_",
    "fitted_parameters_",
}


class TestWhatIsKept:
    @EVERY
    @pytest.mark.parametrize("n", [N, 7 * N])
    def test_no_record_gradient_key_or_loss(self, kind, n):
        # Values that occur nowhere by chance, and a number of records that no public array has as a length.
        data = np.full((n, D), 1234.5678) + np.arange(n * D).reshape(n, D)
        target = np.arange(n) % 2
        model = make(kind, batch_size=16, column_bounds=(0.0, 1e4)).fit(pd.DataFrame(data, columns=NAMES), target)
        assert fitted_attributes(model) <= KEPT
        bounded = model.bounds_(data)
        found = dict(arrays_in(vars(model)))
        assert {".weights_", ".features_.hyperplanes", ".plan_.learning_rates"} <= found.keys()
        for path, array in found.items():
            assert path == ".permutation_" or array.size < n * D or array.shape == (model.plan_.steps,), path
            assert array.dtype.kind in "biufO", path
            if array.dtype.kind == "f":
                # One number may coincide by chance (1e-3), three may not (1e-10); a record has five.
                for secret in (data, bounded):
                    assert np.isin(array, secret).sum() < 3, path

    def test_the_search_finds_what_must_not_be_there(self):
        model = make().fit(X, Y)
        model.plan_.__dict__["leak"] = {"inner": [X]}
        assert any(np.isin(array, X).all() for path, array in arrays_in(vars(model)) if path.endswith("inner.0"))

    @EVERY
    def test_there_is_no_way_to_watch_or_continue_a_fit(self, kind):
        cls = ESTIMATORS[kind][0]
        for name in ("partial_fit", "warm_start", "loss_curve_", "n_iter_", "callbacks", "validation_fraction"):
            assert not hasattr(cls, name)
            assert name not in inspect.signature(cls).parameters

    def test_parameters_stay_as_they_were_in_fit(self, tmp_path):
        schedule, classes = [Fraction(1), 0.5], [0, 1]
        model = make(schedule=schedule, classes=classes, epsilon=Fraction(7, 2)).fit(X, Y)
        schedule[0], classes[1:] = 7.0, [1, 99]
        kept = model.fitted_parameters_
        assert (kept["schedule"], kept["classes"], kept["epsilon"]) == ([1.0, 0.5], [0, 1], 3.5)
        loaded = load_model(model.save(tmp_path / "m"))
        assert (loaded.schedule, loaded.classes, loaded.epsilon) == ([1.0, 0.5], [0, 1], 3.5)
        assert loaded.guarantee_ == model.guarantee_

    def test_a_second_fit_starts_anew(self):
        # One model is trained for long, the next must not profit from it: with the same noise both agree.
        with predictable_randomness(4):
            fresh = make(random_state=0).fit(X, Y)
            used = make(random_state=0, epochs=30).fit(X, 1 - Y)
            used.set_params(epochs=2).fit(X, Y)
        np.testing.assert_array_equal(fresh.weights_, used.weights_)


class TestTables:
    def test_pandas_names_are_checked_at_predict(self):
        frame = pd.DataFrame(X, columns=NAMES)
        model = make().fit(frame, pd.Series(Y))
        assert model.feature_names_in_.tolist() == NAMES
        assert model.predict(frame).shape == (N,)
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            model.predict(frame[NAMES[::-1]])
        with pytest.raises(ValueError, match="The feature names should match"):
            model.predict(frame.rename(columns={"a": "z"}))

    @pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
    @EVERY
    def test_every_table_is_its_matrix(self, kind, table):
        columns = {name: X[:, i] for i, name in enumerate(NAMES)}
        series = {pd.DataFrame: pd.Series, pl.DataFrame: pl.Series, pa.table: pa.array}[table]
        with predictable_randomness(2):
            one = make(kind, random_state=3).fit(table(columns), series(Y))
            two = make(kind, random_state=3).fit(X, Y)
        np.testing.assert_array_equal(one.weights_, two.weights_)
        np.testing.assert_array_equal(one.predict(table(columns)), two.predict(X))
        assert one.score(table(columns), series(Y)) == two.score(X, Y)
        assert one.feature_names_in_.tolist() == NAMES
        reordered = {name: columns[name] for name in NAMES[::-1]}
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            one.predict(table(reordered))

    def test_lists_integers_and_other_precisions(self):
        for data in (X.tolist(), (100 * X).astype(np.int16), X.astype(np.float32), X > 0, np.asfortranarray(X)):
            assert make().fit(data, Y.tolist()).predict(data).shape == (N,)

    def test_a_wrong_number_of_columns_at_predict(self):
        with pytest.raises(ValueError, match="X has 4 features, but ConvexReLUClassifier is expecting 5 features"):
            make().fit(X, Y).predict(X[:, :4])

    def test_zero_rows_are_valid(self):
        data = X.copy()
        data[::3] = 0
        for changes in ({}, {"loss": "envelope_softmax"}, {"row_bounding": "clip"}, {"center_rows": True}):
            model = make(**changes).fit(data, Y)
            assert np.isfinite(model.weights_).all()
            assert model.decision_function(np.zeros((2, D))).tolist() == [0, 0]
        make().fit(np.zeros((N, D)), Y)

    def test_predictions_are_the_same_in_any_number_of_rows(self):
        model = make().fit(X, Y)
        many = np.tile(X, (200, 1))
        np.testing.assert_allclose(
            model.decision_function(many)[:N],
            model.decision_function(X),
            rtol=1e-4,
            atol=1e-4 * abs(model.weights_).max(),
        )


class TestInterruption:
    @EVERY
    @pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
    def test_in_the_middle_of_training(self, kind, error, monkeypatch):
        model = make(kind, epochs=5).fit(X, Y)

        class Interrupted:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                return False

            def __call__(self, done):
                if done == 3:
                    raise error

        monkeypatch.setattr(_gated, "epoch_progress", lambda epochs, enabled: Interrupted())
        with pytest.raises(error):
            model.fit(X, Y)
        assert_unfitted(model)

    def test_while_attributes_are_set(self, monkeypatch):
        model = make()

        def interrupted(self, name, value):
            object.__setattr__(self, name, value)
            if name == "plan_":
                raise KeyboardInterrupt

        monkeypatch.setattr(ConvexReLUClassifier, "__setattr__", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        assert_unfitted(model)

    def test_before_the_first_fit_nothing_is_predicted_or_saved(self, tmp_path):
        for action in (lambda m: m.predict(X), lambda m: m.score(X, Y), lambda m: m.save(tmp_path / "model")):
            with pytest.raises(NotFittedError):
                action(make())
        assert not list(tmp_path.iterdir())


class TestDocumentation:
    @EVERY
    def test_describes_every_parameter_and_attribute_once(self, kind):
        cls = ESTIMATORS[kind][0]
        doc = inspect.getdoc(cls)
        assert "$" not in doc
        model = cls(epochs=1).fit(pd.DataFrame(X, columns=NAMES), Y)
        for name in fitted_attributes(model):
            assert sum(name in line.partition(" : ")[0].split(", ") for line in doc.splitlines()) == 1, name


def test_verbose_changes_nothing_but_the_bar():
    with predictable_randomness(1):
        quiet, loud = make(random_state=0).fit(X, Y), make(random_state=0, verbose=True).fit(X, Y)
    np.testing.assert_array_equal(quiet.weights_, loud.weights_)
