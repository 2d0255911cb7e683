"""Warnings about what learns from the same records around a fit, whose guarantee is that of this fit alone."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.base import MetaEstimatorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from noisycgd._validation import message

# Functions that do one of several fits in a thread or process of its own, where nothing else tells of the others.
_WORKERS = (
    "_fit_and_score", "_fit_binary", "_fit_ovo_binary", "_fit_estimator", "_fit_single_estimator",
    "_parallel_build_estimators", "_fit_calibrator", "_fit_classifier_calibrator_pair",
)  # fmt: skip
_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_of_company() -> None:
    """Warn if scikit-learn asked for this fit as one of several on the same records; once per object that asked.

    Each fit of a search or an ensemble is a release, and so is the choice of the best score. A step of a pipeline that
    was fitted on the records makes each row depend on all of them. Cross validation alone fits for nobody: it is left
    to who prints its scores.
    """
    around = list(_around())
    several = [one for one in around if not isinstance(one, Pipeline)]
    learned = [name for one in around if isinstance(one, Pipeline) for _, step in one.steps[:-1] for name in _of(step)]
    if not several and not learned:
        return
    # The outermost: those within are made anew for every fit.
    company = (several or around)[-1]
    if type(company).__hash__ is None or company in _warned:
        return
    # First, so that a filter that turns warnings into errors still lets the next fit pass.
    _warned.add(company)
    name = "scikit-learn" if hasattr(company, "co_name") else type(company).__name__
    if several:
        requirement, found = "that of everything that learns from the records", "that of one fit alone"
        way_out = (
            "Every fit costs, and so does a choice by score: search with noisycgd.tuning.PrivateSelection, or add up "
            "the guarantees (noisycgd.accounting.compose)."
        )
    else:
        requirement, found = "that of its other steps too", ", ".join(learned)
        way_out = (
            "They were fitted on the same records: state public bounds instead (column_bounds), or fit them on public "
            "data and wrap them in FrozenEstimator."
        )
    warnings.warn(message(f"a guarantee within {name}", requirement, found, way_out), UserWarning, stacklevel=3)


def _around() -> Iterator[Any]:
    """Meta-estimators and pipelines of others whose methods led to this fit, from the inside out; workers' codes."""
    frame = sys._getframe(2)
    while (caller := frame.f_back) is not None:
        frame = caller
        found, home = frame.f_locals.get("self"), frame.f_globals.get("__name__", "")
        if isinstance(found, MetaEstimatorMixin | TransformedTargetRegressor | Pipeline):
            # The threshold of the latter is fixed: it learns nothing besides.
            if not isinstance(found, FixedThresholdClassifier) and not type(found).__module__.startswith("noisycgd."):
                yield found
        elif frame.f_code.co_name in _WORKERS and home.startswith("sklearn.") and _searches(frame.f_locals):
            yield frame.f_code


def _searches(names: Mapping[str, Any]) -> bool:
    # Cross validation without a search is told apart by its lack of parameters.
    return names.get("parameters", True) is not None


def _of(step: Any) -> list[str]:
    """What of a pipeline's step keeps something of the records that it was fitted on, by class."""
    if step is None or isinstance(step, str | FrozenEstimator):
        return []
    parts = getattr(step, "steps", None) or getattr(step, "transformers", None) or getattr(step, "transformer_list", ())
    if parts:
        return [name for part in parts for name in _of(part[1])]
    try:
        learns = get_tags(step).requires_fit
    except Exception:
        # Whatever has no tags may have learned.
        learns = True
    return [type(step).__name__] if learns else []
