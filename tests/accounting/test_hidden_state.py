import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import cvxpy
import mpmath
import numpy as np
import pytest

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import (
    GaussianProfile,
    MixtureProfile,
    batch_weights,
    composition_mu,
    constant_multipliers,
    hidden_state_profile,
    multipliers,
)
from noisycgd.accounting.hidden_state import energy
from noisycgd.types import Order

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def program_s(rates, contractions, k, position, noise):
    """Twin: (S) as it is written, by a quadratic solver."""
    T = len(rates)
    a, w = cvxpy.Variable(T), cvxpy.Variable(T + 1)
    constraints = [a >= 0, w >= 0, w[0] == 0, w[T] == 0]
    for t in range(T):
        shift = rates[t] if t % k == position else 0.0
        constraints.append(w[t + 1] == contractions[t] * w[t] + shift - a[t])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(cvxpy.multiply(a, 1 / (rates * noise)))), constraints)
    problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return math.sqrt(problem.value)


def hull_energy(d, q):
    """Twin: the greatest convex minorant by gift wrapping over points, in linear space."""
    x, y = np.concatenate([[0.0], np.cumsum(q)]), np.concatenate([[0.0], np.cumsum(d)])
    i, total = 0, 0.0
    while i < len(d):
        slopes = (y[i + 1 :] - y[i]) / (x[i + 1 :] - x[i])
        step = len(slopes) - 1 - int(np.argmin(slopes[::-1]))
        j = i + 1 + step
        total += (y[j] - y[i]) ** 2 / (x[j] - x[i])
        i = j
    return total


@pytest.mark.parametrize(("k", "epochs", "eta_l2", "multiplier"), ORACLES["cyclic_mult"])
def test_constant_multipliers_oracle(k, epochs, eta_l2, multiplier):
    assert constant_multipliers(k, epochs, eta_l2)[-1] == pytest.approx(multiplier, rel=1e-11)


@pytest.mark.parametrize(("records", "noise", "epsilon", "eta_l2"), ORACLES["worst_position_eta_l2"])
def test_worst_position_oracle(records, noise, epsilon, eta_l2):
    profile = hidden_state_profile(constant_multipliers(records // 1000, 400, eta_l2), noise, Order.GIVEN)
    assert profile.epsilon(1e-5) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("case", ORACLES["schedule_mu"])
def test_schedule_oracle(case):
    t = np.arange(case["T"])
    rates = 0.05 * (1 + np.cos(np.pi * t / 120)) + 0.01 if "cos" in case["eta"] else np.full(case["T"], 0.1)
    noise_multiplier = case["raw_noise_std"] * case["b"] / case["C"]
    mus = 2 * multipliers(rates, 1 - case["l2"] * rates, case["k"]) / noise_multiplier
    assert mus == pytest.approx(case["mu_by_batch"], abs=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_multipliers_solve_program_s(seed):
    rng = np.random.default_rng(seed)
    k, T = int(rng.integers(1, 5)), int(rng.integers(2, 13))
    rates, noise = rng.uniform(0.2, 2.0, T), rng.uniform(0.5, 2.0, T)
    contractions = rng.uniform(0.5, 1.2, T)
    ours = multipliers(rates, contractions, k, noise)
    for position in range(min(k, T)):
        assert ours[position] == pytest.approx(program_s(rates, contractions, k, position, noise), rel=1e-5)
    assert np.all(ours[T:] == 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_energy_is_that_of_the_greatest_convex_minorant(seed):
    rng = np.random.default_rng(seed)
    d, q = rng.exponential(size=30) * (rng.random(30) < 0.7), rng.exponential(size=30)
    with np.errstate(divide="ignore"):
        log_d = np.log(d)
    assert energy(log_d, np.log(q)) == pytest.approx(hull_energy(d, q), rel=1e-12)


def test_energy_limits():
    assert energy([], []) == 0.0
    assert energy([-math.inf, -math.inf], [-math.inf, 0.0]) == 0.0
    assert energy([-4e6, -2e6, 0.0], [-8e6, -4e6, 0.0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("k", "epochs", "eta_l2"),
    [
        *[(1, 1, 0.1), (1, 20, 0.3), (2, 5, 0.5), (7, 30, 0.01), (60, 40, 5.4e-5), (60, 40, 0.0), (60, 40, 1e-12)],
        *[(50, 3, 0.2), (5, 9, 1.0), (3, 4, 1.7), (4, 6, 0.999), (13, 1, 0.05), (3, 50, 1.0 - 1e-9)],
    ],
)
def test_closed_form_equals_the_general_program(k, epochs, eta_l2):
    T = k * epochs
    general = multipliers(np.full(T, 0.3), np.full(T, abs(1 - eta_l2)), k)
    closed = constant_multipliers(k, epochs, eta_l2)
    assert closed == pytest.approx(general, rel=1e-9)
    assert np.argmax(closed) == k - 1


@pytest.mark.parametrize(("k", "epochs", "eta_l2"), [(60, 400, 1e-4), (3, 5, 0.4), (1, 7, 0.01), (1000, 10**6, 1e-9)])
def test_closed_form_rounds_up(k, epochs, eta_l2):
    with mpmath.workdps(60):
        c = 1 - mpmath.mpf(eta_l2)
        for j in {1, (k + 1) // 2, k}:
            a, y = k - j, c ** (k * (epochs - 1))
            earlier_d, last_d = c ** (a + k) * (1 - y) / (1 - c**k), c**a
            earlier_q = (c ** (2 * a + 2)) * (1 - y * y) / (1 - c * c)
            last_q = (1 - c ** (2 * a + 2)) / (1 - c * c)
            if earlier_d / earlier_q >= last_d / last_q:
                square = (earlier_d + last_d) ** 2 / (earlier_q + last_q)
            else:
                square = earlier_d**2 / earlier_q + last_d**2 / last_q
            ratio = constant_multipliers(k, epochs, eta_l2)[j - 1] / mpmath.sqrt(square)
            assert 1.0 <= float(ratio) <= 1.0 + 3e-12


def test_limits_of_the_closed_form():
    assert constant_multipliers(60, 400, 0.0)[-1] == pytest.approx(math.sqrt(1 + 399 / 60), rel=1e-11)
    assert constant_multipliers(60, 400, 0.0)[0] == pytest.approx(math.sqrt(400 / 60), rel=1e-11)
    assert constant_multipliers(60, 400, 1.0).tolist()[:-1] == [0.0] * 59
    assert constant_multipliers(60, 1, 1e-4)[-1] == pytest.approx(1.0, rel=1e-11)
    assert constant_multipliers(1, 100, 0.0)[0] == pytest.approx(10.0, rel=1e-11)


@pytest.mark.parametrize("eta_l2", [1e-300, 1e-200, 1e-100, 1e-30, 1e-14])
def test_small_regularisation_is_continuous(eta_l2):
    assert constant_multipliers(7, 30, eta_l2) == pytest.approx(constant_multipliers(7, 30, 0.0), rel=1e-10)


@pytest.mark.parametrize("eta_l2", [0.0, 1e-12, 1e-6, 0.5, 0.999, 1.0, 1.999])
@pytest.mark.parametrize("k", [1, 2, 10**5])
def test_huge_runs_are_finite(k, eta_l2):
    values = constant_multipliers(k, 10**12, eta_l2)
    assert values.shape == (k,)
    assert np.all(np.isfinite(values))
    assert values[-1] >= 1.0


def test_long_schedules_do_not_underflow():
    T = 100_000
    general = multipliers(np.full(T, 0.1), np.full(T, 0.5), 50)
    assert general == pytest.approx(constant_multipliers(50, T // 50, 0.5), rel=1e-9)


def test_a_contraction_of_zero_forgets_the_past():
    rates, contractions = np.full(12, 0.1), np.full(12, 0.9)
    contractions[6] = 0.0
    forgetful = multipliers(rates, contractions, 3)
    # Step 6 itself still shifts and adds noise: the same run started there.
    assert forgetful == pytest.approx(multipliers(rates[6:], contractions[6:], 3), rel=1e-11)
    assert multipliers(rates, np.zeros(12), 3) == pytest.approx([0.0, 0.0, 1.0])


def test_steps_without_learning_change_nothing():
    rates, contractions = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.9, 0.8, 0.9, 0.8])
    idle = multipliers(np.append(rates, [0.0, 0.0]), np.append(contractions, [1.0, 1.0]), 2)
    assert idle == pytest.approx(multipliers(rates, contractions, 2), rel=1e-11)


def test_unused_positions_and_scale():
    rates = np.array([0.3, 0.2])
    assert multipliers(rates, [1.0, 1.0], 5)[2:].tolist() == [0.0, 0.0, 0.0]
    # Doubling every learning rate or the common noise factor scales as the definition says.
    rng = np.random.default_rng(3)
    rates, contractions = rng.uniform(0.1, 1, 20), rng.uniform(0.8, 1, 20)
    base = multipliers(rates, contractions, 4)
    assert multipliers(2 * rates, contractions, 4) == pytest.approx(base, rel=1e-12)
    assert multipliers(rates, contractions, 4, np.full(20, 2.0)) == pytest.approx(base / 2, rel=1e-12)


def test_decay_is_almost_free():
    # THEORY section 1: linear decay, no l2, 60 x 400 steps, noise multiplier 15: 1.4212 -> 1.4278 at delta = 1e-5.
    T = 24_000
    decay = multipliers(1 - 0.98 * np.arange(T) / (T - 1), np.ones(T), 60)
    flat = constant_multipliers(60, 400, 0.0)
    assert hidden_state_profile(flat, 15.0, Order.GIVEN).epsilon(1e-5) == pytest.approx(1.4212, abs=1e-4)
    assert hidden_state_profile(decay, 15.0, Order.GIVEN).epsilon(1e-5) == pytest.approx(1.4278, abs=1e-4)


def test_batch_weights():
    assert batch_weights(10, 4) == pytest.approx([0.4, 0.4, 0.2])
    assert batch_weights(8, 4).tolist() == [0.5, 0.5]
    assert batch_weights(3, 10).tolist() == [1.0]
    assert batch_weights(60_001, 1000).sum() == pytest.approx(1.0)


def test_profiles_by_order():
    m = [1.0, 2.0, 3.0]
    assert hidden_state_profile(m, 4.0, Order.GIVEN) == GaussianProfile(1.5)
    assert hidden_state_profile(m, 4.0, Order.GIVEN, [0.8, 0.2, 0.0]) == GaussianProfile(1.5)
    assert hidden_state_profile(m, 4.0, Order.PERMUTED, [0.4, 0.4, 0.2]) == MixtureProfile(
        (0.5, 1, 1.5), (0.4, 0.4, 0.2)
    )
    assert hidden_state_profile(m, 4.0, Order.PERMUTED).weights == pytest.approx([1 / 3] * 3)


def test_composition():
    assert 4.0 < composition_mu(400, 10.0) < 4.0 * (1 + 1e-15)
    for uses, noise in itertools.product((1, 2, 3, 7, 400, 10**6 + 1), (0.3, 1.0, 7.7, 1e3)):
        assert Fraction(composition_mu(uses, noise)) ** 2 >= Fraction(4 * uses) / Fraction(noise) ** 2
    # Full batches without regularisation gain nothing over composition.
    assert 2 * constant_multipliers(1, 400, 0.0)[0] / 10.0 == pytest.approx(composition_mu(400, 10.0), rel=1e-11)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: constant_multipliers(0, 1, 0.1), "batches_per_epoch"),
        (lambda: constant_multipliers(1, 0, 0.1), "epochs"),
        (lambda: constant_multipliers(1, 1, -0.1), "eta_l2"),
        (lambda: constant_multipliers(1, 1, 2.0), "eta_l2"),
        (lambda: constant_multipliers(1, 1, math.nan), "eta_l2"),
        (lambda: multipliers([], [], 1), "learning_rates"),
        (lambda: multipliers([-0.1], [1.0], 1), "learning_rates"),
        (lambda: multipliers([0.1, 0.1], [1.0], 1), "contractions"),
        (lambda: multipliers([0.1], [-1.0], 1), "contractions"),
        (lambda: multipliers([0.1], [math.inf], 1), "contractions"),
        (lambda: multipliers([0.1], [1.0], 0), "batches_per_epoch"),
        (lambda: multipliers([0.1], [1.0], 1, [0.0]), "noise_multipliers"),
        (lambda: multipliers([0.1], [1.0], 1, [1.0, 1.0]), "noise_multipliers"),
        (lambda: batch_weights(0, 1), "n_records"),
        (lambda: batch_weights(1, 0), "batch_size"),
        (lambda: hidden_state_profile([1.0], 0.0, Order.GIVEN), "noise_multiplier"),
        (lambda: hidden_state_profile([-1.0], 1.0, Order.GIVEN), "multipliers"),
        (lambda: hidden_state_profile([1.0], 1.0, "sorted"), "order"),
        (lambda: hidden_state_profile([1.0, 2.0], 1.0, Order.PERMUTED, [1.0]), "weights"),
        (lambda: hidden_state_profile([1.0, 2.0], 1.0, Order.PERMUTED, [0.9, 0.2]), "weights"),
        (lambda: composition_mu(0, 1.0), "epochs"),
        (lambda: composition_mu(1, 0.0), "noise_multiplier"),
    ],
)
def test_refusals(call, name):
    with pytest.raises(ParameterError, match=f"^{name} must be"):
        call()


def test_types_are_refused():
    with pytest.raises(ParameterTypeError, match="epochs"):
        constant_multipliers(1, 1.5, 0.1)
    with pytest.raises(ParameterTypeError, match="noise_multiplier"):
        hidden_state_profile([1.0], "5", Order.GIVEN)


# --- rounding errors and bounded domains (THEORY sections 1 and 5) --------------------------------------------------


def _shift_program(rates, contractions, uses, *, start=0.0, error=0.0):
    """Program (S) by a QP solver: distance `start` before the first step, `error` times each shift at every step."""
    T = len(rates)
    a = cvxpy.Variable(T)
    w, constraints = start, [a >= 0]
    for t in range(T):
        w = contractions[t] * w + 2 * rates[t] * (uses[t] + 2 * error) - a[t]
        constraints.append(w >= 0)
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(cvxpy.multiply(a, 1 / np.asarray(rates)))), [*constraints, w == 0]
    )
    problem.solve(solver="CLARABEL")
    return math.sqrt(problem.value) / 2


@pytest.mark.parametrize(("T", "k"), [(12, 4), (14, 4), (5, 5), (7, 1)])
@pytest.mark.parametrize("error", [1e-3, 0.05])
def test_rounding_errors_shift_every_step(T, k, error):
    rng = np.random.default_rng(T * k)
    rates, contractions = rng.uniform(0.2, 1, T), rng.uniform(0.7, 1, T)
    found = multipliers(rates, contractions, k, map_error=error)
    for j in range(k):
        expected = _shift_program(rates, contractions, np.arange(T) % k == j, error=error)
        assert found[j] == pytest.approx(expected, rel=1e-6)
    assert np.all(found > multipliers(rates, contractions, k))


@pytest.mark.parametrize(("error", "multiplier"), [(1e-6, 2.366447), (1e-4, 2.389713), (1e-3, 2.603234)])
def test_rounding_errors_cost_what_theory_says(error, multiplier):
    """Worst position of k = 60, E = 400, eta l2 = 1e-4; the energy alone, since all positions would take seconds."""
    T = 60 * 400
    log_d = (T - 1 - np.arange(T)) * math.log1p(-1e-4)
    shifts = np.logaddexp(np.where(np.arange(T) % 60 == 59, log_d, -np.inf), math.log(2 * error) + log_d)
    assert math.sqrt(energy(shifts.tolist(), (2 * log_d).tolist())) == pytest.approx(multiplier, abs=1e-6)


def test_a_record_that_is_never_used_costs_nothing_whatever_the_errors():
    assert multipliers([1.0, 1.0], [1.0, 1.0], 3, map_error=0.1)[2] == 0.0


@pytest.mark.parametrize(("T", "k"), [(12, 4), (11, 4), (6, 1), (9, 3)])
@pytest.mark.parametrize("diameter", [0.1, 1.0, 100.0])
def test_a_bounded_domain_is_the_least_over_start_epochs(T, k, diameter):
    rng = np.random.default_rng(T)
    rates, contractions = rng.uniform(0.2, 1, T), rng.uniform(0.8, 1, T)
    found = multipliers(rates, contractions, k, diameter=diameter)
    for j in range(k):
        uses = np.arange(T) % k == j
        candidates = [_shift_program(rates, contractions, uses)] + [
            _shift_program(rates[t:], contractions[t:], uses[t:], start=diameter) for t in range(0, T, k)
        ]
        assert found[j] == pytest.approx(min(candidates), rel=1e-6)


def test_a_bounded_domain_stops_epsilon_from_growing():
    def worst(epochs, diameter):
        return multipliers(np.ones(4 * epochs), np.ones(4 * epochs), 4, diameter=diameter).max()

    assert worst(400, 2.0) == pytest.approx(worst(100, 2.0), rel=0.01)
    assert worst(400, 2.0) < worst(400, None) / 5
    assert worst(400, 1e9) == pytest.approx(worst(400, None))
    assert worst(400, 1.0) <= worst(400, 2.0)


def test_errors_and_a_diameter_are_not_mixed():
    with pytest.raises(ParameterError, match="diameter must be None where map_error is given"):
        multipliers([1.0], [1.0], 1, map_error=0.1, diameter=1.0)
    with pytest.raises(ParameterError, match="diameter"):
        multipliers([1.0], [1.0], 1, diameter=0.0)
