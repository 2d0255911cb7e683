"""Two-layer ReLU networks: the one that a solution of the exact program describes, and the loss that it minimises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import DataError, check_real, message
from noisycgd.exact.arrangements import check_rows
from noisycgd.exact.datafits import check_targets, datafit
from noisycgd.exact.programs import ReLUSolution


@dataclass(frozen=True, eq=False)
class ReLUNetwork:
    """f(x) = sum_j max(u_j . x, 0) alpha_j.

    Attributes
    ----------
    hidden : ndarray of shape (width, d)
        u_j.
    output : ndarray of shape (width,)
        alpha_j.
    """

    hidden: NDArray[np.float64]
    output: NDArray[np.float64]

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, d) rows -> (n,) outputs; raises DataError for rows of another width."""
        rows = check_rows(X)
        if rows.shape[1] != self.hidden.shape[1]:
            raise DataError(message("X", f"of shape (n, {self.hidden.shape[1]})", rows.shape))
        outputs: NDArray[np.float64] = np.maximum(rows @ self.hidden.T, 0.0) @ self.output
        return outputs


def recover_network(solution: ReLUSolution) -> ReLUNetwork:
    """Return the network of a solution: one neuron for each non-zero group (Pilanci and Ergen 2020, Theorem 1).

    v_i gives u = v_i / sqrt(||v_i||), alpha = sqrt(||v_i||), and w_i the same with alpha negative, so that
    (||u||^2 + alpha^2) / 2 is the group's norm. Since v_i lies in its cone, D_i X v_i = (X v_i)_+ and the network's
    `network_objective` is the solution's value.
    """
    groups = np.concatenate([solution.positive, solution.negative])
    signs = np.repeat([1.0, -1.0], len(solution.positive))
    norms = np.linalg.norm(groups, axis=1)
    active = norms > 0
    roots = np.sqrt(norms[active])
    return ReLUNetwork(groups[active] / roots[:, None], signs[active] * roots)


def network_objective(network: ReLUNetwork, X: ArrayLike, y: ArrayLike, *, beta: float, loss: str = "squared") -> float:
    """Evaluate the non-convex objective L(f(X)) + beta/2 sum_j (||u_j||^2 + alpha_j^2), summed over records.

    Raises
    ------
    DataError, ParameterError, ParameterTypeError
        If an argument breaks its requirement (see `solve_relu_program`).
    """
    fit = datafit(loss)
    outputs = network.predict(X)
    targets = check_targets(y, len(outputs), fit)
    weight = check_real("beta", beta, low=0)
    return fit.value(outputs, targets) + weight / 2 * float((network.hidden**2).sum() + (network.output**2).sum())
