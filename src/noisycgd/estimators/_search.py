"""A warning to those who tune on private records with a tool that does not account for it."""

from __future__ import annotations

import sys
import warnings

from noisycgd._validation import message

_HOME, _FUNCTION = "sklearn.model_selection._validation", "_fit_and_score"

_warned = False


def warn_of_search() -> None:
    """Warn, once per process, if a search over parameters (`GridSearchCV` and its kin) asked for this fit.

    Each fit of a search is a release, and so is the choice of the best score: neither is in the guarantee. Cross
    validation without a search is told apart by its lack of parameters.
    """
    global _warned
    if not _warned and _called_by_search():
        # First, so that a filter that turns warnings into errors still lets the next fit pass.
        _warned = True
        text = message(
            "a guarantee within a parameter search",
            "that of the whole search",
            "that of one fit alone",
            "The search's cost is not in it: use noisycgd.tuning.PrivateSelection, which accounts for every trial.",
        )
        warnings.warn(text, UserWarning, stacklevel=3)


def _called_by_search() -> bool:
    frame = sys._getframe(2)
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == _FUNCTION and frame.f_globals.get("__name__") == _HOME:
            return frame.f_locals.get("parameters") is not None
    return False
