"""From a selection's budget to estimators ready to be trained; no record is read here."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.base import clone

from noisycgd._validation import NoisyCGDError, ParameterTypeError, check_real, message, refuse
from noisycgd.estimators._base import PrivateEstimator, Shape
from noisycgd.estimators._gated import GatedLinearEstimator
from noisycgd.planning import SelectionPlan
from noisycgd.planning.settings import check_settings
from noisycgd.reach import delta_beyond_reach, least_lost_by_trials, lost_by_trials, reach_shows
from noisycgd.tuning.candidates import RATE_FRACTION, Candidates
from noisycgd.types import GaussianMu

_BUDGET = ("epsilon", "delta", "mu", "noise_multiplier")
_OWN = "The selection sets it: give epsilon and delta to PrivateSelection."


def check_tunable(estimator: Any) -> PrivateEstimator:
    """Return the estimator if its trials can be accounted for.

    Raises
    ------
    ParameterError, ParameterTypeError
        If it is none of this package's, brings a budget of its own, or gives up its guarantee.
    """
    if not isinstance(estimator, PrivateEstimator):
        way_out = "A pipeline may learn from the records what no trial accounts for."
        raise ParameterTypeError(message("estimator", "a private estimator of this package", estimator, way_out))
    defaults = inspect.signature(type(estimator)).parameters
    for name in _BUDGET:
        if getattr(estimator, name) != defaults[name].default:
            refuse(f"{name} of the estimator", "left at its default", getattr(estimator, name), _OWN)
    if getattr(estimator, "allow_unproven", False):
        refuse("allow_unproven of the estimator", "False in a selection", True, "Every trial needs its guarantee.")
    return estimator


def may_sample(estimator: PrivateEstimator, candidates: Candidates) -> bool:
    """Whether a candidate may be DP-SGD, whose trials no Gaussian bounds as a whole."""
    return "dpsgd" in candidates.possible("method", getattr(estimator, "method", ""))


class Budget:
    """What each candidate is held to.

    Parameters
    ----------
    plan : SelectionPlan
        The base guarantee.
    n_records, n_columns : int
        Of the records that trials are trained on.
    facts : dict
        `classes` or `target_range`, so that no trial reads them off its records.
    """

    def __init__(self, plan: SelectionPlan, n_records: int, n_columns: int, facts: dict[str, Any]) -> None:
        self.plan, self.facts = plan, facts
        self._n, self._d = n_records, n_columns

    def ready(self, estimator: PrivateEstimator, parameters: dict[str, Any], *, check: bool = True) -> PrivateEstimator:
        """An unfitted estimator with a candidate's parameters and the noise of the base guarantee.

        Parameters
        ----------
        estimator : estimator
            Whose other parameters hold.
        parameters : dict
            The candidate; `learning_rate_fraction` becomes the learning rate.
        check : bool
            Plan its fit, so that whatever the guarantee forbids is refused now.

        Raises
        ------
        ParameterError, ParameterTypeError, UnprovenGuaranteeError
            If the candidate breaks a condition; the message names it.
        """
        try:
            return self._ready(estimator, dict(parameters), check)
        except NoisyCGDError as error:
            raise type(error)(f"{error} The candidate is {parameters}; no trial has run.") from None

    def _ready(self, estimator: PrivateEstimator, settings: dict[str, Any], check: bool) -> PrivateEstimator:
        fraction = settings.pop(RATE_FRACTION, None)
        trial: PrivateEstimator = clone(estimator).set_params(**self.facts, **settings, verbose=False)
        trial.set_params(mu=self.plan.mu, delta=self.plan.delta)
        if getattr(trial, "clip", "public") == "data":
            refuse("clip", '"public" in a selection', "data", "A bound read off the records is not private.")
        # The facts are targets themselves, so that this reads no record.
        example = np.asarray(next(iter(self.facts.values())))
        shape = trial._shape(self._n, self._d, trial._encode_target(example).n_outputs)
        if getattr(trial, "method", "") == "dpsgd":
            self._set_sampled_noise(trial)
        if fraction is not None:
            trial.set_params(learning_rate=self._rate(trial, shape, fraction))
        if check:
            self._check_reach(trial._plan_for(shape))
        return trial

    def _check_reach(self, plan: Any) -> None:
        """Refuse a trial whose noise ends where all trials together could show it, unless the total says so."""
        if reach_shows(least_lost_by_trials(self.plan), self.plan.delta):
            return
        lost = lost_by_trials(self.plan, delta_beyond_reach(plan))
        if reach_shows(lost, self.plan.delta):
            way_out = "Lower epsilon, raise delta, or raise the batch size of DP-SGD (THEORY section 5)."
            refuse("what the end of the noise adds to delta", f"at most {self.plan.delta / 1000:g}", lost, way_out)

    def _set_sampled_noise(self, trial: Any) -> None:
        target = GaussianMu(self.plan.mu, self.plan.delta)
        run = check_settings(target, self._n, trial.batch_size, trial.epochs, trial.l2)
        # With every record in every batch DP-SGD is Gaussian, and mu is its target as for all others.
        if run.batch_size < self._n:
            noise = self.plan.sampled_noise(self._n, run.batch_size, run.epochs)
            trial.set_params(mu=None, noise_multiplier=noise)

    def _rate(self, trial: PrivateEstimator, shape: Shape, fraction: Any) -> float:
        if not isinstance(trial, GatedLinearEstimator) or trial.method == "noisy-gd":
            way_out = "Give learning_rate itself."
            refuse(RATE_FRACTION, "left out where no largest learning rate is known", fraction, way_out)
        return check_real(RATE_FRACTION, fraction, low=0, high=1, open_low=True) * trial._rate_cap(shape)
