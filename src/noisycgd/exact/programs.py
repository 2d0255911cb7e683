"""The convex programs behind two-layer ReLU networks (Pilanci and Ergen 2020; paper, section 3), solved and certified.

With D_i the diagonal matrices of the patterns and L a loss of the outputs,

    exact:    min  L(sum_i D_i X (v_i - w_i)) + beta sum_i (||v_i|| + ||w_i||)   s.t.  v_i, w_i in V_i,
    relaxed:  min  L(sum_i D_i X v_i) + beta sum_i ||v_i||,

where V_i = {v : (2 D_i - I) X v >= 0} is the closed cone of normals with that pattern. By Fenchel's theorem both equal

    max  -L*(lambda)   s.t.  lambda . D_i X v <= beta for all i and all unit v (and -v) allowed,

which for the exact program with every pattern reads |lambda . (X u)_+| <= beta for all unit u. A lambda that satisfies
the constraint proves a lower bound whoever found it; so the solver proposes, and the check here decides.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from noisycgd._validation import DataError, NoisyCGDError, check_real, message, refuse
from noisycgd.exact.arrangements import check_rows, enumerate_arrangements
from noisycgd.exact.datafits import Datafit, check_targets, datafit

MAX_CONSTRAINTS = 500_000
"""Most sign constraints, 2 n_patterns n, that the exact program may have: about a minute and a gigabyte."""

# Clarabel's own tolerance is 1e-8; where a tighter one is out of reach, that will do. Redundant constraints make
# logistic programs hard for it: they get two more tries, on other paths to the same optimum.
_ATTEMPTS: tuple[tuple[float, dict[str, Any]], ...] = (
    (1e-10, {}),
    (1e-8, {}),
    (1e-8, {"equilibrate_enable": False}),
    (1e-8, {"max_step_fraction": 0.9}),
)
# Of the loss of zero outputs; a larger gap is refused, whatever the solver's status.
_LARGEST_GAP = 1e-5
_EASIER = "Use a larger beta, or fewer patterns."
# Groups below this share of the largest one are the interior point's distance from zero.
_NEGLIGIBLE = 1e-6


class MissingExtraError(NoisyCGDError, ImportError):
    """An optional dependency is not installed."""


class SolverError(NoisyCGDError, RuntimeError):
    """The solver did not reach an optimum."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvexSolution:
    """What both programs answer; the optimum lies in [lower_bound, value], up to rounding.

    Attributes
    ----------
    loss : str
        "squared" or "logistic".
    beta : float
        Weight of the group norms.
    patterns : ndarray of shape (n_patterns, n), bool
        The diagonals of D_i.
    outputs : ndarray of shape (n,)
        f, the fit of the training rows.
    value : float
        The objective at the weights, which satisfy their constraints up to rounding.
    lower_bound : float
        -L*(dual), which no weights can undercut, since `dual` satisfies the dual constraint. For the exact program
        with every pattern, no ReLU network of any width has a lower regularised loss.
    dual : ndarray of shape (n,)
        lambda, which at the optimum is the derivative of L at f.
    status : str
        The solver's word, always "optimal".
    """

    loss: str
    beta: float
    patterns: NDArray[np.bool_]
    outputs: NDArray[np.float64]
    value: float
    lower_bound: float
    dual: NDArray[np.float64]
    status: str

    @property
    def gap(self) -> float:
        """`value` - `lower_bound`: how far from optimal the weights can be."""
        return self.value - self.lower_bound


@dataclass(frozen=True, eq=False, kw_only=True)
class ReLUSolution(ConvexSolution):
    """Optimum of the exact program; `recover_network` turns it into a ReLU network.

    Attributes
    ----------
    positive, negative : ndarray of shape (n_patterns, d)
        v_i and w_i, each in the cone V_i of its pattern; most are zero.
    """

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedSolution(ConvexSolution):
    """Optimum of the relaxed program.

    Attributes
    ----------
    weights : ndarray of shape (n_patterns, d)
        v_i, unconstrained; most are zero.
    """

    weights: NDArray[np.float64]


def solve_relu_program(
    X: ArrayLike, y: ArrayLike, *, beta: float, patterns: ArrayLike | None = None, loss: str = "squared"
) -> ReLUSolution:
    """Train a two-layer ReLU network to global optimality, as a convex program.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Rows; append a column of ones for a bias.
    y : array_like of shape (n,)
        Targets; -1 or 1 for the logistic loss.
    beta : float
        Weight of the regulariser, positive. The losses are sums over records, not means.
    patterns : array_like of shape (n_patterns, n), bool, optional
        Activation patterns; by default `enumerate_arrangements(X)`, with which the optimum is that of every wide
        network. With fewer, it is that of networks whose neurons lie in these patterns' cones.
    loss : {"squared", "logistic"}, default "squared"
        1/2 ||f - y||^2, or sum_j log(1 + exp(-y_j f_j)).

    Raises
    ------
    DataError, ParameterError, ParameterTypeError
        If an argument breaks its requirement, or the program is larger than 500 000 sign constraints.
    MissingExtraError
        If cvxpy is not installed.
    SolverError
        If the solver's status is anything but "optimal", or if `gap` exceeds 1e-5 of the loss of zero outputs. A small
        beta with the logistic loss is the hard case.
    """
    answer = _solve(X, y, beta, patterns, loss, sides=2)
    return ReLUSolution(positive=answer.weights[0], negative=answer.weights[1], **answer.shared)


def solve_gated_program(
    X: ArrayLike, y: ArrayLike, *, beta: float, patterns: ArrayLike | None = None, loss: str = "squared"
) -> GatedSolution:
    """Solve the exact program without its sign constraints; parameters and errors are those of `solve_relu_program`.

    Its value is at most the exact program's with the same patterns. It depends on the list of patterns, also on those
    that occur on boundaries only; by default these are left out, see `enumerate_arrangements`.
    """
    answer = _solve(X, y, beta, patterns, loss, sides=1)
    return GatedSolution(weights=answer.weights[0], **answer.shared)


class _Answer(NamedTuple):
    weights: NDArray[np.float64]  # (sides, M, d)
    shared: dict[str, Any]


class _Problem(NamedTuple):
    """A program whose rows and targets have ordinary size."""

    rows: NDArray[np.float64]  # (n, d)
    targets: NDArray[np.float64]  # (n,)
    gates: NDArray[np.float64]  # (M, n), 0 or 1
    penalty: float
    fit: Datafit
    sides: int  # 2: v and w, in their cones; 1: v alone, unconstrained

    @property
    def cones(self) -> NDArray[np.float64]:
        """(M, n, d): the rows of (2 D_i - I) X."""
        cones: NDArray[np.float64] = (2 * self.gates - 1)[:, :, None] * self.rows
        return cones


def _solve(X: ArrayLike, y: ArrayLike, beta: float, patterns: ArrayLike | None, loss: str, sides: int) -> _Answer:
    cvxpy = _cvxpy()
    rows = check_rows(X)
    fit = datafit(loss)
    targets = check_targets(y, len(rows), fit)
    beta = check_real("beta", beta, low=0, open_low=True)
    shown = enumerate_arrangements(rows) if patterns is None else _check_patterns(patterns, len(rows))
    if sides == 2 and 2 * shown.size > MAX_CONSTRAINTS:
        way_out = "Pass fewer patterns (sample_arrangements), or use fewer rows."
        refuse("2 n_patterns n", f"at most {MAX_CONSTRAINTS} for the exact program", 2 * shown.size, way_out)
    # The optimum scales with the data, the solver's tolerances do not.
    a, b = float(np.linalg.norm(rows, axis=1).max()) or 1.0, fit.scale(targets)
    problem = _Problem(rows / a, targets / b, shown.astype(np.float64), beta / (a * b), fit, sides)
    proposed, proposed_dual, status = _propose(cvxpy, problem)
    weights, outputs, value = _cleaned(problem, proposed)
    dual, lower_bound = _certified(problem, proposed_dual)
    gap = (value - lower_bound) / (fit.value(np.zeros_like(outputs), problem.targets) or 1.0)
    if not gap <= _LARGEST_GAP:
        raise SolverError(
            message("The certified gap", f"at most {_LARGEST_GAP:g} of the loss of zero outputs", gap, _EASIER)
        )
    shared = {
        "loss": loss,
        "beta": beta,
        "patterns": shown,
        "outputs": b * outputs,
        "value": b**2 * value,
        "lower_bound": b**2 * lower_bound,
        "dual": b * dual,
        "status": status,
    }
    return _Answer((b / a) * weights, shared)


def _propose(cvxpy: Any, problem: _Problem) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """The solver's weights (sides, M, d), dual point (n,) and status."""
    rows, targets, gates, penalty, fit, sides = problem
    weights = [cvxpy.Variable((rows.shape[1], len(gates))) for _ in range(sides)]
    outputs = cvxpy.Variable(len(rows))
    total = weights[0] - weights[1] if sides == 2 else weights[0]
    definition = outputs == cvxpy.sum(cvxpy.multiply(gates.T, rows @ total), axis=1)
    cones = [cvxpy.multiply(2 * gates.T - 1, rows @ side) >= 0 for side in weights] if sides == 2 else []
    norms = sum(cvxpy.sum(cvxpy.norm(side, 2, axis=0)) for side in weights)
    objective = cvxpy.Minimize(fit.expression(cvxpy, outputs, targets) + penalty * norms)
    program = cvxpy.Problem(objective, [definition, *cones])
    status = "no answer"
    for tolerance, path in _ATTEMPTS:
        limits = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
            try:
                # A warm start would keep the last attempt's settings.
                program.solve(solver=cvxpy.CLARABEL, warm_start=False, **limits, **path)
            except cvxpy.error.SolverError:
                continue
        status = program.status
        if status == cvxpy.OPTIMAL:
            # The Lagrangian has dual_value . (f - sum): lambda is the other sign.
            return np.array([side.value.T for side in weights]), -np.asarray(definition.dual_value), status
    raise SolverError(message("The solver's status", "'optimal'", status, _EASIER))


def _cleaned(problem: _Problem, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Weights that satisfy their constraints, and are zero where the solver means zero; their outputs; their value."""
    fit, targets, gates = problem.fit, problem.targets, problem.gates
    if problem.sides == 2:
        weights = np.array([list(map(_in_cone, problem.cones, side)) for side in weights])
    norms = np.linalg.norm(weights, axis=2)
    norms[norms <= _NEGLIGIBLE * norms.max()] = 0.0
    weights = weights * (norms > 0)[:, :, None]
    total = weights[0] - weights[1] if problem.sides == 2 else weights[0]
    outputs = (gates * (total @ problem.rows.T)).sum(axis=0)
    value = fit.value(outputs, targets) + problem.penalty * float(norms.sum())
    zero = np.zeros_like(outputs)
    if fit.value(zero, targets) <= value:  # where zero is optimal, all groups are the solver's distance from it
        return np.zeros_like(weights), zero, fit.value(zero, targets)
    return weights, outputs, value


def _certified(problem: _Problem, dual: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The largest multiple of `dual`, up to itself, that satisfies the dual constraint, and the bound it proves."""
    dual = problem.fit.nearest_dual(dual, problem.targets)
    slopes = (problem.gates * dual) @ problem.rows
    if problem.sides == 2:
        both = zip((*problem.cones, *problem.cones), (*slopes, *-slopes), strict=True)
        slopes = np.array([_in_cone(cone, slope) for cone, slope in both])
    steepest = float(np.linalg.norm(slopes, axis=1).max())
    if steepest > problem.penalty:
        dual = dual * (problem.penalty / steepest)
    return dual, -problem.fit.conjugate(dual, problem.targets)


def _in_cone(A: NDArray[np.float64], g: NDArray[np.float64]) -> NDArray[np.float64]:
    """The projection of g on {v : A v >= 0}, as g + A' mu with mu >= 0 (Moreau).

    Its norm is max g . v over unit v in the cone, and ||g + A' mu|| bounds that from above for every mu >= 0.
    """
    size = np.linalg.norm(g)
    if not size:
        return g
    multipliers, _ = nnls(A.T, -g / size)
    projection: NDArray[np.float64] = g + size * (multipliers @ A)
    return projection


def _check_patterns(patterns: ArrayLike, n: int) -> NDArray[np.bool_]:
    shown = np.array(patterns)
    if shown.ndim != 2 or shown.shape[1] != n or not len(shown):
        raise DataError(message("patterns", f"of shape (n_patterns, {n}) with n_patterns >= 1", shown.shape))
    if shown.dtype != np.bool_:
        raise DataError(message("patterns", "boolean", shown.dtype, "Compare with zero: X @ u >= 0."))
    return shown


def _cvxpy() -> Any:
    """Cvxpy, which only the solver needs."""
    try:
        import cvxpy
    except ImportError as error:
        raise MissingExtraError(
            "cvxpy must be installed for the exact convex programs; got no such module. "
            "Run: pip install 'noisycgd[exact]'."
        ) from error
    return cvxpy
