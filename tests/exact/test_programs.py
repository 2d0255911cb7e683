import numpy as np
import pytest
from scipy.special import expit

from noisycgd._validation import DataError, ParameterError, ParameterTypeError
from noisycgd.exact import (
    SolverError,
    enumerate_arrangements,
    programs,
    sample_arrangements,
    solve_gated_program,
    solve_relu_program,
)

cvxpy = pytest.importorskip("cvxpy")

SOLVERS = [solve_relu_program, solve_gated_program]
LOSSES = ["squared", "logistic"]


def data(n, d, loss="squared", seed=0):
    rng = np.random.default_rng(seed + 10 * n + d)
    y = rng.standard_normal(n)
    return rng.standard_normal((n, d)), np.sign(y) if loss == "logistic" else y


def loss_value(loss, f, y):
    return ((f - y) ** 2).sum() / 2 if loss == "squared" else np.log1p(np.exp(-y * f)).sum()


def loss_slope(loss, f, y):
    return f - y if loss == "squared" else -y * expit(-y * f)


def outputs_of(solution, X):
    """Twin: the sum as it is written."""
    D = [np.diag(pattern.astype(float)) for pattern in solution.patterns]
    if hasattr(solution, "weights"):
        return sum(d @ X @ v for d, v in zip(D, solution.weights, strict=True))
    return sum(d @ X @ (v - w) for d, v, w in zip(D, solution.positive, solution.negative, strict=True))


def groups_of(solution):
    if hasattr(solution, "weights"):
        return solution.weights
    return np.concatenate([solution.positive, solution.negative])


def scs_value(X, y, beta, patterns, loss, constrained):
    """Twin: the program as the paper writes it, group by group, in the hands of another solver."""
    n, d = X.shape
    f, penalty, constraints = np.zeros(n), 0.0, []
    for pattern in patterns:
        D = np.diag(pattern.astype(float))
        for sign in (1, -1)[: 2 if constrained else 1]:
            v = cvxpy.Variable(d)
            f = f + sign * (D @ X) @ v
            penalty = penalty + cvxpy.norm2(v)
            if constrained:
                constraints.append((2 * D - np.eye(n)) @ X @ v >= 0)
    fit = cvxpy.sum_squares(f - y) / 2 if loss == "squared" else cvxpy.sum(cvxpy.logistic(-cvxpy.multiply(y, f)))
    problem = cvxpy.Problem(cvxpy.Minimize(fit + beta * penalty), constraints)
    return problem.solve(solver=cvxpy.SCS, eps_abs=1e-8, eps_rel=1e-8, max_iters=100_000)


def proximal_gradient(X, y, beta, patterns, steps=20_000):
    """Twin for the relaxed program and squared loss: gradient steps and block soft thresholding."""
    A = patterns[:, :, None] * X
    rate = 1 / np.linalg.norm(A.transpose(1, 0, 2).reshape(len(X), -1), 2) ** 2
    v = np.zeros((len(patterns), X.shape[1]))
    for _ in range(steps):
        v = v - rate * np.einsum("mnd,n->md", A, np.einsum("mnd,md->n", A, v) - y)
        norms = np.linalg.norm(v, axis=1, keepdims=True)
        v = v * np.maximum(0.0, 1 - rate * beta / np.maximum(norms, 1e-300))
    f = np.einsum("mnd,md->n", A, v)
    return ((f - y) ** 2).sum() / 2 + beta * np.linalg.norm(v, axis=1).sum()


def unit_normals(d, count):
    if d == 2:
        angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
        return np.array([np.cos(angles), np.sin(angles)])
    u = np.random.default_rng(1).standard_normal((d, count))
    return u / np.linalg.norm(u, axis=0)


class TestOptimum:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("solve", SOLVERS)
    @pytest.mark.parametrize(("n", "d", "beta"), [(5, 2, 0.05), (4, 3, 0.3)])
    def test_is_that_of_another_solver(self, n, d, beta, solve, loss):
        X, y = data(n, d, loss)
        patterns = enumerate_arrangements(X)
        expected = scs_value(X, y, beta, patterns, loss, solve is solve_relu_program)
        solution = solve(X, y, beta=beta, loss=loss)
        assert solution.value == pytest.approx(expected, abs=1e-5)
        assert solution.value < 0.99 * loss_value(loss, 0 * y, y)

    def test_of_the_relaxed_program_is_that_of_proximal_gradient(self):
        X, y = data(8, 2)
        expected = proximal_gradient(X, y, 0.2, enumerate_arrangements(X))
        assert solve_gated_program(X, y, beta=0.2).value == pytest.approx(expected, abs=1e-8)

    @pytest.mark.parametrize("beta", [0.1, 0.7, 3.0])
    @pytest.mark.parametrize("n", [1, 2, 4])
    def test_for_orthonormal_rows_is_known(self, n, beta):
        """The dual splits into ||lambda_+|| <= beta and ||lambda_-|| <= beta, so the value is a sum of two Hubers."""
        Q = np.linalg.qr(np.random.default_rng(n).standard_normal((n, n)))[0]
        y = np.random.default_rng(n + 5).standard_normal(n)
        sizes = np.linalg.norm(np.maximum([y, -y], 0), axis=1)
        huber = np.where(sizes <= beta, sizes**2 / 2, beta * sizes - beta**2 / 2)
        assert solve_relu_program(Q, y, beta=beta).value == pytest.approx(huber.sum(), abs=1e-8)

    @pytest.mark.parametrize("beta", [0.1, 1.0])
    def test_for_one_column_is_known(self, beta):
        """x_+ and x_- are the only features; they are orthogonal, so each has its own soft threshold."""
        x, y = (part.ravel() for part in data(7, 1, seed=3))
        value = (y**2).sum() / 2
        for feature in (np.maximum(x, 0), np.maximum(-x, 0)):
            value -= max(0.0, abs(feature @ y) - beta) ** 2 / (feature @ feature) / 2
        solution = solve_relu_program(x[:, None], y, beta=beta)
        assert solution.value == pytest.approx(value, abs=1e-8)

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("seed", range(3))
    def test_relaxed_exact_zero_are_in_this_order(self, loss, seed):
        X, y = data(9, 2, loss, seed)
        patterns = sample_arrangements(X, 8, seed)
        for shown in (None, patterns):
            relaxed = solve_gated_program(X, y, beta=0.1, loss=loss, patterns=shown)
            exact = solve_relu_program(X, y, beta=0.1, loss=loss, patterns=shown)
            assert relaxed.value <= exact.lower_bound < exact.value + 1e-9 < loss_value(loss, 0 * y, y)

    def test_fewer_patterns_cannot_do_better(self):
        X, y = data(8, 3)
        patterns = enumerate_arrangements(X)
        for solve in SOLVERS:
            values = [solve(X, y, beta=0.1, patterns=patterns[:k]).value for k in (10, 30, len(patterns))]
            assert values[0] > values[1] > values[2]

    @pytest.mark.parametrize("loss", LOSSES)
    def test_boundary_patterns_do_not_change_the_exact_value_but_the_relaxed_one(self, loss):
        X = np.array([[1.0, 0.2], [-1.0, -0.2], [0.3, 1.0], [-0.8, 0.7], [0.9, -1.1]])
        y = np.array([1.0, -1.0, -1.0, 1.0, 1.0])
        cells = enumerate_arrangements(X)
        # Every pattern of a boundary: u = 0, and the two directions in which each row vanishes.
        normals = np.concatenate([np.zeros((1, 2)), X @ [[0, 1], [-1, 0]], X @ [[0, -1], [1, 0]]])
        products = np.round(X @ normals.T, 12)
        everything = np.unique(np.concatenate([cells, (products >= 0).T]), axis=0)
        assert len(everything) > len(cells)
        lists = (cells, everything)
        exact, relaxed = ([f(X, y, beta=0.05, patterns=shown, loss=loss).value for shown in lists] for f in SOLVERS)
        assert exact[1] == pytest.approx(exact[0], abs=1e-7)
        assert relaxed[1] < relaxed[0] - 1e-3

    def test_copies_of_patterns_do_not_change_it(self):
        X, y = data(6, 2)
        patterns = enumerate_arrangements(X)
        for solve in SOLVERS:
            once, twice = (solve(X, y, beta=0.1, patterns=p) for p in (patterns, np.tile(patterns, (2, 1))))
            assert twice.value == pytest.approx(once.value, abs=1e-8)

    @pytest.mark.parametrize("solve", SOLVERS)
    def test_scales_with_the_data(self, solve):
        X, y = data(7, 2)
        plain, scaled = solve(X, y, beta=0.2), solve(1e5 * X, 1e-4 * y, beta=0.2 * 1e5 * 1e-4)
        assert scaled.value == pytest.approx(1e-8 * plain.value, rel=1e-7)
        assert scaled.lower_bound == pytest.approx(1e-8 * plain.lower_bound, rel=1e-7)
        np.testing.assert_allclose(scaled.outputs, 1e-4 * plain.outputs, atol=1e-9)
        np.testing.assert_allclose(outputs_of(scaled, 1e5 * X), scaled.outputs, atol=1e-15)

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("solve", SOLVERS)
    def test_is_the_zero_network_from_the_largest_useful_beta_on(self, solve, loss):
        X, y = data(8, 2, loss)
        slope = loss_slope(loss, 0 * y, y)
        if solve is solve_relu_program:
            largest = np.abs(slope @ np.maximum(X @ unit_normals(2, 200_000), 0)).max()
        else:
            largest = max(np.linalg.norm((pattern * slope) @ X) for pattern in enumerate_arrangements(X))
        above, below = (solve(X, y, beta=share * largest, loss=loss) for share in (1.001, 0.99))
        assert not groups_of(above).any()
        assert not above.outputs.any()
        assert above.value == pytest.approx(loss_value(loss, 0 * y, y), rel=1e-15)
        assert groups_of(below).any()
        assert below.value < above.value

    def test_of_nothing_is_nothing(self):
        X, _ = data(4, 2)
        for solve in SOLVERS:
            for rows, targets in ((X, np.zeros(4)), (np.zeros((4, 2)), np.ones(4))):
                solution = solve(rows, targets, beta=0.1)
                assert solution.value == (targets**2).sum() / 2
                assert not groups_of(solution).any()


class TestCertificate:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("solve", SOLVERS)
    @pytest.mark.parametrize(("n", "d", "beta"), [(10, 2, 0.02), (8, 3, 0.1)])
    def test_encloses_the_optimum_tightly(self, n, d, beta, solve, loss):
        X, y = data(n, d, loss)
        solution = solve(X, y, beta=beta, loss=loss)
        assert solution.status == "optimal"
        assert solution.gap == solution.value - solution.lower_bound
        assert -1e-12 < solution.gap < 1e-6
        np.testing.assert_allclose(outputs_of(solution, X), solution.outputs, atol=1e-12)
        penalty = beta * np.linalg.norm(groups_of(solution), axis=1).sum()
        assert solution.value == pytest.approx(loss_value(loss, solution.outputs, y) + penalty, rel=1e-13)
        np.testing.assert_allclose(solution.dual, loss_slope(loss, solution.outputs, y), atol=2e-3)

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(("n", "d"), [(10, 2), (8, 3)])
    def test_weights_lie_in_their_cones(self, n, d, loss):
        X, y = data(n, d, loss)
        solution = solve_relu_program(X, y, beta=0.05, loss=loss)
        for side in (solution.positive, solution.negative):
            products = np.where(solution.patterns, 1, -1) * (side @ X.T)
            assert products.min() >= -1e-12
        # Negative control: the relaxed program's do not.
        relaxed = solve_gated_program(X, y, beta=0.05, loss=loss)
        assert (np.where(relaxed.patterns, 1, -1) * (relaxed.weights @ X.T)).min() < -1e-2

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(("n", "d"), [(9, 2), (7, 3)])
    def test_dual_point_satisfies_the_constraint_at_every_normal(self, n, d, loss):
        X, y = data(n, d, loss)
        beta = 0.1
        solution = solve_relu_program(X, y, beta=beta, loss=loss)
        steepest = np.abs(solution.dual @ np.maximum(X @ unit_normals(d, 300_000), 0)).max()
        assert steepest <= beta * (1 + 1e-10)
        # Negative control: the bound is attained, so that a dual point a little larger would break it.
        assert steepest > beta * (1 - 1e-3)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_dual_point_of_the_relaxed_program(self, loss):
        X, y = data(9, 2, loss)
        solution = solve_gated_program(X, y, beta=0.1, loss=loss)
        steepest = max(np.linalg.norm((pattern * solution.dual) @ X) for pattern in solution.patterns)
        assert steepest == pytest.approx(0.1, rel=1e-7)
        assert steepest <= 0.1 * (1 + 1e-12)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_bound_is_the_conjugate_at_the_dual_point(self, loss):
        X, y = data(9, 2, loss)
        solution = solve_relu_program(X, y, beta=0.1, loss=loss)
        # Twin of the conjugate: each record's supremum over a fine grid of outputs.
        grid = np.linspace(-30, 30, 600_001)
        conjugate = 0.0
        for slope, target in zip(solution.dual, y, strict=True):
            each = (grid - target) ** 2 / 2 if loss == "squared" else np.logaddexp(0, -target * grid)
            conjugate += (slope * grid - each).max()
        assert solution.lower_bound == pytest.approx(-conjugate, abs=1e-7)

    def test_decides_whatever_the_solver_says(self, monkeypatch):
        X, y = data(6, 2)
        patterns, truth = enumerate_arrangements(X), solve_relu_program(X, y, beta=0.1)
        weights = np.array([truth.positive, truth.negative])
        scale = np.linalg.norm(X, axis=1).max(), np.linalg.norm(y)
        proposals = {
            "right": (weights * scale[0] / scale[1], truth.dual / scale[1]),
            "wrong weights": (0.9 * weights * scale[0] / scale[1], truth.dual / scale[1]),
            "wrong dual": (weights * scale[0] / scale[1], 0.9 * truth.dual / scale[1]),
            "infeasible dual": (weights * scale[0] / scale[1], 1.1 * truth.dual / scale[1]),
        }
        for name, proposal in proposals.items():
            monkeypatch.setattr(programs, "_propose", lambda *_, answer=proposal: (*answer, "optimal"))
            if name == "right":
                assert solve_relu_program(X, y, beta=0.1, patterns=patterns).gap < 1e-8
            elif name == "infeasible dual":
                # Scaled back to feasibility, it proves what it proves, which is not beyond the truth.
                assert solve_relu_program(X, y, beta=0.1, patterns=patterns).lower_bound <= truth.value
            else:
                with pytest.raises(SolverError, match="The certified gap must be at most 1e-05"):
                    solve_relu_program(X, y, beta=0.1, patterns=patterns)


class TestRefusals:
    X, y = data(5, 2)

    def refused(self, error, text, **changes):
        arguments = {"X": self.X, "y": self.y, "beta": 0.1} | changes
        for solve in SOLVERS:
            with pytest.raises(error, match=text):
                solve(**arguments)

    def test_of_data(self):
        self.refused(DataError, "X must be finite", X=self.X * np.nan)
        self.refused(DataError, r"y must be of shape \(5,\), one number for each row of X; got \(4,\)", y=self.y[:4])
        self.refused(DataError, r"got \(5, 1\)", y=self.y[:, None])
        self.refused(DataError, "y must be finite", y=np.full(5, np.inf))
        self.refused(DataError, "y must be a vector of numbers", y=list("abcde"))

    def test_of_parameters(self):
        self.refused(ParameterError, "beta must be a number above 0; got 0.0", beta=0)
        self.refused(ParameterTypeError, "beta", beta="1")
        self.refused(ParameterError, "loss must be one of 'squared', 'logistic'; got 'softmax'", loss="softmax")
        self.refused(ParameterError, "y must be -1 or 1 everywhere .*; got 0.0", loss="logistic", y=[0, 1, 1, 0, 1])

    def test_of_patterns(self):
        patterns = enumerate_arrangements(self.X)
        self.refused(DataError, r"patterns must be of shape \(n_patterns, 5\)", patterns=patterns.T)
        self.refused(DataError, r"got \(0, 5\)", patterns=patterns[:0])
        self.refused(DataError, "patterns must be boolean; got int64", patterns=np.where(patterns, 1, -1))

    def test_of_programs_that_are_too_large(self):
        rng = np.random.default_rng(0)
        X, y, patterns = rng.standard_normal((60, 3)), rng.standard_normal(60), np.ones((5000, 60), bool)
        with pytest.raises(ParameterError, match=r"2 n_patterns n must be at most 500000 .*; got 600000\. Pass"):
            solve_relu_program(X, y, beta=1.0, patterns=patterns)

    @pytest.mark.parametrize("solve", SOLVERS)
    def test_of_a_solver_that_does_not_finish(self, solve, monkeypatch):
        monkeypatch.setattr(programs, "_ATTEMPTS", ((1e-10, {"max_iter": 2}),))
        with pytest.raises(SolverError, match=r"status must be 'optimal'; got '\w+'\. Use a larger beta"):
            solve(self.X, self.y, beta=0.1)

    def test_a_failed_attempt_is_followed_by_the_next(self, monkeypatch):
        expected = solve_relu_program(self.X, self.y, beta=0.1).value
        monkeypatch.setattr(programs, "_ATTEMPTS", ((1e-10, {"max_iter": 2}), (1e-8, {})))
        assert solve_relu_program(self.X, self.y, beta=0.1).value == pytest.approx(expected, abs=1e-7)
