import threading
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from noisycgd import LinearClassifier
from noisycgd.accounting import NegativeBinomialTrials, PoissonTrials
from noisycgd.planning import plan_selection
from noisycgd.training.noise import predictable_randomness, system_randomness
from noisycgd.tuning.budget import Budget
from noisycgd.tuning.candidates import Candidates, drawn_seed
from noisycgd.tuning.trials import (
    Trial,
    best_of,
    draw_number,
    make_trial,
    run_trial,
    run_trials,
    trial_progress,
    unwarned,
    with_fixed_seed,
)

LEVEL = 1e-6  # error probability of each statistical test under fresh randomness


def masses(law, count):
    """P(K = 1 ... count), by the definition."""
    k = np.arange(1, count + 1)
    weights = np.cumprod([1.0, *[(j + law.shape) / (j + 1) for j in range(1, count)]]) * (1 - law.stop) ** k
    return weights / weights.sum()


class TestNumber:
    @pytest.mark.parametrize(
        "law",
        [
            NegativeBinomialTrials.from_mean(1.0, 4.0),
            NegativeBinomialTrials.from_mean(0.0, 4.0),
            NegativeBinomialTrials.from_mean(-0.5, 4.0),
            NegativeBinomialTrials.from_mean(3.0, 4.0),
        ],
    )
    def test_negative_binomial(self, law):
        rng = np.random.default_rng(11)
        drawn = np.array([draw_number(law, rng) for _ in range(4000)])
        assert drawn.min() == 1
        last = 12
        expected = masses(law, 400)
        observed = np.bincount(np.minimum(drawn, last), minlength=last + 1)[1:]
        expected = np.append(expected[: last - 1], expected[last - 1 :].sum())
        assert stats.chisquare(observed, 4000 * expected / expected.sum()).pvalue > LEVEL
        # The negative control: the law with another mean.
        other = masses(NegativeBinomialTrials.from_mean(law.shape, 6.0), 400)
        other = np.append(other[: last - 1], other[last - 1 :].sum())
        assert stats.chisquare(observed, 4000 * other / other.sum()).pvalue < LEVEL

    def test_one_trial(self):
        rng = np.random.default_rng(0)
        assert {draw_number(NegativeBinomialTrials(1.0, 1.0), rng) for _ in range(20)} == {1}

    def test_poisson_may_be_none(self):
        rng = np.random.default_rng(0)
        assert {draw_number(PoissonTrials(0.5), rng) for _ in range(100)} >= {0, 1, 2}


class TestBest:
    def test_keeps_the_first_of_the_largest(self):
        assert best_of(["bb", "c", "aa"], len) == "bb"
        assert best_of([], len) is None
        assert best_of([-5.0, -3.0], lambda v: v) == -3.0

    def test_holds_one_outcome_at_a_time(self):
        alive = []

        class Outcome:
            def __init__(self, value):
                self.value = value
                alive.append(self)

            def __del__(self):
                dropped.append(self.value)

        dropped = []

        def outcomes():
            for value in (1, 3, 2, 0):
                outcome = Outcome(value)
                alive.clear()
                yield outcome
                del outcome

        kept = best_of(outcomes(), lambda o: o.value)
        assert kept.value == 3
        assert sorted(dropped) == [0, 1, 2]


X = np.random.default_rng(1).standard_normal((40, 3))
Y = np.arange(40) % 2


def trials():
    with predictable_randomness(5):
        source = system_randomness()
        models = [LinearClassifier(epochs=e, noise_multiplier=2.0, random_state=0) for e in (1, 2, 1)]
        return [Trial({}, model, source.spawn(t)) for t, model in enumerate(models)]


def weights(**how):
    return [model.weights_ for model in run_trials(trials(), X, Y, **how)]


class TestMakingATrial:
    BUDGET = Budget(plan_selection(mean_trials=3, epsilon=4.0, delta=1e-3), 40, 3, {"classes": (0, 1)})

    def made(self, model, randomness):
        return make_trial(model, Candidates({"epochs": [1, 2]}, model), self.BUDGET, randomness)

    def test_it_has_a_candidate_its_noise_and_the_facts(self):
        model = LinearClassifier(bias=0.5)
        before = model.get_params()
        trial = self.made(model, system_randomness())
        assert trial.parameters in ({"epochs": 1}, {"epochs": 2})
        ready = trial.estimator.get_params()
        assert {name: ready[name] for name in ("bias", "epochs")} == {"bias": 0.5, **trial.parameters}
        assert ready["mu"] == self.BUDGET.plan.mu
        assert list(ready["classes"]) == [0, 1]
        assert model.get_params() == before

    def test_a_seed_is_of_the_trial_unless_it_is_stated(self):
        source = system_randomness()
        model = LinearClassifier()
        assert len({self.made(model, source.spawn(t)).estimator.random_state for t in range(4)}) == 4
        model = LinearClassifier(random_state=7)
        assert {self.made(model, source.spawn(t)).estimator.random_state for t in range(4)} == {7}

    def test_a_shared_generator_is_drawn_from_once(self):
        state, same = np.random.RandomState(3), np.random.RandomState(3)
        model = LinearClassifier(random_state=state)
        fixed = with_fixed_seed(model)
        assert isinstance(fixed.random_state, int)
        assert model.random_state is state
        source = system_randomness()
        assert {self.made(fixed, source.spawn(t)).estimator.random_state for t in range(3)} == {fixed.random_state}
        assert drawn_seed(same) == fixed.random_state
        assert state.randint(2**31) == same.randint(2**31)
        plain = LinearClassifier(random_state=7)
        assert with_fixed_seed(plain) is plain


class TestRunners:
    def test_each_trial_has_its_own_noise(self):
        first, _, third = weights()
        assert not np.array_equal(first, third)

    def test_the_order_of_running_does_not_matter(self):
        backwards = [model.weights_ for model in run_trials(trials()[::-1], X, Y)][::-1]
        np.testing.assert_array_equal(backwards, weights())

    @pytest.mark.parametrize("backend", ["threading", "loky"])
    def test_side_by_side_gives_the_same(self, backend):
        import joblib

        with joblib.parallel_config(backend=backend):
            found = weights(n_jobs=2)
        np.testing.assert_allclose(found, weights(), atol=1e-5)

    def test_a_joblib_context_is_followed(self, monkeypatch):
        import joblib

        made = []
        monkeypatch.setattr(joblib, "Parallel", lambda **how: made.append(how) or joblib.parallel.Parallel(**how))
        with joblib.parallel_config(backend="threading", n_jobs=2):
            weights()
        assert len(made) == 1
        weights()
        assert len(made) == 1

    def test_a_trial_in_another_process_warns_of_nothing(self):
        model = LinearClassifier(epochs=1, delta=0.5, classes=[0, 1])
        trial = Trial({}, model, system_randomness())
        with pytest.warns(UserWarning, match="delta"):
            clone(model).fit(X, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run_trial(trial, X, Y)

    def test_a_thread_leaves_the_filters_of_warnings_alone(self):
        trial = Trial({}, LinearClassifier(epochs=1), system_randomness())
        before, seen = list(warnings.filters), []
        trial.estimator._fit = lambda *_: seen.append(list(warnings.filters))
        thread = threading.Thread(target=run_trial, args=(trial, X, Y))
        thread.start()
        thread.join()
        assert seen == [before]


def test_searches_in_threads_leave_the_filters_of_warnings_alone():
    before = list(warnings.filters)
    inside, leave = threading.Barrier(2), [threading.Event(), threading.Event()]
    seen = []

    def search(leave):
        with unwarned():
            inside.wait()
            leave.wait()
            seen.append(warnings.filters[0][0])

    threads = [threading.Thread(target=search, args=(event,)) for event in leave]
    for thread in threads:
        thread.start()
    # A search of its own in between, whose thread shows every warning, shows none.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with unwarned():
            warnings.warn("one per trial", stacklevel=1)
    assert told == []
    # The first to enter leaves first: by itself it would put back its filters, and the second those of the first.
    for event, thread in zip(leave, threads, strict=True):
        event.set()
        thread.join()
    assert seen == ["ignore", "ignore"]
    assert warnings.filters == before


def test_progress_is_silent_without_a_terminal(capsys):
    for enabled in (True, False):
        with trial_progress(enabled=enabled) as advance:
            advance()
    assert capsys.readouterr() == ("", "")
