import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import (
    GaussianProfile,
    MixtureProfile,
    composition_mu,
    constant_multipliers,
    hidden_state_profile,
    log_delta,
)
from noisycgd.types import CYCLIC_ORDERS, Adjacency, Order

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
PROFILES = [
    GaussianProfile(1e-6),
    GaussianProfile(0.3),
    GaussianProfile(1.0),
    GaussianProfile(8.0),
    GaussianProfile(1e3),
    MixtureProfile((0.1, 0.5, 2.0), (0.2, 0.7, 0.1)),
    MixtureProfile((0.0, 1.0), (0.5, 0.5)),
    MixtureProfile((1e-3, 30.0), (0.999, 0.001)),
    MixtureProfile((0.0, 0.01, 20.0), (0.9, 0.09, 0.01)),
]


@pytest.mark.parametrize(("mu", "delta", "epsilon"), ORACLES["gdp_epsilon"])
def test_gaussian_epsilon_oracle(mu, delta, epsilon):
    assert GaussianProfile(mu).epsilon(delta) == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize(("k", "epochs", "eta_l2", "noise", "epsilon"), ORACLES["permuted_epsilon"])
def test_permuted_epsilon_oracle(k, epochs, eta_l2, noise, epsilon):
    profile = hidden_state_profile(constant_multipliers(k, epochs, eta_l2), noise, Order.PERMUTED)
    assert profile.epsilon(1e-5) == pytest.approx(epsilon, abs=1e-8)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("delta", [0.999, 0.4, 0.05, 2e-3, 1e-5, 1e-12, 1e-100, 1e-300])
def test_epsilon_is_private_and_smallest(profile, delta):
    epsilon = profile.epsilon(delta)
    assert profile.delta(epsilon) <= delta
    if epsilon == 0.0:
        assert profile.delta(0.0) <= delta
    else:
        assert profile.delta(epsilon * (1 - 1e-9)) > delta


@pytest.mark.parametrize("profile", PROFILES)
def test_epsilon_zero_is_exact(profile):
    at_zero = profile.delta(0.0)
    assert profile.epsilon(min(at_zero, 1 - 1e-12)) == 0.0 or at_zero == 1.0
    assert profile.epsilon(at_zero * 0.9) > 0.0


def test_epsilon_beyond_floating_point():
    assert GaussianProfile(1e200).epsilon(1e-5) == np.inf
    assert GaussianProfile(0.0).epsilon(1e-5) == 0.0


def test_mixture_delta_is_the_average():
    mus, weights, epsilon = np.array([0.1, 0.5, 2.0]), np.array([0.2, 0.7, 0.1]), np.linspace(0, 5, 2500)
    expected = np.exp(log_delta(mus, epsilon[:, None])) @ weights
    assert MixtureProfile(tuple(mus), tuple(weights)).delta(epsilon) == pytest.approx(expected, rel=1e-14)


def test_one_component_and_equal_components_are_gaussian():
    gaussian, grid = GaussianProfile(0.7), np.linspace(0, 4, 9)
    for mixture in (
        MixtureProfile((0.7,), (1.0,)),
        MixtureProfile((0.7, 0.7), (0.25, 0.75)),
        MixtureProfile((0.7, 9.0), (1.0, 0.0)),
    ):
        assert mixture.mu == 0.7
        assert mixture.epsilon(1e-6) == gaussian.epsilon(1e-6)
        assert mixture.delta(grid).tolist() == gaussian.delta(grid).tolist()


def test_shapes():
    profile = PROFILES[5]
    assert isinstance(profile.delta(1.0), float)
    assert isinstance(profile.delta(np.float64(1.0)), float)
    assert isinstance(profile.tradeoff(0.5), float)
    assert profile.delta(np.ones((2, 3))).shape == (2, 3)
    assert profile.tradeoff(np.full((2, 3), 0.5)).shape == (2, 3)
    assert profile.delta([]).shape == (0,)
    assert profile.tradeoff([]).shape == (0,)


def test_gaussian_tradeoff_closed_form():
    fpr = np.array([1e-300, 1e-12, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-9])
    for mu in (1e-6, 0.3, 1.0, 8.0):
        exact, ours = ndtr(-ndtri(fpr) - mu), GaussianProfile(mu).tradeoff(fpr)
        assert np.all(ours <= exact * (1 + 1e-15))
        assert ours == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("profile", [p for p in PROFILES if p.mu < 100])
def test_tradeoff_and_profile_are_dual(profile):
    # delta(epsilon) = max over fpr of 1 - e^epsilon fpr - tradeoff(fpr), attained at the threshold tau = epsilon.
    mus, weights = np.maximum(profile.components[0], 1e-300), profile.components[1]
    fpr = np.concatenate([np.logspace(-12, -1, 40), np.linspace(0.1, 1, 40)])
    for epsilon in (0.0, 0.3, 1.0, 4.0):
        gap = 1 - np.exp(epsilon) * fpr - profile.tradeoff(fpr)
        assert np.all(gap <= profile.delta(epsilon) + 1e-10)
        with np.errstate(over="ignore"):
            best = float(ndtr(-epsilon / mus - mus / 2) @ weights)
        attained = 1 - np.exp(epsilon) * best - profile.tradeoff(best)
        assert attained == pytest.approx(profile.delta(epsilon), rel=1e-8, abs=1e-10)


def test_tradeoff_resolves_the_atom_of_an_uninformative_component():
    # Half the time nothing is learned: between the rates just above and below tau = 0 the curve has slope -1 exactly.
    profile, tail = PROFILES[6], ndtr(-0.5)
    fpr = np.linspace(0.5 * tail, 0.5 * tail + 0.5, 7)
    assert profile.tradeoff(fpr) + fpr == pytest.approx(0.5 + tail, abs=1e-10)


@pytest.mark.parametrize("profile", PROFILES)
def test_tradeoff_ends_are_exact_and_the_curve_is_symmetric(profile):
    assert profile.tradeoff(0.0) == 1.0
    assert profile.tradeoff(1.0) == 0.0
    grid = np.array([1e-3, 0.1, 0.4])
    if profile.mu < 5:
        assert profile.tradeoff(profile.tradeoff(grid)) == pytest.approx(grid, abs=1e-8)


def test_tradeoff_without_information_is_the_diagonal():
    fpr = np.linspace(0, 1, 11)
    assert GaussianProfile(0.0).tradeoff(fpr).tolist() == (1 - fpr).tolist()
    assert MixtureProfile((0.0, 3.0), (1.0, 0.0)).tradeoff(fpr).tolist() == (1 - fpr).tolist()


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_arguments_out_of_range(bad):
    profile = PROFILES[5]
    for call in (profile.delta, profile.tradeoff, profile.epsilon, GaussianProfile):
        with pytest.raises(ParameterError, match="must be"):
            call(bad)
    with pytest.raises(ParameterError, match="epsilon"):
        profile.delta([0.0, bad])


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0])
def test_delta_must_be_strictly_inside(delta):
    with pytest.raises(ParameterError, match="delta must be"):
        GaussianProfile(1.0).epsilon(delta)


def test_types_are_refused():
    with pytest.raises(ParameterTypeError, match="epsilon"):
        GaussianProfile(1.0).delta("one")
    with pytest.raises(ParameterTypeError, match="mu"):
        GaussianProfile("one")
    with pytest.raises(ParameterError, match="fpr"):
        GaussianProfile(1.0).tradeoff(1.1)


@pytest.mark.parametrize(
    ("mus", "weights", "name"),
    [
        ((), (), "mus"),
        ((1.0,), (0.5, 0.5), "weights"),
        ((1.0, 2.0), (0.5, 0.6), "weights"),
        ((1.0, 2.0), (1.5, -0.5), "weights"),
        ((-1.0, 2.0), (0.5, 0.5), "mus"),
        ((np.inf, 2.0), (0.5, 0.5), "mus"),
        (("a", 2.0), (0.5, 0.5), "mus"),
        (((1.0, 2.0),), (1.0,), "mus"),
    ],
)
def test_mixture_refuses(mus, weights, name):
    with pytest.raises(ParameterError, match=f"^{name} must be"):
        MixtureProfile(mus, weights)


def test_profiles_are_values():
    assert GaussianProfile(1) == GaussianProfile(1.0)
    assert MixtureProfile([1.0, 2.0], [0.5, 0.5]) == MixtureProfile((1.0, 2.0), (0.5, 0.5))
    assert len({MixtureProfile((1.0,), (1.0,)), MixtureProfile((1.0,), (1.0,))}) == 1
    with pytest.raises(AttributeError):
        GaussianProfile(1.0).mu = 2.0


def test_adjacency_is_replace_one_unless_stated_and_is_checked():
    assert GaussianProfile(1.0).adjacency is MixtureProfile((1.0,), (1.0,)).adjacency is Adjacency.REPLACE_ONE
    assert GaussianProfile(1.0, adjacency="add-remove").adjacency is Adjacency.ADD_REMOVE
    assert GaussianProfile(1.0) != GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(ParameterError, match="adjacency must be one of"):
        MixtureProfile((1.0,), (1.0,), adjacency="neighbours")
    with pytest.raises(TypeError, match="positional"):
        GaussianProfile(1.0, Adjacency.ADD_REMOVE)


def test_groups_and_replacement_scale_the_worst_mu():
    added = MixtureProfile((0.0, 1.0), (0.5, 0.5), adjacency=Adjacency.ADD_REMOVE)
    assert GaussianProfile(0.3).group(3) == GaussianProfile(0.3 * 3)
    assert added.group(1) == GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE)
    assert added.to_replace_one() == GaussianProfile(2.0)
    assert GaussianProfile(0.5, adjacency=Adjacency.ADD_REMOVE).to_replace_one() == GaussianProfile(1.0)
    with pytest.raises(ParameterError, match="size must be"):
        added.group(0)
    with pytest.raises(ParameterTypeError, match="size must be"):
        added.group(1.5)


def test_gaussian_composition_rounds_up():
    total = GaussianProfile(3.0).compose(GaussianProfile(4.0))
    assert 5.0 < total.mu <= 5.0 * (1 + 2**-51)
    assert GaussianProfile(3.0).compose(GaussianProfile(0.0)) == GaussianProfile(3.0)


@pytest.mark.parametrize("k", [2, 60])
@pytest.mark.parametrize("epochs", [1, 400])
@pytest.mark.parametrize("eta_l2", [0.0, 1e-4, 0.3])
def test_hidden_state_never_exceeds_composition(k, epochs, eta_l2):
    composition = GaussianProfile(composition_mu(epochs, 5.0))
    for order in CYCLIC_ORDERS:
        hidden = hidden_state_profile(constant_multipliers(k, epochs, eta_l2), 5.0, order)
        assert hidden.epsilon(1e-5) <= composition.epsilon(1e-5) * (1 + 1e-10)
