"""Metrics along training, for experiments on public data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from noisycgd._validation import ParameterTypeError, check_integer, message
from noisycgd.training.watching import Watch, watching

__all__ = ["watched_iterates"]


@contextlib.contextmanager
def watched_iterates(observer: Callable[[int, Any], object], every: int = 1) -> Iterator[None]:
    """Call `observer(epoch, model)` along each fit in this context. For public data only: guarantees are `void`.

    Use it for curves of accuracy over epochs. Each point is a separate hypothetical release: that of a run which
    stopped there, its learning rates being those of the longer plan. `plan_` still tells what the plan would promise,
    were its last iterate all that leaves.

    Parameters
    ----------
    observer : callable
        Takes the number of finished epochs and a fitted copy of the estimator, whose parameters are what a release at
        that point would hold: the last iterate, or the mean of those so far. An error in it ends the fit. Fits inside
        it are not watched.
    every : int, default 1
        Epochs between two calls; the last epoch is always seen.

    Raises
    ------
    ParameterError, ParameterTypeError
        If `every` is no integer above 0, or `observer` cannot be called.

    Notes
    -----
    Noise, batches and the released parameters are the same bits as without it. It holds for this thread alone. An
    estimator without epochs shows nothing, and `PrivateSelection` is refused.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from noisycgd import LinearClassifier
    >>> from noisycgd.research import watched_iterates
    >>> X, y = load_digits(return_X_y=True)
    >>> curve = {}
    >>> with watched_iterates(lambda epoch, model: curve.update({epoch: model.score(X, y)}), every=2):
    ...     model = LinearClassifier(epochs=5).fit(X, y)
    >>> sorted(curve), str(model.guarantee_.status)
    ([2, 4, 5], 'void')
    """
    if not callable(observer):
        raise ParameterTypeError(message("observer", "callable", observer))

    def see(epoch: int, model: Any) -> None:
        with watching(None):
            observer(epoch, model)

    with watching(Watch(check_integer("every", every, low=1), see)):
        yield
