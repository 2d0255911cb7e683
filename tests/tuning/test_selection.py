import pickle
import traceback
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from noisycgd import (
    ConvexReLUClassifier,
    ConvexReLURegressor,
    LinearClassifier,
    PrivateSelection,
    ReLUNetworkClassifier,
    SSPClassifier,
    SSPRegressor,
    load_model,
)
from noisycgd._validation import DataError, ParameterError, ParameterTypeError, UnprovenGuaranteeError
from noisycgd.accounting import GaussianProfile, PoissonTrials, selection_bound
from noisycgd.report import plots
from noisycgd.training import predictable_randomness
from noisycgd.tuning import selection as module
from noisycgd.tuning import trials as trials_module
from noisycgd.types import Status

RNG = np.random.default_rng(7)
N, D = 120, 4
Y = np.arange(N) % 2
X = RNG.standard_normal((N, D)) + 3 * Y[:, None]
PUBLIC = X[:50] + 0.1, Y[:50]
MODEL = LinearClassifier(epochs=2, batch_size=20)
GRID = {"learning_rate_fraction": [0.2, 1.0], "epochs": [1, 3]}


def search(model=MODEL, grid=None, **changes):
    settings = {"mean_trials": 4, "law": "geometric", "epsilon": 6.0, "delta": 1e-3, **changes}
    return PrivateSelection(model, GRID if grid is None else grid, **settings)


@pytest.fixture
def number(monkeypatch):
    """Fix the secret number of trials, for tests of what is made of it."""

    def fix(value):
        monkeypatch.setattr(module, "draw_number", lambda law, generator: value)

    return fix


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(plots, "guarantee_png", lambda guarantee: b"not drawn")


class TestGuarantee:
    @pytest.mark.parametrize(("law", "mean"), [("poisson", 6.0), ("geometric", 4.0)])
    def test_total_is_the_accountant_s_bound_of_the_base(self, law, mean):
        found = search(law=law, mean_trials=mean).fit(X, Y).guarantee_
        chosen = found.selection
        trials = (
            PoissonTrials(mean)
            if law == "poisson"
            else module.plan_selection(law=law, mean_trials=mean, epsilon=6.0, delta=1e-3).trials
        )
        assert found.epsilon == selection_bound(GaussianProfile(chosen.base_mu), trials, 1e-3).epsilon
        assert 6.0 * (1 - 1e-6) <= found.epsilon <= 6.0
        assert chosen.base_epsilon == GaussianProfile(chosen.base_mu).epsilon(1e-3) < found.epsilon
        assert (found.status, found.mu, found.delta) == (Status.PROVED, None, 1e-3)

    def test_the_winner_was_trained_with_the_base_s_noise(self):
        fitted = search().fit(X, Y)
        assert fitted.best_estimator_.plan_.profile.mu == pytest.approx(fitted.guarantee_.selection.base_mu, rel=1e-9)
        assert fitted.best_estimator_.plan_.n_records == 108

    def test_text_says_what_was_done(self):
        text = str(search().fit(X, Y).guarantee_)
        assert "(108 to train on, 12 to score) is public" in text
        assert "best of a random number of trials, 4 on average (geometric)" in text
        assert "accuracy with Gaussian noise of standard deviation" in text
        assert "worst position" not in text
        assert "read off the training labels" in text

    def test_public_scores_are_declared(self):
        found = search().fit(X, Y, *PUBLIC).guarantee_
        assert "the scoring data were declared public" in found.assumed_public
        assert found.n_records == N
        assert found.selection.n_scored == 0
        assert "scored on      public data" in str(found)

    @pytest.mark.parametrize(
        ("model", "grid"),
        [
            (ConvexReLUClassifier(epochs=2, batch_order="given"), {"n_hyperplanes": [2, 4]}),
            (LinearClassifier(epochs=1), {"method": ["noisycgd", "dpsgd", "noisy-gd"]}),
            (ReLUNetworkClassifier(epochs=1, width=3), {"learning_rate": [0.5, 1.0]}),
            (SSPClassifier(), {"n_components": [4, 8]}),
        ],
        ids=lambda v: type(v).__name__,
    )
    def test_every_classifier(self, model, grid, tmp_path, undrawn):
        fitted = search(model, grid).fit(X, Y)
        assert fitted.guarantee_.status is Status.PROVED
        assert fitted.guarantee_.epsilon <= 6.0
        again = load_model(fitted.save(tmp_path / "model"))
        assert again.guarantee_ == fitted.guarantee_
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))

    @pytest.mark.parametrize("model", [ConvexReLURegressor(epochs=1, n_hyperplanes=2), SSPRegressor(n_components=4)])
    def test_regressors_on_public_data(self, model):
        fitted = search(model, {"bias": [0.0, 1.0]}).fit(X, 1.0 * Y, *PUBLIC)
        # Read off once, off all the records.
        assert fitted.best_estimator_.target_range_ == (0.0, 1.0)
        assert fitted.guarantee_.status is Status.CONDITIONAL
        assert is_regressor(fitted)
        assert not hasattr(fitted, "predict_proba")

    def test_distributions(self):
        fitted = search(grid={"l2": stats.loguniform(1e-4, 1.0), "epochs": stats.randint(1, 4)}).fit(X, Y)
        assert set(fitted.best_params_) == {"l2", "epochs"}
        assert fitted.best_estimator_.l2 == fitted.best_params_["l2"]


class TestUntrained:
    @pytest.mark.parametrize(
        "model",
        [
            LinearClassifier(epochs=1),
            LinearClassifier(epochs=1, features="fourier", n_components=4),
            ReLUNetworkClassifier(epochs=1, width=3),
            SSPClassifier(n_components=4),
        ],
        ids=lambda m: type(m).__name__,
    )
    def test_no_trial_releases_a_marked_start(self, number, undrawn, model, tmp_path):
        number(0)
        fitted = search(model, {"bias": [0.0]}, law="poisson").fit(X, Y)
        assert fitted.untrained_
        assert fitted.guarantee_.selection.untrained
        assert "untrained: no trial ran" in str(fitted.guarantee_)
        # No record entered it: other records give the same model, the negative control below does not.
        seeded = clone(fitted).set_params(estimator__random_state=0)
        one, two = (clone(seeded).fit(data, Y).decision_function(X) for data in (X, X[::-1] - 5))
        np.testing.assert_array_equal(one, two)
        assert load_model(fitted.save(tmp_path / "model")).guarantee_ == fitted.guarantee_
        number(1)
        trained = clone(seeded).fit(X, Y)
        assert not trained.untrained_
        assert (trained.decision_function(X) != one).any()

    def test_its_guarantee_is_that_of_every_other_outcome(self, number):
        numbers = []
        for k in (0, 2):
            number(k)
            found = search(law="poisson").fit(X, Y).guarantee_
            numbers.append((found.epsilon, found.delta, found.status, found.selection.base_mu))
        assert numbers[0] == numbers[1]

    def test_predictable_randomness_voids_it_too(self, number):
        number(0)
        with predictable_randomness(0):
            assert search(law="poisson").fit(X, Y).guarantee_.status is Status.VOID


class TestSecrets:
    def test_neither_scores_nor_the_number_of_trials_are_kept(self, number, monkeypatch, tmp_path, undrawn):
        number(7)
        scores = []
        kept = trials_module.best_of

        def spied(outcomes, score):
            return kept(outcomes, lambda outcome: scores.append(score(outcome)) or scores[-1])

        monkeypatch.setattr(module, "best_of", spied)
        fitted = search().fit(X, Y)
        assert len(scores) == 7
        assert not hasattr(fitted, "cv_results_")
        assert not hasattr(fitted, "best_score_")
        assert {name for name in vars(fitted) if name.endswith("_")} == {
            "best_estimator_",
            "best_params_",
            "classes_",
            "guarantee_",
            "n_features_in_",
            "untrained_",
        }
        path = fitted.save(tmp_path / "model")
        text = (path / "model.json").read_text() + repr(vars(fitted)) + repr(vars(fitted.best_estimator_))
        for score in scores:
            assert repr(float(score)) not in text
        # A second one of another length differs in nothing that tells it.
        number(2)
        again = clone(fitted).fit(X, Y)
        assert vars(again).keys() == vars(fitted).keys()
        assert vars(again.best_estimator_).keys() == vars(fitted.best_estimator_).keys()

    def test_public_seeds_do_not_tell_which_trial_won(self, number):
        # A seed made from a stated one and the trial's place would: all trials share a stated seed.
        number(3)
        fitted = search(LinearClassifier(epochs=1, random_state=5)).fit(X, Y)
        assert fitted.best_estimator_.random_state == 5
        seeds = {search().fit(X, Y).best_estimator_.random_state for _ in range(3)}
        assert len(seeds) == 3

    @pytest.mark.parametrize("public", [False, True])
    @pytest.mark.parametrize("model", [MODEL, SSPClassifier()], ids=["iterative", "ssp"])
    def test_warnings_do_not_count_the_trials(self, number, model, public):
        told = []
        for trials in (0, 1, 3):
            number(trials)
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                # A delta above 1/n, a column for labels and a scorer that warns of models: each is warned of in a fit.
                tuned = search(model, {"bias": [0.0, 1.0]}, delta=0.02, scoring="precision_macro" if public else None)
                tuned.fit(X, Y[:, None], *(PUBLIC if public else ()))
            told.append([str(warning.message).partition(" for ")[0] for warning in found])
        assert told[0] == told[1] == told[2]
        assert sum("delta must be at most 1/n" in text for text in told[0]) == 1
        assert sum("column-vector" in text for text in told[0]) == 1
        assert len(told[0]) == 2

    @pytest.mark.parametrize("where", ["estimator", "candidate"])
    def test_a_shared_generator_does_not_count_the_trials(self, number, where):
        left = []
        for trials in (1, 2, 5):
            number(trials)
            state = np.random.RandomState(3)
            model = LinearClassifier(epochs=1, random_state=state if where == "estimator" else None)
            grid = {"bias": [1.0]} if where == "estimator" else {"random_state": [state]}
            tuned = search(model, grid).fit(X, Y)
            left.append((state.randint(2**31), tuned.best_estimator_.random_state))
        assert isinstance(left[0][1], int)
        assert left[0] == left[1] == left[2]

    def test_nothing_is_printed(self, capfd):
        search(verbose=True).fit(X, Y)
        assert capfd.readouterr().out == ""

    def test_a_text_does_not_switch_the_bar_on(self):
        # It counts the trials, whose number is secret.
        with pytest.raises(ParameterTypeError, match=r"^verbose must be True or False; got 'no'"):
            search(verbose="no").fit(X, Y)

    def test_holdout_and_training_records_are_apart(self, monkeypatch):
        seen = {}
        run, score = module.run_trials, module.private_score

        def spied_run(trials, rows, targets, **how):
            seen["trained"] = rows
            return run(trials, rows, targets, **how)

        def spied_score(mu, rows, targets):
            seen["scored"] = rows
            return score(mu, rows, targets)

        monkeypatch.setattr(module, "run_trials", spied_run)
        monkeypatch.setattr(module, "private_score", spied_score)
        held = []
        for _ in range(2):
            search(holdout=0.25).fit(X, Y)
            assert (len(seen["trained"]), len(seen["scored"])) == (90, 30)
            assert {tuple(r) for r in seen["trained"]}.isdisjoint(tuple(r) for r in seen["scored"])
            held.append({tuple(r) for r in seen["scored"]})
        assert held[0] != held[1]


class TestRunners:
    def test_the_winner_does_not_depend_on_how_trials_ran(self, number):
        number(5)

        def won(**how):
            with predictable_randomness(3), joblib.parallel_config(backend="threading"):
                return search(LinearClassifier(epochs=1, random_state=0), **how).fit(X, Y)

        alone, together = won(), won(n_jobs=2)
        assert alone.best_params_ == together.best_params_
        np.testing.assert_allclose(alone.best_estimator_.weights_, together.best_estimator_.weights_, atol=1e-5)
        assert alone.guarantee_ == together.guarantee_
        assert alone.guarantee_.status is Status.VOID

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
    def test_an_interrupted_search_leaves_nothing(self, number, monkeypatch, error):
        fitted = search().fit(X, Y)
        number(3)
        run, done = LinearClassifier._prepare, []

        def interrupted(self, records, randomness):
            done.append(1)
            if len(done) == 2:
                raise error
            return run(self, records, randomness)

        monkeypatch.setattr(LinearClassifier, "_prepare", interrupted)
        with pytest.raises(error) as caught:
            fitted.fit(X, Y)
        assert len(done) == 2
        frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
        assert len(frames) > 4
        for frame in frames:
            # Those of the test and of `fit` are still at work.
            assert frame.f_code.co_name in ("test_an_interrupted_search_leaves_nothing", "fit") or not frame.f_locals
        assert not [name for name in vars(fitted) if name.endswith("_")]

    def test_the_best_wins(self, number):
        # Public scores are exact; with this seed both candidates are among the 8 trials.
        number(8)
        grid = {"bias": [0.0, 1.0]}
        for sign, best in ((1, 1.0), (-1, 0.0)):
            with predictable_randomness(1):
                fitted = search(grid=grid, scoring=lambda m, X, y: sign * m.bias).fit(X, Y, *PUBLIC)  # noqa: B023
            assert fitted.best_params_ == {"bias": best}


class TestRefusals:
    @pytest.fixture(autouse=True)
    def no_trial(self, monkeypatch):
        def ran(*_, **__):
            raise AssertionError("a trial ran")

        monkeypatch.setattr(module, "run_trials", ran)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"epsilon": 0}, ParameterError, "epsilon"),
            ({"delta": 2.0}, ParameterError, "delta"),
            ({"mean_trials": 0.5}, ParameterError, "mean_trials"),
            ({"law": "fixed"}, ParameterError, "law must be one of"),
            ({"n_jobs": 0}, ParameterError, "n_jobs must be None or an integer other than 0; got 0"),
            ({"n_jobs": True}, ParameterError, "n_jobs must be None or an integer other than 0; got True"),
            ({"n_jobs": "two"}, ParameterError, "n_jobs must be None or an integer other than 0; got 'two'"),
            ({"holdout": 0.0}, ParameterError, "holdout"),
            ({"holdout": 0.999}, DataError, "some of 120 records are left"),
            ({"scoring": "accuracy"}, ParameterError, "scoring must be None without public"),
            ({"model": LinearClassifier(epsilon=2.0)}, ParameterError, "epsilon of the estimator"),
            ({"model": LinearClassifier(noise_multiplier=2.0)}, ParameterError, "noise_multiplier of the estimator"),
            ({"model": "linear"}, ParameterTypeError, "estimator must be a private estimator"),
            ({"model": SSPRegressor(), "grid": {"bias": [0.0]}}, ParameterError, "a classifier without public"),
            ({"grid": {"epsilon": [1.0]}}, ParameterError, "other than privacy"),
            ({"grid": {"learning_rate": [0.1, 0.2, 50.0]}}, UnprovenGuaranteeError, "50.0.*no trial has run"),
            ({"grid": {"learning_rate": stats.uniform(50, 1)}}, UnprovenGuaranteeError, "no trial has run"),
        ],
    )
    def test_before_any_trial(self, changes, error, message):
        unfitted = search(**changes)
        with pytest.raises(error, match=message):
            unfitted.fit(X, Y)
        assert not [name for name in vars(unfitted) if name.endswith("_")]

    def test_public_data_come_in_pairs(self):
        with pytest.raises(ParameterError, match="given together"):
            search().fit(X, Y, PUBLIC[0])

    @pytest.mark.parametrize("part", [X, X[:50], X[::-1], X[3::2]])
    def test_private_records_are_no_public_ones(self, part):
        with pytest.raises(ParameterError, match=r"X_public must be other records than those of X.*through holdout"):
            search().fit(X, Y, part, Y[: len(part)])

    def test_a_copy_of_the_private_table_is_no_public_one(self):
        frame = pd.DataFrame(X)
        with pytest.raises(ParameterError, match="X_public must be other records than those of X"):
            search().fit(frame, Y, frame.copy(), Y)

    def test_public_data_have_the_same_columns(self):
        with pytest.raises(ValueError, match="features"):
            search().fit(X, Y, PUBLIC[0][:, :2], PUBLIC[1])


class TestScikitLearn:
    def test_parameters_clone_and_pickle(self):
        unfitted = search()
        copy = clone(unfitted).set_params(epsilon=3.0, estimator__epochs=5)
        assert (copy.epsilon, copy.estimator.epochs, unfitted.estimator.epochs) == (3.0, 5, 2)
        fitted = search().fit(X, Y)
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.guarantee_ == fitted.guarantee_
        assert not hasattr(clone(fitted), "best_estimator_")

    def test_methods_follow_the_estimator(self):
        unfitted = search()
        assert is_classifier(unfitted)
        assert hasattr(unfitted, "predict_proba")
        with pytest.raises(NotFittedError):
            unfitted.predict(X)
        fitted = unfitted.fit(X, Y)
        assert fitted.score(X, Y) == np.mean(fitted.predict(X) == Y)
        weights = np.arange(N)
        assert fitted.score(X, Y, sample_weight=weights) == np.average(fitted.predict(X) == Y, weights=weights)
        assert fitted.decision_function(X).shape == (N,)
        assert fitted.classes_.tolist() == [0, 1]

    def test_a_refit_of_the_model_does_not_lower_what_the_search_cost(self, tmp_path):
        fitted = search().fit(X, Y)
        stated = fitted.guarantee_
        fitted.best_estimator_.fit(X, Y)
        assert fitted.best_estimator_.guarantee_.epsilon < stated.epsilon
        assert fitted.guarantee_ is stated
        with pytest.raises(ParameterError, match="best_estimator_ must be the model of the search"):
            fitted.save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    def test_records_beside_each_other_in_memory_are_others(self):
        stated = clone(MODEL).set_params(classes=[0, 1])
        assert search(stated).fit(X[::2], Y[::2], X[1::2], Y[1::2]).guarantee_.status is Status.PROVED

    def test_names_of_columns_and_labels_of_words(self):
        words = np.array(["no", "yes"])[Y]
        frame = pd.DataFrame(X, columns=list("abcd"))
        fitted = search().fit(frame, words)
        assert fitted.feature_names_in_.tolist() == list("abcd")
        assert fitted.best_estimator_.feature_names_in_.tolist() == list("abcd")
        assert set(fitted.predict(frame)) <= {"no", "yes"}

    def test_cross_validation_of_a_search_is_no_search(self):
        assert np.isfinite(cross_val_score(search(), X, Y, cv=2)).all()

    def test_a_vast_budget_finds_the_good_rate(self, number):
        # Two clusters far apart; a rate of 1e-9 learns nothing, so that its accuracy is that of noise alone.
        number(12)
        grid = {"learning_rate_fraction": [1e-9, 1.0]}
        with predictable_randomness(0):
            model = LinearClassifier(epochs=30, bias=1.0, batch_size=20, margin=0)
            fitted = search(model, grid, epsilon=1e5).fit(X, Y)
        assert fitted.score(X, Y) > 0.9
