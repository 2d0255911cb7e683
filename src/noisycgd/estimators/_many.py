"""Several fits on the same records: NoisyCGD runs of equal shape are trained together where that is faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from noisycgd.estimators._base import PrivateEstimator
from noisycgd.estimators._gated import GatedLinearEstimator
from noisycgd.training import Randomness
from noisycgd.training.many import Shape, Way, fastest_way, train_cyclic_many
from noisycgd.training.watching import is_watched
from noisycgd.types import Plan


def fit_many(
    estimators: Sequence[PrivateEstimator], X: Any, y: Any, randomnesses: Sequence[Randomness]
) -> Iterator[PrivateEstimator]:
    """Fit each estimator with its own randomness and yield them in order.

    Each gets the model that `fit` would give it, within rounding; see `noisycgd.training.many` for what is faster when.

    Parameters
    ----------
    estimators : sequence of estimators
        Unfitted, each an object of its own.
    X, y : array-likes of shape (n, d) and (n,)
        Records, as for `fit`.
    randomnesses : sequence of Randomness
        One per estimator.
    """
    shapes = [_shape(estimator, X, y) for estimator in estimators]
    waiting = dict(enumerate(estimators))
    done: set[int] = set()
    for i, estimator in enumerate(estimators):
        if i not in done:
            shape = shapes[i]
            alike = [j for j in waiting if j >= i and shape is not None and shapes[j] == shape]
            if shape is None or is_watched() or fastest_way(shape, len(alike)) is Way.TURNS:
                estimator._fit(X, y, randomnesses[i])
                together = [i]
            else:
                together = alike[: shape.runs_per_program]
                gated = [e for e in (estimators[j] for j in together) if isinstance(e, GatedLinearEstimator)]
                _fit_together(gated, X, y, [randomnesses[j] for j in together])
            done.update(together)
            for j in together:
                del waiting[j]
        yield estimator


def _shape(estimator: PrivateEstimator, X: Any, y: Any) -> Shape | None:
    """What its run has in common with others, None if it runs alone."""
    if not isinstance(estimator, GatedLinearEstimator):
        return None
    _, records = estimator._records(X, y)
    estimator._unfit()
    design = estimator._design(records.shape)
    plan = estimator._plan(design, records.shape)
    if not isinstance(plan, Plan):
        return None
    width, M = design.rows.width(records.shape.n_columns), design.features.n_gates
    loss = type(estimator._make_loss(design.clip, None))
    return Shape(plan.batches_per_epoch, plan.batch_size, width, M, records.shape.n_outputs, plan.epochs, loss)


def _fit_together(
    estimators: Sequence[GatedLinearEstimator], X: Any, y: Any, randomnesses: Sequence[Randomness]
) -> None:
    try:
        read = [estimator._records(X, y) for estimator in estimators]
        runs = [e._prepare(records, r) for e, (_, records), r in zip(estimators, read, randomnesses, strict=True)]
        weights = train_cyclic_many(
            [run.batches for run in runs],
            [run.levels for run in runs],
            [run.loss for run in runs],
            [run.plan for run in runs if isinstance(run.plan, Plan)],
            runs[0].n_outputs,
            randomnesses,
        )
        for estimator, (encoded, records), run, own, randomness in zip(
            estimators, read, runs, weights, randomnesses, strict=True
        ):
            for name, value in estimator._released(encoded, records.shape, run.trained(own), randomness).items():
                setattr(estimator, name, value)
    except BaseException:
        for estimator in estimators:
            estimator._unfit()
        raise
