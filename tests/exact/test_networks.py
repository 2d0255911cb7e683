import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits

from noisycgd._validation import DataError, ParameterError
from noisycgd.exact import (
    ReLUNetwork,
    enumerate_arrangements,
    network_objective,
    recover_network,
    sample_arrangements,
    solve_gated_program,
    solve_relu_program,
)

LOSSES = ["squared", "logistic"]


def data(n, d, loss="squared", seed=0):
    rng = np.random.default_rng(seed + 10 * n + d)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    return X, np.sign(y) if loss == "logistic" else y


def solved(X, y, **arguments):
    pytest.importorskip("cvxpy")
    return solve_relu_program(X, y, **arguments)


def trained(X, y, beta, loss, width, seed):
    """The rival: L-BFGS on the non-convex objective from a random start, with the gradient by hand."""
    d = X.shape[1]

    def objective(flat):
        U, a = flat[: width * d].reshape(width, d), flat[width * d :]
        hidden = np.maximum(X @ U.T, 0)
        f = hidden @ a
        if loss == "squared":
            value, slope = ((f - y) ** 2).sum() / 2, f - y
        else:
            value, slope = np.logaddexp(0, -y * f).sum(), -y * expit(-y * f)
        towards_U = ((slope[:, None] * a) * (hidden > 0)).T @ X + beta * U
        return value + beta / 2 * (flat @ flat), np.concatenate([towards_U.ravel(), hidden.T @ slope + beta * a])

    start = np.random.default_rng(seed).standard_normal(width * (d + 1)) * 0.7
    with threadpool_limits(1):  # more threads than work: on a busy machine they would wait for each other
        best = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x
    network = ReLUNetwork(best[: width * d].reshape(width, d), best[width * d :])
    return network_objective(network, X, y, beta=beta, loss=loss)


class TestNetwork:
    network = ReLUNetwork(np.array([[1.0, -2.0], [0.5, 1.0], [0.0, 3.0]]), np.array([2.0, -1.0, 0.5]))
    X = np.array([[1.0, 1.0], [2.0, 0.0], [-1.0, -1.0], [0.0, 0.0]])

    def test_predicts_neuron_by_neuron(self):
        expected = [
            sum(a * max(u @ x, 0.0) for u, a in zip(self.network.hidden, self.network.output, strict=True))
            for x in self.X
        ]
        assert self.network.predict(self.X).tolist() == expected == [0.0, 3.0, 2.0, 0.0]

    def test_objective_is_the_formula(self):
        y = np.array([1.0, -1.0, 1.0, -1.0])
        f = self.network.predict(self.X)
        norms = 5 + 1.25 + 9 + 4 + 1 + 0.25
        squared = ((f - y) ** 2).sum() / 2 + 0.3 / 2 * norms
        logistic = np.log(1 + np.exp(-y * f)).sum() + 0.3 / 2 * norms
        assert network_objective(self.network, self.X, y, beta=0.3) == pytest.approx(squared, rel=1e-14)
        assert network_objective(self.network, self.X, y, beta=0.3, loss="logistic") == pytest.approx(
            logistic, rel=1e-14
        )

    def test_without_neurons_is_zero(self):
        nothing = ReLUNetwork(np.zeros((0, 2)), np.zeros(0))
        assert nothing.predict(self.X).tolist() == [0.0] * 4
        assert network_objective(nothing, self.X, np.ones(4), beta=1.0) == 2.0

    def test_refusals(self):
        with pytest.raises(DataError, match=r"X must be of shape \(n, 2\); got \(1, 3\)"):
            self.network.predict([[1.0, 2.0, 3.0]])
        with pytest.raises(DataError, match=r"y must be of shape \(4,\)"):
            network_objective(self.network, self.X, np.ones(3), beta=0.1)
        with pytest.raises(ParameterError, match="beta must be a number at least 0"):
            network_objective(self.network, self.X, np.ones(4), beta=-0.1)


class TestRecovery:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(("n", "d", "beta"), [(1, 1, 0.1), (6, 2, 0.01), (10, 2, 0.3), (8, 3, 0.1), (4, 5, 0.05)])
    def test_network_attains_the_convex_optimum(self, n, d, beta, loss):
        X, y = data(n, d, loss)
        solution = solved(X, y, beta=beta, loss=loss)
        network = recover_network(solution)
        assert network_objective(network, X, y, beta=beta, loss=loss) == pytest.approx(solution.value, rel=1e-12)
        assert solution.gap < 1e-6
        np.testing.assert_allclose(network.predict(X), solution.outputs, atol=1e-10)

    def test_neurons_are_balanced_and_as_many_as_groups(self):
        X, y = data(8, 2)
        solution = solved(X, y, beta=0.05)
        network = recover_network(solution)
        np.testing.assert_allclose(np.linalg.norm(network.hidden, axis=1), np.abs(network.output), rtol=1e-12)
        for signed, groups in ((network.output > 0, solution.positive), (network.output < 0, solution.negative)):
            active = groups[np.linalg.norm(groups, axis=1) > 0]
            np.testing.assert_allclose(network.hidden[signed] * np.abs(network.output)[signed, None], active)
            assert len(active) > 0

    def test_with_degenerate_rows(self):
        X = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [-2.0, -4.0, -6.0], [1.0, -1.0, 0.0]])
        y = np.array([1.0, 0.5, 2.0, -1.0, 0.3])
        solution = solved(X, y, beta=0.05)
        network = recover_network(solution)
        assert network_objective(network, X, y, beta=0.05) == pytest.approx(solution.value, rel=1e-12)
        assert network.predict(X)[2] == 0.0

    def test_with_sampled_patterns_is_a_network_too(self):
        X, y = data(30, 4)
        solution = solved(X, y, beta=0.5, patterns=sample_arrangements(X, 25, 0))
        network = recover_network(solution)
        assert network_objective(network, X, y, beta=0.5) == pytest.approx(solution.value, rel=1e-12)
        assert solution.value < 0.8 * (y @ y) / 2

    def test_the_relaxed_model_is_a_network_on_the_training_rows(self):
        X, y = data(7, 2)
        pytest.importorskip("cvxpy")
        relaxed = solve_gated_program(X, y, beta=0.05)
        hidden, output = [], []
        for pattern, v in zip(relaxed.patterns, relaxed.weights, strict=True):
            signed = np.where(pattern, 1, -1)[:, None] * X
            inside = linprog(np.zeros(2), -signed, -np.ones(7), bounds=(None, None)).x
            # v + t u and t u lie in the cone for an interior u and a large t; their difference is v.
            t = max(0.0, -(signed @ v).min())
            hidden += [v + t * inside, t * inside]
            output += [1.0, -1.0]
        network = ReLUNetwork(np.array(hidden), np.array(output))
        np.testing.assert_allclose(network.predict(X), relaxed.outputs, atol=1e-9)

    def test_from_groups_outside_their_cones_would_be_wrong(self):
        # Negative control: there D X v is not (X v)_+.
        X, y = data(6, 2)
        solution = solved(X, y, beta=0.05)
        turned = type(solution)(
            **{f: getattr(solution, f) for f in solution.__dataclass_fields__} | {"positive": -solution.positive}
        )
        assert network_objective(recover_network(turned), X, y, beta=0.05) > solution.value + 0.1


class TestTraining:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(("n", "d", "beta", "seed"), [(5, 2, 0.1, 0), (6, 2, 0.02, 1), (5, 3, 0.2, 2)])
    def test_no_restart_beats_the_convex_optimum(self, n, d, beta, seed, loss):
        X, y = data(n, d, loss, seed)
        solution = solved(X, y, beta=beta, loss=loss)
        # Wide enough for the theorem: at least one neuron of either sign for every cone.
        width = 2 * len(enumerate_arrangements(X))
        reached = [trained(X, y, beta, loss, width, start) for start in range(15)]
        assert min(reached) >= solution.lower_bound
        # The bound is no empty one: wide networks come near, though gradients of a loss with kinks stall above it.
        assert min(reached) <= solution.value * 1.05

    @pytest.mark.parametrize("loss", LOSSES)
    def test_a_restart_reaches_it_where_training_is_easy(self, loss):
        X, y = data(3, 2, loss)
        solution = solved(X, y, beta=0.2, loss=loss)
        reached = [trained(X, y, 0.2, loss, 24, start) for start in range(10)]
        assert solution.lower_bound <= min(reached) <= solution.value + 1e-3
        # Negative control: one neuron is not enough, so the test can tell.
        assert trained(X, y, 0.2, loss, 1, 0) > solution.value + 1e-2

    @pytest.mark.parametrize("loss", LOSSES)
    def test_no_network_is_below_the_bound(self, loss):
        X, y = data(6, 2, loss)
        solution = solved(X, y, beta=0.1, loss=loss)
        best = recover_network(solution)
        rng = np.random.default_rng(0)
        for _ in range(500):
            size = 10.0 ** rng.uniform(-4, 0)
            hidden = best.hidden + size * rng.standard_normal(best.hidden.shape)
            moved = ReLUNetwork(hidden, best.output + size * rng.standard_normal(best.output.shape))
            assert network_objective(moved, X, y, beta=0.1, loss=loss) >= solution.lower_bound
