"""`PrivateSelection`: hyperparameter tuning whose guarantee covers every trial (THEORY section 4; paper, appendix)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from numbers import Integral
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from noisycgd._validation import DataError, check_real, message, refuse
from noisycgd.estimators._base import PrivateEstimator, check_flag
from noisycgd.estimators._company import warn_of_company
from noisycgd.estimators._reading import one_column, read_records, read_rows
from noisycgd.planning import plan_selection
from noisycgd.planning.settings import warn_of_delta
from noisycgd.training import Randomness, system_randomness
from noisycgd.training.watching import is_watched
from noisycgd.tuning.budget import Budget, check_tunable, may_sample
from noisycgd.tuning.candidates import Candidates
from noisycgd.tuning.scores import Score, private_score, public_score
from noisycgd.tuning.statements import state_selection
from noisycgd.tuning.trials import (
    Trial,
    best_of,
    draw_number,
    make_trial,
    run_trials,
    trial_progress,
    unfitted_copy,
    unwarned,
    with_fixed_seed,
)

F = TypeVar("F", bound=Callable[..., Any])


def _delegated(method: F) -> F:
    """Let a method exist where the estimator has it."""
    name = method.__name__
    return cast(F, available_if(lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name))(method))


class PrivateSelection(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Train a secret random number of candidates privately and release only the best model.

    The guarantee covers the whole search: every trial, its score, and the choice. Trials get equal noise, calibrated so
    that the best of them meets epsilon and delta.

    Parameters
    ----------
    estimator : estimator
        One of this package's, its privacy parameters left at their defaults.
    candidates : dict or list of dict
        Parameter names to lists (a grid) or to distributions, as in scikit-learn. They must be chosen without looking
        at the records. `learning_rate_fraction`, in (0, 1], is a learning rate in units of 2 / (beta + l2), the largest
        with which every step contracts.
    mean_trials : float, default 20
        Mean number of trials. The number itself is random and secret; fewer on average cost less privacy.
    law : {"poisson", "geometric"}, default "poisson"
        Law of that number. A Poisson number varies less and may be 0, with probability e^-mean: the released model is
        then *untrained*. A geometric number is at least 1.
    epsilon, delta : float, default 1.0 and 1e-5
        The target for the whole search; delta should stay below 1/n.
    scoring : str, callable or None, default None
        Scorer of scikit-learn, for public scoring data; None is the estimator's own score.
    holdout : float, default 0.1
        Share of the records that only score the trials, where no public scoring data are given: by accuracy with
        Gaussian noise, at no further cost in epsilon. For classifiers.
    n_jobs : int or None, default None
        Trials side by side, through joblib and its active backend; processes may read the records from temporary files.
    verbose : bool, default False
        Count the trials on a terminal. Their number is secret: whoever watches the terminal, or the clock, learns
        something of it, and must be one who is trusted with the records.

    Attributes
    ----------
    best_estimator_ : estimator
        The released model; its `guarantee_` is that of the selection.
    best_params_ : dict
        Its candidate.
    guarantee_ : Guarantee
        What is promised of the whole search.
    untrained_ : bool
        Whether no trial ran.
    classes_ : ndarray of shape (q,)
        Class labels, of a classifier.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had any.

    Notes
    -----
    THEORY section 4. A trial that diverges ends the search with an error: an outcome that beats all others, to the
    analysis. No score, no number of trials and no other model is kept, and there is no `cv_results_`: each
    would be a release that is not accounted for. With DP-SGD among the candidates the total rests on the profile bound
    alone, which asks for more noise; see `noisycgd.planning.plan_selection`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from noisycgd import LinearClassifier
    >>> from noisycgd.tuning import PrivateSelection
    >>> X, y = load_digits(return_X_y=True)
    >>> search = PrivateSelection(LinearClassifier(epochs=5, classes=range(10)), {"bias": [0.0, 1.0]}, epsilon=8,
    ...                           delta=1e-4, mean_trials=3, law="geometric").fit(X, y)
    >>> search.guarantee_.epsilon <= 8
    True
    """

    def __init__(
        self,
        estimator: Any,
        candidates: Any,
        *,
        mean_trials: float = 20,
        law: str = "poisson",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        scoring: Any = None,
        holdout: float = 0.1,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.mean_trials = mean_trials
        self.law = law
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.holdout = holdout
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, X_public: Any = None, y_public: Any = None) -> Self:
        """Run the search and keep the best model.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Private records.
        y : array-like of shape (n,)
            Their labels or values.
        X_public, y_public : array-likes of shape (n', d) and (n',), optional
            Public data that score the trials; all private records are then trained on.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, ParameterTypeError, UnprovenGuaranteeError
            If a parameter breaks its requirement, or a candidate a condition of the guarantee: before any trial runs.
        ValueError, TypeError
            If the data cannot be used.

        However it ends early, no model is left and the object is unfitted.
        """
        warn_of_company()
        self._unfit()
        check_flag("verbose", self.verbose)
        if is_watched():
            refuse("watched_iterates", "around fits of single estimators", "PrivateSelection", "Watch one candidate.")
        jobs = self.n_jobs
        if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, Integral) or jobs == 0):
            refuse("n_jobs", "None or an integer other than 0", jobs, "1 runs trial after trial, -1 on all cores.")
        try:
            fitted = self._selected(X, y, X_public, y_public)
        except BaseException as error:
            _forget_frames(error)
            raise
        for name, value in fitted.items():
            setattr(self, name, value)
        return self

    def _unfit(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

    def _selected(self, X: Any, y: Any, X_public: Any, y_public: Any) -> dict[str, Any]:
        estimator = with_fixed_seed(check_tunable(self.estimator))
        candidates = Candidates(self.candidates, estimator)
        plan = plan_selection(
            law=self.law,
            mean_trials=self.mean_trials,
            epsilon=self.epsilon,
            delta=self.delta,
            sampled=may_sample(estimator, candidates),
        )
        public = self._check_public(X_public, y_public)
        reader = unfitted_copy(estimator)
        rows, targets = read_records(reader, X, y)
        # What a fit would read off its records is read once, off all of them, and listed.
        encoded = reader._encode_target(targets)
        targets = one_column(targets)
        facts = {name.rstrip("_"): value for name, value in encoded.attributes.items()}
        randomness = system_randomness()
        kept, held = self._split(len(rows), public, randomness)
        if public:
            _check_other_records(X, X_public, rows, read_rows(reader, X_public))
            score = public_score(reader, X_public, y_public, self.scoring)
        else:
            score = private_score(plan.mu, rows[held], targets[held])
        budget = Budget(plan, len(kept), rows.shape[1], facts)
        warn_of_delta(self.delta, len(kept), stacklevel=4)
        with unwarned():
            chosen, model, untrained = self._best_trial(
                estimator, candidates, budget, rows[kept], targets[kept], score, randomness
            )
        model.guarantee_ = state_selection(
            model.guarantee_,
            plan,
            secret=randomness.secret,
            n_scored=len(held),
            untrained=untrained,
            assumed_public=encoded.assumed_public,
            inferred=encoded.inferred,
        )
        names = {n: getattr(reader, n) for n in ("n_features_in_", "feature_names_in_") if hasattr(reader, n)}
        for name, value in names.items():
            setattr(model, name, value)
        return {
            "best_estimator_": model,
            "best_params_": dict(chosen.parameters),
            # Held here too: whoever fits `best_estimator_` again changes that model's statement, not the search's.
            "guarantee_": model.guarantee_,
            **({"classes_": model.classes_} if hasattr(model, "classes_") else {}),
            "untrained_": untrained,
            **names,
        }

    def _best_trial(
        self,
        estimator: PrivateEstimator,
        candidates: Candidates,
        budget: Budget,
        X: NDArray[Any],
        y: NDArray[Any],
        score: Score,
        randomness: Randomness,
    ) -> tuple[Trial, PrivateEstimator, bool]:
        """The trial of the best score, its model, and whether that is untrained; the others are gone."""
        if candidates.is_grid:
            for parameters in candidates.grid():
                budget.ready(estimator, parameters)
        # K has a generator of its own, and so has each trial: a published candidate or seed says nothing of the others.
        number = draw_number(budget.plan.trials, randomness.generator())
        # One more for the model without a trial; all are checked before the first one runs.
        trials = [make_trial(estimator, candidates, budget, randomness.spawn(t)) for t in range(max(number, 1))]
        if number == 0:
            return trials[0], trials[0].estimator._fit(X, y, None), True
        best = best_of(self._outcomes(trials, X, y), score)
        assert best is not None
        return *best, False

    def _outcomes(
        self, trials: list[Trial], X: NDArray[Any], y: NDArray[Any]
    ) -> Iterator[tuple[Trial, PrivateEstimator]]:
        with trial_progress(enabled=self.verbose) as advance:
            for trial, model in zip(trials, run_trials(trials, X, y, n_jobs=self.n_jobs), strict=True):
                yield trial, model
                advance()

    def _check_public(self, X_public: Any, y_public: Any) -> bool:
        if (X_public is None) != (y_public is None):
            refuse("X_public and y_public", "given together", "one of them")
        if X_public is not None:
            return True
        if self.scoring is not None:
            way_out = "A holdout of private records is scored by noised accuracy; give X_public and y_public."
            refuse("scoring", "None without public scoring data", self.scoring, way_out)
        if not is_classifier(self.estimator):
            way_out = "Only accuracy has a bounded sensitivity: give X_public and y_public (--public)."
            refuse("estimator", "a classifier without public scoring data", type(self.estimator).__name__, way_out)
        return False

    def _split(self, n: int, public: bool, randomness: Randomness) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Records to train on and records to score, each in the order given; a record is in one part only."""
        if public:
            return np.arange(n), np.arange(0)
        share = check_real("holdout", self.holdout, low=0, high=1, open_low=True, open_high=True)
        n_scored = max(1, round(share * n))
        if n_scored >= n:
            raise DataError(message("holdout", f"such that some of {n} records are left to train on", share))
        order = randomness.permutation(n)
        return np.sort(order[n_scored:]), np.sort(order[:n_scored])

    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @_delegated
    def predict(self, X: Any) -> Any:
        """Predictions of the released model."""
        return self._best().predict(X)

    @_delegated
    def predict_proba(self, X: Any) -> Any:
        """Class scores of the released model that sum to one."""
        return self._best().predict_proba(X)

    @_delegated
    def decision_function(self, X: Any) -> Any:
        """Logits of the released model."""
        return self._best().decision_function(X)

    @_delegated
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score of the released model; it is not private unless the data are public."""
        return float(self._best().score(X, y, sample_weight))

    def save(self, path: str | Path) -> Path:
        """Write the released model with the guarantee of the selection; see the estimator's `save`.

        `noisycgd.load_model` reads it back as the estimator itself. A model that was fitted again is refused.
        """
        if self._best().guarantee_.selection != self.guarantee_.selection:
            way_out = "Save it by itself; its own guarantee does not cover the search."
            refuse("best_estimator_", "the model of the search", "a model that was fitted again", way_out)
        written: Path = self._best().save(path)
        return written

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags, tags.input_tags = inner.target_tags, inner.input_tags
        tags.non_deterministic = True
        return tags


def _check_other_records(X: Any, X_public: Any, rows: NDArray[Any], public_rows: NDArray[Any]) -> None:
    """Refuse private records as public ones where that can be seen: the same table, or a part of the same array."""
    arrays = isinstance(X, np.ndarray) and isinstance(X_public, np.ndarray)
    if np.array_equal(rows, public_rows) or (arrays and np.shares_memory(X, X_public)):
        way_out = "Private records score the trials through holdout: leave X_public and y_public out."
        refuse("X_public", "other records than those of X", "the same ones", way_out)


def _forget_frames(error: BaseException | None) -> None:
    """Clear what an error's traceback would keep: the number of trials, their scores and models."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
