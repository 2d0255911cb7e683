import mpmath
import numpy as np
import pytest

from noisycgd._validation import ParameterError
from noisycgd.accounting import ConvertedProfile, GaussianProfile, MixtureProfile, poisson_profile
from noisycgd.types import Adjacency

ADDED = GaussianProfile(0.5, adjacency=Adjacency.ADD_REMOVE)
POISSON = poisson_profile(100, 10, 2.0, steps=20, adjacency=Adjacency.ADD_REMOVE)
GRID = np.linspace(0.0, 12.0, 49)


@pytest.mark.parametrize("base", [ADDED, POISSON])
def test_delta_is_the_stated_formula(base):
    expected = np.minimum((1 + np.exp(GRID / 2)) * base.delta(GRID / 2), 1.0)
    assert ConvertedProfile(base).delta(GRID) == pytest.approx(expected, rel=1e-12)
    assert ConvertedProfile(base).adjacency is Adjacency.REPLACE_ONE


def test_it_bounds_what_is_known_exactly():
    assert np.all(ConvertedProfile(ADDED).delta(GRID) >= ADDED.to_replace_one().delta(GRID))
    direct = poisson_profile(100, 10, 2.0, steps=20)
    assert np.all(POISSON.to_replace_one().delta(GRID) >= direct.delta_lower(GRID))
    fpr = np.linspace(0.0, 1.0, 21)
    assert np.all(ConvertedProfile(ADDED).tradeoff(fpr) <= ADDED.to_replace_one().tradeoff(fpr) + 1e-12)


@pytest.mark.parametrize("base", [ADDED, POISSON])
def test_epsilon_is_private_and_tight(base):
    profile = ConvertedProfile(base)
    for delta in (0.5, 1e-3, 1e-5, 1e-9):
        epsilon = profile.epsilon(delta)
        assert profile.delta(epsilon) <= delta
        assert epsilon == 0.0 or profile.delta(epsilon * (1 - 1e-6)) > delta
    assert profile.epsilon(0.9999999) == 0.0


def test_epsilon_is_continuous_at_the_delta_where_it_is_zero():
    profile = ConvertedProfile(ADDED)
    at_zero = profile.delta(0.0)
    assert profile.epsilon(at_zero) == 0.0
    for below in (1e-16, 1e-15, 1e-12, 1e-6):
        epsilon = profile.epsilon(at_zero * (1.0 - below))
        assert 0.0 < epsilon < 10 * below + 1e-9
        assert profile.delta(epsilon) <= at_zero * (1.0 - below)


def test_a_delta_that_no_double_holds_is_not_zero():
    # e^975 times it is far above 1.
    base = GaussianProfile(20.0, adjacency=Adjacency.ADD_REMOVE)
    assert base.delta(975.0) == 0.0
    assert ConvertedProfile(base).delta(1950.0) == 1.0
    epsilon = ConvertedProfile(base).epsilon(1e-5)
    with mpmath.workdps(400):
        half = mpmath.mpf(epsilon) / 2
        exact = mpmath.ncdf(10 - half / 20) - mpmath.exp(half) * mpmath.ncdf(-10 - half / 20)
        assert (1 + mpmath.exp(half)) * exact == pytest.approx(1e-5, rel=1e-6)
    steep = MixtureProfile((20.0,), (1.0,), adjacency=Adjacency.ADD_REMOVE)
    assert ConvertedProfile(steep).delta(1950.0) == 1.0
    assert ConvertedProfile(steep).epsilon(1e-5) == np.inf


def test_tradeoff_agrees_with_delta():
    profile = ConvertedProfile(ADDED)
    fpr = np.linspace(0.0, 1.0, 11)
    for epsilon in (0.5, 2.0):
        assert np.all(profile.tradeoff(fpr) >= 1 - profile.delta(epsilon) - np.exp(epsilon) * fpr - 1e-2)
    assert profile.tradeoff(0.0) > 0.99
    assert profile.tradeoff(1.0) == 0.0


@pytest.mark.parametrize(
    "base", [GaussianProfile(1.0), MixtureProfile((1.0,), (1.0,)), poisson_profile(10, 10, 1.0, steps=1)]
)
def test_replace_one_is_not_converted(base):
    with pytest.raises(ParameterError, match=r"adjacency must be 'add-remove'"):
        ConvertedProfile(base)
    with pytest.raises(ParameterError, match=r"adjacency must be 'add-remove'"):
        base.to_replace_one()
