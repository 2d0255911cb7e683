"""Running trials: how many, in what manner, and which one is kept."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray

from noisycgd.accounting import PoissonTrials
from noisycgd.accounting.trials import Trials
from noisycgd.estimators._base import PrivateEstimator
from noisycgd.estimators._many import fit_many
from noisycgd.training import Randomness
from noisycgd.tuning.budget import Budget
from noisycgd.tuning.candidates import Candidates, drawn_seed

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Trial:
    """One trial, ready to run anywhere: nothing it draws depends on the trials beside it."""

    parameters: dict[str, Any]
    """The candidate, as it was given."""
    estimator: PrivateEstimator
    """Unfitted, with the candidate's parameters and its noise."""
    randomness: Randomness
    """Of this trial alone."""


def make_trial(estimator: PrivateEstimator, candidates: Candidates, budget: Budget, randomness: Randomness) -> Trial:
    """Draw a candidate and give it its noise; raises if the candidate breaks a requirement.

    Parameters
    ----------
    estimator : PrivateEstimator
        What all candidates have in common, see `with_fixed_seed`; it is left as it is.
    candidates : Candidates
        To draw from.
    budget : Budget
        What each is held to.
    randomness : Randomness
        Of this trial alone.
    """
    generator = randomness.generator()
    parameters = candidates.draw(generator)
    # Never a function of the trial's number, which a published seed would tell. A stated seed holds for all of them.
    seed = estimator.random_state
    if seed is None:
        seed = int(generator.integers(2**32))
    ready = budget.ready(unfitted_copy(estimator).set_params(random_state=seed), parameters)
    return Trial(parameters, ready, randomness)


def with_fixed_seed(estimator: PrivateEstimator) -> PrivateEstimator:
    """The estimator, or a copy with one draw from its generator: a draw per trial would tell how many there were."""
    if isinstance(estimator.random_state, np.random.RandomState):
        return unfitted_copy(estimator).set_params(random_state=drawn_seed(estimator.random_state))  # type: ignore[no-any-return]
    return estimator


def unfitted_copy(estimator: PrivateEstimator) -> PrivateEstimator:
    """A copy that shares the parameters' values, where `sklearn.base.clone` copies these too."""
    return type(estimator)(**estimator.get_params(deep=False))


def draw_number(law: Trials, generator: np.random.Generator) -> int:
    """Draw K, the secret number of trials.

    Parameters
    ----------
    law : PoissonTrials or NegativeBinomialTrials
        The latter by inversion, which takes K steps: fewer than the trials that follow.
    generator : numpy Generator
        From the operating system, see `noisycgd.training.noise`.
    """
    if isinstance(law, PoissonTrials):
        return int(generator.poisson(law.mean))
    again, shape = 1.0 - law.stop, law.shape
    if again == 0.0:
        return 1
    # P(K = k + 1) / P(K = k) = (1 - stop) (k + shape) / (k + 1), from P(K = 1) on (see `NegativeBinomialTrials`).
    log_stop = float(np.log(law.stop))
    chance = again / -log_stop if shape == 0.0 else again * shape / float(np.expm1(-shape * log_stop))
    left, k = float(generator.random()), 1
    while left >= chance and chance > 0.0:
        left -= chance
        chance *= again * (k + shape) / (k + 1)
        k += 1
    return k


def run_trials(
    trials: Sequence[Trial], X: NDArray[Any], y: NDArray[Any], *, n_jobs: int | None = None
) -> Iterator[PrivateEstimator]:
    """Fit each trial on the same records and yield the fitted estimators in the order of the trials.

    Parameters
    ----------
    trials : sequence of Trial
        Each has its own noise and permutation, so that the results are the same however they are run.
    X, y : ndarrays of shape (n, d) and (n,)
        Records to train on.
    n_jobs : int or None
        As in joblib, whose active backend runs them; None is this process, unless a joblib context says more. There,
        trials of equal shape are trained together where that is faster.
    """
    if joblib.effective_n_jobs(n_jobs) == 1 or len(trials) < 2:
        yield from fit_many([trial.estimator for trial in trials], X, y, [trial.randomness for trial in trials])
        return
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator")
    yield from parallel(joblib.delayed(run_trial)(trial, X, y) for trial in trials)


def run_trial(trial: Trial, X: NDArray[Any], y: NDArray[Any]) -> PrivateEstimator:
    """Fit one trial."""
    # Filters of warnings belong to a process. In a thread of the search's own, the search has seen to them.
    worker = threading.current_thread() is threading.main_thread()
    with unwarned() if worker else contextlib.nullcontext():
        return trial.estimator._fit(X, y, trial.randomness)


_silence = threading.Lock()
_silent: list[warnings.catch_warnings[None]] = []
_searches = 0


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Show no warning: one that comes once in each trial tells how many there are, or of a model that is dropped.

    Filters belong to the process. Of searches in several threads each one sets its own, and the last puts all back.
    """
    global _searches
    counted = False
    try:
        with _silence:
            _searches, counted = _searches + 1, True
            if _searches == 1:
                _silent.append(warnings.catch_warnings())
                _silent[0].__enter__()
            warnings.simplefilter("ignore")
        yield
    finally:
        if counted:
            with _silence:
                _searches -= 1
                if _searches == 0:
                    _silent.pop().__exit__(None, None, None)


def best_of(outcomes: Iterable[T], score: Callable[[T], float]) -> T | None:
    """The outcome of the largest score, the first of several, None of none.

    Keeping the first of equals is no more than a random choice among them, since trials are exchangeable.
    """
    best: T | None = None
    highest = -np.inf
    for outcome in outcomes:
        value = score(outcome)
        if best is None or value > highest:
            best, highest = outcome, value
    return best


@contextlib.contextmanager
def trial_progress(*, enabled: bool) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each trial, which counts them on a terminal and leaves nothing there.

    It shows how many trials have run, never of how many: their number is secret, and only the operator may watch.
    """
    if not enabled:
        yield lambda: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    done = 0
    with console.status("trial 1") as status:

        def advance() -> None:
            nonlocal done
            done += 1
            status.update(f"trial {done + 1}")

        yield advance
