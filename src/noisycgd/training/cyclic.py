"""NoisyCGD: noisy cyclic gradient descent over fixed disjoint batches (paper, section 2.2; THEORY section 1)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import refuse
from noisycgd.contrasts import ContrastLoss, contrast_basis, to_logit_weights
from noisycgd.data.batches import FixedBatches
from noisycgd.losses import Loss
from noisycgd.training.kernel import StepBatch, run_epoch
from noisycgd.training.noise import Randomness
from noisycgd.training.watching import show
from noisycgd.types import Plan


def train_cyclic(
    batches: FixedBatches,
    levels: NDArray[np.float32],
    loss: Loss,
    plan: Plan,
    n_outputs: int,
    randomness: Randomness,
    on_epoch: Callable[[int], None] | None = None,
) -> NDArray[np.float32]:
    """Run the plan from the zero model and return the last iterate; no other iterate leaves this function.

    Parameters
    ----------
    batches : FixedBatches
        k batches of b bounded rows.
    levels : ndarray of shape (M,)
        Weight of each gate.
    loss : Loss
        The certified loss.
    plan : Plan
        Learning rates, l2, noise; fixed before any record was seen.
    n_outputs : int
        q.
    randomness : Randomness
        Gives each epoch its own noise key, so that no single 64-bit key covers the run.
    on_epoch : callable, optional
        Called with the number of finished epochs, for a progress bar. It sees no number that depends on data.

    Returns
    -------
    ndarray of shape (d, M q), float32
        Its sum over the classes is zero if the loss does not see it (see `noisycgd.contrasts`).

    Raises
    ------
    ParameterError
        If the batches or the loss are not those that the plan accounts for.
    """
    check_fits(batches, loss, plan, n_outputs)
    # The weights are float64; a loss that solves for its residual may do so in float64 too.
    with jax.enable_x64(True):
        return _run(batches, levels, loss, plan, n_outputs, randomness, on_epoch)


def _run(
    batches: FixedBatches,
    levels: NDArray[np.float32],
    loss: Loss,
    plan: Plan,
    n_outputs: int,
    randomness: Randomness,
    on_epoch: Callable[[int], None] | None,
) -> NDArray[np.float32]:
    k, _, d = batches.rows.shape
    rates = plan.learning_rates.reshape(plan.epochs, k)
    epoch = StepBatch(
        rows=jnp.asarray(batches.rows),
        patterns=jnp.asarray(batches.patterns),
        targets=jnp.asarray(batches.targets),
        scales=jnp.asarray(batches.scales),
        learning_rate=jnp.asarray(rates[0]),
        position=jnp.arange(k, dtype=jnp.int32),
    )
    basis = contrast_basis(loss, n_outputs)
    reduced = ContrastLoss(loss, jnp.asarray(basis))
    weights = jnp.zeros((len(levels) * len(basis), d), jnp.float64)
    gate_levels = jnp.asarray(levels)
    l2, noise_std = jnp.float64(plan.l2), jnp.float64(plan.noise_std)

    def released() -> NDArray[np.float32]:
        return to_logit_weights(np.array(weights), basis)

    for e in range(plan.epochs):
        epoch = epoch._replace(learning_rate=jnp.asarray(rates[e]))
        weights = run_epoch(weights, epoch, gate_levels, reduced, l2, noise_std, randomness.key())
        # Waiting here keeps Ctrl-C prompt and the progress bar true; an epoch is long beside one dispatch.
        weights.block_until_ready()
        if on_epoch is not None:
            on_epoch(e + 1)
        show(e + 1, plan.epochs, released)
    return released()


def check_fits(batches: FixedBatches, loss: Loss, plan: Plan, n_outputs: int) -> None:
    """Refuse a run whose sensitivity or smoothness the plan's noise was not calibrated to."""
    planned, found = (plan.batches_per_epoch, plan.batch_size), batches.rows.shape[:2]
    if found != planned:
        refuse("batches", f"{planned[0]} of {planned[1]} slots as planned", found, "Batch with plan.batch_size.")
    certificate = loss.certificate(n_outputs)
    if certificate != plan.certificate:
        refuse("loss", f"certified as planned ({plan.certificate})", certificate, "Plan with this loss's certificate.")
