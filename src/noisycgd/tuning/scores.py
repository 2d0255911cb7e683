"""What tells trials apart: a score on public data, or a noised accuracy on private records that were held out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import check_scoring, get_scorer_names

from noisycgd._validation import DataError, NoisyCGDError, ParameterTypeError, check_choice, message
from noisycgd.data.sources import to_vector
from noisycgd.estimators._base import PrivateEstimator
from noisycgd.estimators._reading import read_rows
from noisycgd.training.noise import double_normal
from noisycgd.tuning.trials import Trial

Score = Callable[[tuple[Trial, PrivateEstimator]], float]


def public_score(reader: PrivateEstimator, X_public: Any, y_public: Any, scoring: Any) -> Score:
    """Score on public data, by the estimator's own score or a scorer of scikit-learn.

    Parameters
    ----------
    reader : estimator
        Knows the columns of the private records.
    X_public, y_public : array-likes of shape (n', d) and (n',)
        Scoring data that the user declares public.
    scoring : str, callable or None
        As in scikit-learn.

    Raises
    ------
    ParameterError, ParameterTypeError
        If `scoring` is no scorer.
    ValueError
        If the data have other columns, are not finite, or differ in length.
    """
    if isinstance(scoring, str):
        check_choice("scoring", scoring, get_scorer_names())
    elif scoring is not None and not callable(scoring):
        raise ParameterTypeError(message("scoring", "a scorer, its name or None", scoring))
    rows = read_rows(reader, X_public)
    targets = to_vector(y_public)
    if len(rows) != len(targets):
        raise DataError(message("y_public", f"as long as X_public ({len(rows)})", len(targets)))
    scorer = check_scoring(reader, scoring=scoring)

    def score(outcome: tuple[Trial, PrivateEstimator]) -> float:
        return _finite(scorer(outcome[1], rows, targets))

    return score


def private_score(mu: float, X: NDArray[Any], y: NDArray[Any]) -> Score:
    """Accuracy on held-out records plus noise that makes it mu-GDP in them; nothing switches the noise off.

    Parameters
    ----------
    mu : float
        The base guarantee of a trial.
    X, y : ndarrays of shape (n, d) and (n,)
        Private records that no trial is trained on. Replacing one moves the accuracy by at most 1/n.
    """
    std = score_std(mu, len(y))

    def score(outcome: tuple[Trial, PrivateEstimator]) -> float:
        trial, model = outcome
        accuracy = np.mean(model.predict(X) == y)
        # A stream of its own, so that the noise does not depend on where the trial ran.
        noise = float(double_normal(trial.randomness.spawn(0).key(), ()))
        return _finite(accuracy + std * noise)

    return score


def _finite(score: Any) -> float:
    value = float(score)
    if not math.isfinite(value):
        raise NoisyCGDError(message("score", "a finite number", "another", "Use another scoring."))
    return value


def score_std(mu: float, n_scored: int) -> float:
    """Noise that makes an accuracy on n records mu-GDP: replacing one record moves it by at most 1/n."""
    return 1.0 / (n_scored * mu) * (1.0 + 2.0**-40)
