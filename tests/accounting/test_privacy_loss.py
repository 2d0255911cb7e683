import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from noisycgd.accounting.pld import _ROUNDING
from noisycgd.accounting.privacy_loss import LossGrid, discretise, log_normal_masses, merge, spread

ATOMS = st.lists(st.tuples(st.floats(-6.0, 6.0), st.floats(1e-6, 1.0)), min_size=1, max_size=40)
EPSILONS = np.linspace(-3.0, 3.0, 61)


def exact_delta(losses, masses, epsilon):
    """The obvious twin: sum of (p - e^epsilon q)_+ over the outputs."""
    return np.maximum(-np.expm1(np.asarray(epsilon)[..., None] - losses), 0.0) @ masses


def as_pair(atoms):
    losses, masses = np.array(atoms).T
    return losses, masses / masses.sum()


def gaussian_masses(mu):
    def masses(losses):
        return log_normal_masses(losses / mu - mu / 2), log_normal_masses(losses / mu + mu / 2)

    return masses


@settings(deadline=None, max_examples=150)
@given(ATOMS, st.floats(0.05, 3.0))
def test_roundings_bracket_any_pair(atoms, interval):
    losses, masses = as_pair(atoms)
    exact = exact_delta(losses, masses, EPSILONS)
    assert np.all(spread(losses / interval, masses, interval).delta(EPSILONS) >= exact - 1e-12)
    assert np.all(merge(losses / interval, masses, interval).delta(EPSILONS) <= exact + 1e-12)


@settings(deadline=None, max_examples=60)
@given(ATOMS, ATOMS, st.floats(0.3, 2.0))
# Nearly all mass at one loss: tilting it costs digits, 3e-12 of the result here.
@example([(0.0, 1.0)], [(-5.960464477539063e-08, 1.0)], 1.0)
# So little mass is held back that a share of it is beyond all doubles.
@example([(0.0, 1.0)], [(1.5, 1.0), (1.1125369292536007e-308, 0.0078125)], 1.0)
def test_roundings_bracket_a_composition(first, second, interval):
    (a, p), (b, q) = as_pair(first), as_pair(second)
    exact = exact_delta(np.add.outer(a, b).ravel(), np.multiply.outer(p, q).ravel(), EPSILONS)
    upper, lower = (
        rounding(a / interval, p, interval).compose(rounding(b / interval, q, interval)) for rounding in (spread, merge)
    )
    # Profiles made of such grids allow `_ROUNDING` for the digits that doubles lose; this is a quarter of it.
    digits = _ROUNDING / 4
    assert np.all(upper.delta(EPSILONS) >= exact * (1 - digits) - 1e-12)
    assert np.all(lower.delta(EPSILONS) <= exact * (1 + digits) + 1e-12)


def test_the_bracket_test_can_fail():
    # Rounding to the nearest grid loss keeps neither order.
    losses, masses = np.array([0.4, -0.4]), np.array([0.6, 0.4])
    nearest = LossGrid(1.0, 0, np.array([1.0]), 0.0, True)
    assert nearest.delta(np.zeros(1))[0] < exact_delta(losses, masses, np.zeros(1))[0]


def test_spread_keeps_both_masses_and_is_exact_on_the_grid():
    rng = np.random.default_rng(0)
    losses, masses = rng.normal(size=200), rng.dirichlet(np.ones(200))
    grid = spread(losses / 0.25, masses, 0.25)
    assert grid.masses.sum() == pytest.approx(1.0, abs=1e-14)
    assert grid.masses @ np.exp(-grid.losses) == pytest.approx(masses @ np.exp(-losses), rel=1e-13)
    assert grid.delta(grid.losses) == pytest.approx(exact_delta(losses, masses, grid.losses), rel=1e-10, abs=1e-15)


@pytest.mark.parametrize("steps", [2, 40])
def test_errors_are_quadratic_in_the_interval(steps):
    mu, gaps = 1.0 / np.sqrt(steps), []
    for parts in (4, 8, 16):
        upper, lower = discretise(gaussian_masses(mu), -9 * mu, 9 * mu + mu**2, mu / parts)
        gaps.append(upper.power(steps).epsilon(1e-3) - lower.power(steps).epsilon(1e-3))
    ratios = np.array(gaps[:-1]) / gaps[1:]
    assert np.all(ratios > 3.0)


def test_normal_masses_keep_relative_precision_in_both_tails():
    points = np.array([-400.0, -38.0, -37.0, -1.0, 0.0, 1.0, 37.0, 38.0, 400.0])
    logs = log_normal_masses(points)
    assert logs == pytest.approx(logs[::-1], rel=1e-14)
    assert logs[1] == pytest.approx(np.log(ndtr(-37.0)), rel=1e-12)
    assert log_normal_masses(np.array([300.0, np.inf]))[0] == pytest.approx(log_ndtr(-300.0), rel=1e-14)
    assert log_normal_masses(np.array([-np.inf, np.inf])).tolist() == [0.0]
    assert log_normal_masses(np.array([np.inf, np.inf])).tolist() == [-np.inf]


def test_delta_and_epsilon_are_inverse():
    rng = np.random.default_rng(1)
    grid = LossGrid(0.1, -30, rng.dirichlet(np.ones(80)) * (1 - 1e-9), 1e-9, True)
    exact = exact_delta(grid.losses, grid.masses, EPSILONS) + 1e-9
    assert grid.delta(EPSILONS) == pytest.approx(exact, rel=1e-12)
    for delta in (0.3, 0.01, 1e-5, 2e-9):
        assert float(grid.delta(np.array(grid.epsilon(delta)))) == pytest.approx(delta, rel=1e-9)
    assert grid.epsilon(0.999) == 0.0
    assert grid.epsilon(0.9e-9) == np.inf
    assert grid.delta(np.array([1e3])).tolist() == [1e-9]


def test_curve_is_that_of_neyman_and_pearson():
    grid = LossGrid(1.0, -1, np.array([0.2, 0.3, 0.5]), 0.0, True)
    fpr, fnr = grid.curve
    q = grid.masses * np.exp(-grid.losses)
    assert fpr == pytest.approx([0.0, q[2], q[1] + q[2], min(q.sum(), 1.0), 1.0])
    assert fnr == pytest.approx([1.0, 0.5, 0.2, 0.0, 0.0])


def test_a_certain_loss_composes():
    grid = LossGrid(0.5, 2, np.array([1.0]), 0.0, True)
    total = grid.power(3)
    assert total.losses @ total.masses == pytest.approx(3.0, abs=1e-12)
    assert total.deviation < 1e-6
    assert grid.power(1) is grid


@pytest.mark.parametrize("rounding", [spread, merge])
def test_regrid_rounds_the_same_way(rounding):
    rng = np.random.default_rng(2)
    fine = rounding(rng.normal(size=500) / 0.01, np.full(500, 1 / 500), 0.01)
    coarse = fine.regrid(0.037)
    difference = coarse.delta(EPSILONS) - fine.delta(EPSILONS)
    assert fine.regrid(0.01) is fine
    assert np.all(difference >= -1e-12) if coarse.pessimistic else np.all(difference <= 1e-12)
    assert np.max(np.abs(difference)) < 5e-3
