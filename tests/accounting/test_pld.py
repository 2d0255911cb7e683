import subprocess
import sys

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import (
    GaussianProfile,
    MixtureProfile,
    PLDProfile,
    compose,
    compose_shared_permutation,
    constant_multipliers,
    hidden_state_profile,
    poisson_profile,
)
from noisycgd.accounting.pld import to_pld
from noisycgd.types import Adjacency, Order

MIXTURES = [
    MixtureProfile((0.1, 0.5, 2.0), (0.2, 0.7, 0.1)),
    MixtureProfile((0.0, 1.0), (0.5, 0.5)),
    MixtureProfile((0.0, 0.01, 8.0), (0.9, 0.09, 0.01)),
    hidden_state_profile(constant_multipliers(60, 400, 5.4e-5), 15.0, Order.PERMUTED),
]
GRID = np.linspace(0.0, 6.0, 61)
DELTAS = [0.1, 1e-3, 1e-5, 1e-9, 1e-13]


@pytest.mark.parametrize("profile", [*MIXTURES, *(GaussianProfile(mu) for mu in (1e-4, 0.3, 1.0, 8.0, 300.0))])
def test_bounds_hold_and_bracket_the_closed_form(profile):
    pld = to_pld(profile)
    exact = profile.delta(GRID)
    upper, lower = pld.delta(GRID), pld.delta_lower(GRID)
    assert np.all(upper >= exact * (1 - 1e-10))
    assert np.all(lower <= exact * (1 + 1e-10))
    assert np.all((upper - lower)[exact > 1e-20] <= 1e-3 * exact[exact > 1e-20] + 1e-18)
    for delta in DELTAS:
        epsilon = profile.epsilon(delta)
        assert pld.epsilon_lower(delta) <= epsilon * (1 + 1e-10) <= pld.epsilon(delta) * (1 + 1e-9)
        assert pld.epsilon(delta) - pld.epsilon_lower(delta) <= 1e-3 * max(1.0, epsilon)


@pytest.mark.parametrize("profile", MIXTURES)
def test_epsilon_and_delta_are_inverse(profile):
    pld = to_pld(profile)
    for delta in DELTAS:
        epsilon = pld.epsilon(delta)
        assert pld.delta(epsilon) <= delta
        assert epsilon == 0.0 or pld.delta(epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("profile", MIXTURES[:3])
def test_tradeoff_is_a_lower_bound_close_to_the_closed_form(profile):
    fpr = np.array([0.0, 1e-6, 1e-3, 0.05, 0.3, 0.7, 0.99, 1.0])
    ours, exact = to_pld(profile).tradeoff(fpr), profile.tradeoff(fpr)
    assert np.all(ours <= exact + 1e-10)
    assert ours == pytest.approx(exact, abs=1e-3)


@settings(deadline=None, max_examples=10)
@given(st.floats(0.05, 5.0), st.floats(0.05, 5.0), st.floats(-10.0, -1.0))
def test_numerical_composition_brackets_the_closed_form(first, second, log_delta):
    delta = 10.0**log_delta
    exact = GaussianProfile(first).compose(GaussianProfile(second))
    assert exact.mu == pytest.approx(np.hypot(first, second), rel=1e-15)
    pld = to_pld(GaussianProfile(first)).compose(GaussianProfile(second))
    lower, upper = pld.epsilon_lower(delta), pld.epsilon(delta)
    assert lower <= exact.epsilon(delta) * (1 + 1e-10) <= upper * (1 + 1e-9)
    assert upper - lower <= 1e-3 * max(1.0, upper)


def test_composition_keeps_relative_precision_at_tiny_delta():
    mu, steps = 0.5, 24000
    step = to_pld(GaussianProfile(mu / np.sqrt(steps)))
    grid = step.upper[0].regrid(mu / np.sqrt(steps) / 20).power(steps)
    epsilon = GaussianProfile(mu).epsilon(1e-14)
    assert float(grid.delta(np.array(epsilon))) == pytest.approx(1e-14, rel=0.03)


def test_rare_large_losses_keep_their_precision():
    # 1000 steps, each without information or, once in a million, with mu = 6: binomially many of the latter.
    steps, rate, mu = 1000, 1e-6, 6.0
    pld = to_pld(MixtureProfile((0.0, mu), (1 - rate, rate)))
    upper, lower = (grids[0].regrid(0.05).power(steps) for grids in (pld.upper, pld.lower))
    hits = np.arange(6)
    exact = MixtureProfile(tuple(mu * np.sqrt(hits)), tuple(binom.pmf(hits, steps, rate) / binom.cdf(5, steps, rate)))
    for epsilon in (1.0, 10.0, 40.0, 60.0):
        delta = float(exact.delta(epsilon))
        assert float(lower.delta(np.array(epsilon))) <= delta * (1 + 1e-9)
        assert float(upper.delta(np.array(epsilon))) >= delta * (1 - 1e-9)
        assert float(upper.delta(np.array(epsilon))) == pytest.approx(delta, rel=1e-2)


def test_a_mixture_and_a_gaussian_compose_exactly():
    mixture, gaussian = MIXTURES[0], GaussianProfile(0.7)
    total = mixture.compose(gaussian)
    assert isinstance(total, MixtureProfile)
    assert total == gaussian.compose(mixture)
    assert total.mus == pytest.approx(np.hypot(mixture.mus, 0.7), rel=1e-15)
    numerical = to_pld(mixture).compose(gaussian)
    for delta in DELTAS:
        slack = 1e-9 * max(1.0, total.epsilon(delta))
        assert numerical.epsilon_lower(delta) - slack <= total.epsilon(delta) <= numerical.epsilon(delta) + slack


def test_two_mixtures_compose_as_the_product_of_their_indices():
    first, second = MIXTURES[0], MIXTURES[1]
    mus = np.hypot.outer(first.mus, second.mus).ravel()
    product = MixtureProfile(tuple(mus), tuple(np.multiply.outer(first.weights, second.weights).ravel()))
    total = first.compose(second)
    assert isinstance(total, PLDProfile)
    assert np.all(total.delta(GRID) >= product.delta(GRID) * (1 - 1e-10))
    assert np.all(total.delta_lower(GRID) <= product.delta(GRID) * (1 + 1e-10))
    assert total.epsilon(1e-5) == pytest.approx(product.epsilon(1e-5), rel=1e-3)


def test_composition_commutes_and_associates_within_the_bracket():
    a, b, c = MIXTURES[0], MIXTURES[1], poisson_profile(1000, 100, 2.0, steps=30)
    one, two, three = a.compose(b).compose(c), c.compose(b.compose(a)), b.compose(c).compose(a)
    for delta in DELTAS:
        uppers = [p.epsilon(delta) for p in (one, two, three)]
        lowers = [p.epsilon_lower(delta) for p in (one, two, three)]
        assert max(lowers) <= min(uppers)
        assert max(uppers) - min(lowers) <= 5e-3 * max(1.0, max(uppers))


def test_nothing_is_neutral():
    nothing = GaussianProfile(0.0)
    assert nothing.compose(MIXTURES[0]) == MIXTURES[0]
    pld = to_pld(MIXTURES[0])
    assert compose(pld, nothing) is pld
    assert to_pld(nothing).delta(0.0) == 0.0


def test_one_permutation_adds_position_by_position():
    mixture = MIXTURES[3]
    shared = compose_shared_permutation(mixture, mixture)
    assert shared.mus == pytest.approx(np.sqrt(2) * np.array(mixture.mus), rel=1e-15)
    # Bad positions coincide: more than independent permutations give, less than the worst position twice.
    independent, worst = mixture.compose(mixture), mixture.compose(GaussianProfile(mixture.mu))
    assert independent.epsilon(1e-5) < shared.epsilon(1e-5) <= worst.epsilon(1e-5)


@pytest.mark.parametrize(
    "other",
    [
        MixtureProfile((1.0, 2.0), (0.5, 0.5)),
        MixtureProfile((0.1, 0.5, 2.0), (0.1, 0.8, 0.1)),
        MixtureProfile((0.1, 0.5, 2.0), (0.2, 0.7, 0.1), adjacency=Adjacency.ADD_REMOVE),
    ],
)
def test_positions_that_do_not_match_are_refused(other):
    with pytest.raises(ParameterError, match="must be"):
        compose_shared_permutation(MIXTURES[0], other)


def test_adjacencies_do_not_mix():
    added = GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE)
    assert added.compose(added).adjacency is Adjacency.ADD_REMOVE
    assert to_pld(added).compose(added).adjacency is Adjacency.ADD_REMOVE
    for first, second in ((added, MIXTURES[0]), (to_pld(MIXTURES[0]), added)):
        with pytest.raises(ParameterError, match="to_replace_one"):
            first.compose(second)
    with pytest.raises(ParameterTypeError, match="profile must be"):
        compose(added, 1.0)
    with pytest.raises(ParameterError, match="mu must be"):
        to_pld(GaussianProfile(1e7))


def test_round_trip_through_dp_accounting():
    for profile in (GaussianProfile(1.0), MIXTURES[0], poisson_profile(100, 10, 2.0, steps=5)):
        pld = to_pld(profile)
        back = PLDProfile.from_dp_accounting(profile.to_dp_accounting(), pld.adjacency)
        assert back.delta(GRID) == pytest.approx(pld.delta(GRID), rel=1e-12)
        assert profile.to_dp_accounting().get_epsilon_for_delta(1e-5) == pytest.approx(pld.epsilon(1e-5), rel=1e-6)
        assert back.epsilon_lower(1e-5) is None
        assert back.delta_lower(GRID) is None
        composed = back.compose(GaussianProfile(0.5))
        assert composed.lower is None
        assert composed.epsilon(1e-5) > pld.epsilon(1e-5)


def test_both_directions_of_an_asymmetric_distribution_count():
    theirs = reference.from_gaussian_mechanism(
        1.0, sampling_prob=0.2, neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    ours = PLDProfile.from_dp_accounting(theirs, Adjacency.ADD_REMOVE)
    assert len(ours.upper) == 2
    assert ours.adjacency is Adjacency.ADD_REMOVE
    for epsilon in (0.0, 0.05, 0.2, 1.0):
        assert ours.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-8)
    with_gaussian = ours.compose(GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE))
    expected = theirs.compose(reference.from_gaussian_mechanism(1.0))
    assert with_gaussian.epsilon(1e-5) == pytest.approx(expected.get_epsilon_for_delta(1e-5), rel=1e-3)
    assert len(with_gaussian.to_dp_accounting()._pmf_add.to_dense_pmf()._probs) > 1


def test_optimistic_and_foreign_distributions_are_refused():
    optimistic = reference.from_gaussian_mechanism(1.0, pessimistic_estimate=False, use_connect_dots=False)
    with pytest.raises(ParameterError, match="pessimistic"):
        PLDProfile.from_dp_accounting(optimistic, Adjacency.ADD_REMOVE)
    with pytest.raises(ParameterTypeError, match="pld must be"):
        PLDProfile.from_dp_accounting(1.0, Adjacency.ADD_REMOVE)
    with pytest.raises(ParameterError, match="adjacency must be"):
        PLDProfile.from_dp_accounting(reference.from_gaussian_mechanism(1.0), "neighbours")


def test_shapes_and_ranges():
    pld = to_pld(MIXTURES[0])
    assert isinstance(pld.delta(1.0), float)
    assert isinstance(pld.tradeoff(0.5), float)
    assert pld.delta(np.ones((2, 3))).shape == pld.delta_lower(np.ones((2, 3))).shape == (2, 3)
    assert pld.tradeoff([]).shape == (0,)
    assert pld.interval > 0
    for call, name in (
        (pld.delta, "epsilon"),
        (pld.epsilon, "delta"),
        (pld.tradeoff, "fpr"),
        (pld.epsilon_lower, "delta"),
    ):
        with pytest.raises(ParameterError, match=f"{name} must be"):
            call(-0.1)


def test_dp_accounting_loads_only_when_needed():
    use = "import sys, noisycgd.accounting as a; a.GaussianProfile(1.0).epsilon(1e-5)"
    code = f"{use}; print('dp_accounting' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
