"""A softmax sees differences of logits only, so training moves in q - 1 contrasts of them instead of q logits.

Adding one number to all logits of a record changes neither the loss nor its residual, which therefore sums to zero over
the classes. NoisyCGD on q logits and projected to sum zero is NoisyCGD on q - 1 orthonormal coordinates: the same
losses, gradients, norms and noise, less one direction that holds nothing but noise. A projection of the result is
post-processing, so every guarantee stays, and each step costs (q - 1) / q of what it did: half of it for two classes.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.linalg import helmert

from noisycgd.losses import Loss


def contrast_basis(loss: Loss, n_outputs: int) -> NDArray[np.float32]:
    """(q', q) orthonormal rows that span the residuals: q' = q - 1 contrasts, or q' = q if logits matter one by one."""
    if loss.shift_invariant:
        return np.asarray(helmert(n_outputs), np.float32)
    return np.eye(n_outputs, dtype=np.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ContrastLoss:
    """A loss as a function of contrasts v, with logits z = v B; its residual is r B'.

    Parameters
    ----------
    loss : Loss
        A loss of q logits.
    basis : Array of shape (q', q)
        B of `contrast_basis`.
    """

    loss: Loss
    basis: Array

    def residual(self, contrasts: Array, targets: Array, scale: Array) -> Array:
        """(b, q'): the derivative of the loss in the contrasts, of the same norm as that in the logits."""
        basis = self.basis.astype(contrasts.dtype)
        precise = jax.lax.Precision.HIGHEST
        residual = self.loss.residual(jnp.matmul(contrasts, basis, precision=precise), targets, scale)
        return jnp.matmul(residual, basis.T, precision=precise)


def to_logit_weights(weights: NDArray[np.floating], basis: NDArray[np.float32]) -> NDArray[np.float32]:
    """(M q', d) weights of contrasts, as they train -> (d, M q) weights of logits, of sum zero over the classes.

    What is released is float32, whatever it trained in: further digits would be no part of the model.
    """
    kept, d = len(basis), weights.shape[1]
    of_logits = basis.T @ weights.reshape(-1, kept, d)
    return np.ascontiguousarray(of_logits.reshape(-1, d).T, dtype=np.float32)
