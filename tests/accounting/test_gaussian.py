import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile, gaussian_mu, log_delta
from noisycgd.accounting.gaussian import band, private_root, tradeoff_of_points

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def exact_log_delta(mu: float, epsilon: float) -> float:
    """phi(u) (M(u) - M(u + mu)) at 150 digits, enough for the cancellation at every argument used below."""
    with mpmath.workdps(150):
        mu_, epsilon_ = mpmath.mpf(mu), mpmath.mpf(epsilon)
        u = epsilon_ / mu_ - mu_ / 2

        def mills(t):
            return mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(t / mpmath.sqrt(2)) * mpmath.exp(t * t / 2)

        return mpmath.log(mills(u) - mills(u + mu_)) - u * u / 2 - mpmath.log(2 * mpmath.pi) / 2


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 0.5, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 2.5, 20.0, 300.0, 1e3])
@pytest.mark.parametrize("u", ["zero", -0.3, 0.0, 0.7, 3.0, 15.9, 16.1, 37.0, 100.0, 1e4])
def test_log_delta_is_an_upper_bound_within_its_promise(mu, u):
    epsilon = 0.0 if u == "zero" else max(0.0, (u + mu / 2) * mu)
    u = epsilon / mu - mu / 2
    excess = float(mpmath.mpf(float(log_delta(mu, epsilon))) - exact_log_delta(mu, epsilon))
    assert -1e-100 <= excess <= 2.0**-39 + 2.0**-51 * (1 + max(u, 0)) * (abs(u) + mu)


def test_log_delta_agrees_with_the_textbook_difference_where_that_is_stable():
    with mpmath.workdps(50):
        for mu, epsilon in [(0.5, 0.1), (1.0, 1.0), (4.0, 2.0), (3.0, 30.0)]:
            m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
            textbook = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            assert float(np.exp(log_delta(mu, epsilon)) / textbook) == pytest.approx(1.0, abs=1e-11)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.2, 0.0), (0.2, 0.5), (1.0, 1.0), (2.0, 8.0), (5.0, 3.0)])
def test_delta_agrees_with_dp_accounting(mu, epsilon):
    theirs = GaussianPrivacyLoss(standard_deviation=1.0 / mu).get_delta_for_epsilon(epsilon)
    assert GaussianProfile(mu).delta(epsilon) == pytest.approx(theirs, rel=1e-9)


def test_limits_and_shapes():
    assert log_delta([0.0, 0.0, np.inf, np.inf], [0.0, 3.0, 0.0, 3.0]).tolist() == [-np.inf, -np.inf, 0.0, 0.0]
    assert log_delta(np.ones((3, 1)), np.ones(4)).shape == (3, 4)
    assert log_delta(1.0, 1.0).shape == ()
    # Values whose logarithm no double can hold are the limits, not nan; all are silent.
    extreme = log_delta([1e-300, 1e-6, 5.0, 1e200], [1.0, 1e300, 1e300, 1.0])
    assert extreme.tolist() == [-np.inf, -np.inf, -np.inf, 0.0]
    # Far below the smallest double delta, log delta is still finite.
    assert float(log_delta(1e-6, 1.0)) == pytest.approx(-5e11, rel=1e-5)
    assert float(log_delta(5.0, 1e20)) == pytest.approx(-2e38, rel=1e-9)
    assert np.isfinite(log_delta(2.3e-308, 3.7e-203))


# Branches change at mu = 1, at u = 0 and u = mu for mu > 1, and at t = 16 inside the integral.
@pytest.mark.parametrize(
    ("mu", "epsilon"), [(1.0, 0.0), (1.0, 0.7), (1.0, 20.0), (2.0, 2.0), (2.0, 6.0), (0.5, 8.125), (0.5, 7.875)]
)
def test_no_jump_at_the_seams(mu, epsilon):
    steps = 1e-9 * np.arange(-2, 3)
    for values in (log_delta(mu + steps, epsilon), log_delta(mu, epsilon + steps - min(steps))):
        assert np.abs(np.diff(values, 2)).max() < 1e-12


@pytest.mark.parametrize(("epsilon", "delta", "mu"), ORACLES["gdp_mu"])
def test_gaussian_mu_oracle(epsilon, delta, mu):
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 1.0, 50.0, 1e3])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.3, 0.9])
def test_gaussian_mu_is_the_largest_and_on_the_private_side(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert np.exp(log_delta(mu, epsilon)) <= delta < np.exp(log_delta(mu * (1 + 1e-9), epsilon))


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 1e-5), (np.nan, 1e-5), (np.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_gaussian_mu_refuses(epsilon, delta):
    with pytest.raises(ParameterError, match="must be"):
        gaussian_mu(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 1e300])
@pytest.mark.parametrize("delta", [0.99, 1 - 1e-12, math.nextafter(1, 0)])
def test_gaussian_mu_ends_where_delta_is_next_to_one(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert 0 < mu < math.inf
    assert GaussianProfile(mu).delta(epsilon) <= delta


def test_gaussian_mu_names_an_epsilon_beyond_float64():
    with pytest.raises(ParameterError, match=r"^epsilon must be a number at most 1e\+300; got 1e\+308"):
        gaussian_mu(1e308, 1e-5)


def test_gaussian_mu_refuses_types():
    with pytest.raises(ParameterTypeError, match="epsilon"):
        gaussian_mu("1", 1e-5)


def test_private_root_survives_a_useless_slope():
    # A wrong slope turns Newton into bisection; the answer still lies on the private side.
    target = -10.0
    for slope in (0.0, 1.0, -1e-30, -1e30):
        x = private_root(lambda x, s=slope: (-x, s), 1e6, 0.0, target)
        assert 10.0 <= x <= 10.0 + 3 * band(target) + 1e-13


def test_private_root_returns_the_private_end_of_a_jump():
    x = private_root(lambda x: (-5.0 if x >= 3.0 else -1.0, -1.0), 100.0, 0.0, -4.0)
    assert x == pytest.approx(3.0, rel=1e-14)
    assert x >= 3.0


def test_lines_of_points_never_lie_above_the_exact_ones():
    generator = np.random.default_rng(5)
    epsilons, deltas, fpr = generator.uniform(0, 40, 30), generator.uniform(0, 1e-3, 30), np.geomspace(1e-18, 1, 200)
    found = tradeoff_of_points(epsilons, deltas, fpr)
    with mpmath.workdps(50):
        for value, rate in zip(found.tolist(), fpr.tolist(), strict=True):
            lines = [mpmath.mpf(0)]
            for epsilon, delta in zip(epsilons.tolist(), deltas.tolist(), strict=True):
                kept = 1 - mpmath.mpf(delta)
                lines += [kept - mpmath.exp(epsilon) * rate, mpmath.exp(-epsilon) * (kept - rate)]
            assert max(lines) - mpmath.mpf(2) ** -46 <= value <= max(lines)
    assert tradeoff_of_points(np.zeros(1), np.zeros(1), np.array([0.0, 0.25, 1.0])).tolist() == pytest.approx(
        [1, 0.75, 0]
    )
