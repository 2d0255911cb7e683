"""Warnings about what learns from the same records around a fit, whose guarantee is that of this fit alone."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator

from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from noisycgd._validation import message

_warned: weakref.WeakSet[BaseEstimator] = weakref.WeakSet()


def warn_of_company() -> None:
    """Warn if scikit-learn asked for this fit as one of several on the same records; once per object that asked.

    Each fit of a search or an ensemble is a release, and so is the choice of the best score. A step of a pipeline that
    was fitted on the records makes each row depend on all of them. Cross validation alone fits for nobody: it is left
    to who prints its scores.
    """
    outer = list(_fitting())
    several = [one for one in outer if isinstance(one, MetaEstimatorMixin)]
    # The outermost: those within are made anew for every fit.
    company = (several or outer or [None])[-1]
    if company is None or company in _warned:
        return
    name, way_out = type(company).__name__, ""
    if several:
        requirement, found = "that of everything that learns from the records", "that of one fit alone"
        way_out = (
            "Every fit costs, and so does a choice by score: search with noisycgd.tuning.PrivateSelection, or add up "
            "the guarantees (noisycgd.accounting.compose)."
        )
    elif found := ", ".join(_learned(company)):
        requirement = "that of its other steps too"
        way_out = (
            "They were fitted on the same records: state public bounds instead (column_bounds), or fit them on public "
            "data and wrap them in FrozenEstimator."
        )
    else:
        return
    # First, so that a filter that turns warnings into errors still lets the next fit pass.
    _warned.add(company)
    warnings.warn(message(f"a guarantee within {name}", requirement, found, way_out), UserWarning, stacklevel=3)


def _fitting() -> Iterator[BaseEstimator]:
    """The meta-estimators and pipelines of others whose methods led to this fit, from the inside out."""
    frame = sys._getframe(2)
    while (caller := frame.f_back) is not None:
        frame = caller
        found = frame.f_locals.get("self")
        if isinstance(found, MetaEstimatorMixin | Pipeline) and not type(found).__module__.startswith("noisycgd."):
            yield found


def _learned(pipeline: Pipeline) -> list[str]:
    """Steps before the last that keep something of what they were fitted on."""
    steps = [step for _, step in pipeline.steps[:-1] if step not in (None, "passthrough")]
    return [type(s).__name__ for s in steps if not isinstance(s, FrozenEstimator) and get_tags(s).requires_fit]
