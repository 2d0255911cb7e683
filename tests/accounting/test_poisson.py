import json
import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile, calibrate_poisson, poisson_profile
from noisycgd.accounting.poisson import TOLERANCE, _Pair
from noisycgd.types import Adjacency, EpsilonDelta, GaussianMu, NoiseMultiplier

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
SIDES = [(True, True), (True, False), (False, True)]


def bracket(profile, delta=1e-5):
    return profile.epsilon_lower(delta), profile.epsilon(delta)


@pytest.mark.parametrize(("n", "noise", "epsilon"), ORACLES["poisson_replace_one_epsilon"])
def test_epsilon_oracle(n, noise, epsilon):
    lower, upper = bracket(poisson_profile(n, 1000, noise, epochs=400))
    assert lower - 1e-5 <= epsilon <= upper + 1e-5
    assert upper - lower <= TOLERANCE * max(1.0, upper)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("n", "noise", "steps"), [(50, 1.0, 1), (50, 1.0, 20), (1000, 0.7, 300), (20, 3.0, 100)])
def test_dp_accounting_agrees(n, noise, steps, adjacency):
    relation = {
        Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
        Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    }[adjacency]
    theirs = reference.from_gaussian_mechanism(
        noise, sampling_prob=10 / n, neighboring_relation=relation, value_discretization_interval=1e-3
    ).self_compose(steps)
    lower, upper = bracket(poisson_profile(n, 10, noise, steps=steps, adjacency=adjacency))
    # Theirs is an upper bound too, on a grid of its own.
    assert lower <= theirs.get_epsilon_for_delta(1e-5) <= upper + 2e-3 * max(1.0, upper)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("rate", "shift"), [(0.02, 0.1), (0.3, 1.0), (1e-6, 5.0), (0.5, 40.0), (0.01, 1e-4)])
def test_losses_invert(side, rate, shift):
    pair = _Pair(rate, shift, *side)
    outputs = np.linspace(-8.0 - shift, 8.0 + shift, 65)
    losses = pair.loss(outputs)
    steps = np.diff(losses)
    assert np.all(steps >= 0)
    # Where the loss is flat its inverse is not defined to double precision.
    clear = np.r_[False, np.minimum(steps[1:], steps[:-1]) > 1e-6 * np.minimum(np.abs(losses[1:-1]), 1.0), False]
    assert clear.any()
    assert pair.output(losses)[clear] == pytest.approx(outputs[clear], rel=1e-5, abs=1e-5)
    p, q = np.exp(pair.log_masses(np.r_[-np.inf, np.linspace(*pair.bounds, 50), np.inf]))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.5, 3.0), (0.9, 0.4)])
def test_one_step_matches_its_densities(rate, noise, adjacency):
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 400_001)

    def mixture(shift):
        return (1 - rate) * np.exp(-(x**2) / 2 / noise**2) + rate * np.exp(-((x - shift) ** 2) / 2 / noise**2)

    removed, other = (
        (mixture(1.0), mixture(-1.0)) if adjacency is Adjacency.REPLACE_ONE else (mixture(1.0), mixture(0.0))
    )
    width = (x[1] - x[0]) / noise / math.sqrt(2 * math.pi)
    profile = poisson_profile(100, round(100 * rate), noise, steps=1, adjacency=adjacency)
    for epsilon in (0.0, 0.1, 0.5, 2.0):
        both = [
            np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * width for p, q in ((removed, other), (other, removed))
        ]
        assert profile.delta_lower(epsilon) - 1e-7 <= max(both) <= profile.delta(epsilon) + 1e-7
        assert profile.delta(epsilon) - profile.delta_lower(epsilon) <= 1e-4


def hockey_stick_estimate(rate, noise, steps, epsilon, samples, seed):
    """Mean of (1 - e^(epsilon - loss))_+ over runs simulated at `noise`, the loss written out from the densities."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(samples, steps)) * noise + (rng.random((samples, steps)) < rate)

    def density(sign):
        return (1 - rate) * np.exp(-(outputs**2) / 2 / noise**2) + rate * np.exp(
            -((outputs - sign) ** 2) / 2 / noise**2
        )

    losses = np.log(density(1.0) / density(-1.0)).sum(axis=1)
    return np.maximum(-np.expm1(epsilon - losses), 0.0).mean()


def test_simulated_runs_agree():
    rate, noise, steps, epsilon, samples = 0.3, 1.0, 3, 0.5, 200_000
    # Hoeffding: a mean of values in [0, 1] strays this far with probability at most 1e-9.
    margin = math.sqrt(math.log(2e9) / (2 * samples))
    profile = poisson_profile(10, 3, noise, steps=steps)
    estimate = hockey_stick_estimate(rate, noise, steps, epsilon, samples, seed=7)
    assert profile.delta_lower(epsilon) - margin <= estimate <= profile.delta(epsilon) + margin
    # Negative control: runs with a tenth less noise are told apart.
    assert hockey_stick_estimate(rate, 0.9 * noise, steps, epsilon, samples, seed=8) > profile.delta(epsilon) + margin


@pytest.mark.parametrize(("adjacency", "factor"), [(Adjacency.REPLACE_ONE, 2.0), (Adjacency.ADD_REMOVE, 1.0)])
@pytest.mark.parametrize(("noise", "steps"), [(15.0, 400), (1.0, 1), (1e5, 10**6)])
def test_full_batches_are_gaussian(noise, steps, adjacency, factor):
    profile = poisson_profile(100, 100, noise, steps=steps, adjacency=adjacency)
    exact = GaussianProfile(factor * math.sqrt(steps) / noise)
    assert profile.adjacency is adjacency
    for delta in (1e-2, 1e-5, 1e-12):
        epsilon = exact.epsilon(delta)
        assert profile.epsilon_lower(delta) <= epsilon * (1 + 1e-9)
        assert epsilon <= profile.epsilon(delta) <= epsilon + 1e-3 * max(1.0, epsilon)


def test_nearly_full_batches_are_nearly_gaussian():
    nearly = poisson_profile(10**6, 10**6 - 1, 5.0, steps=25)
    assert nearly.epsilon(1e-5) == pytest.approx(GaussianProfile(2.0).epsilon(1e-5), rel=1e-3)


@settings(deadline=None, max_examples=8)
@given(st.integers(2, 40), st.floats(0.6, 20.0), st.integers(1, 200), st.sampled_from(list(Adjacency)))
def test_monotone(n, noise, steps, adjacency):
    def lower_and_upper(n, noise, steps):
        return bracket(poisson_profile(n, 1, noise, steps=steps, adjacency=adjacency))

    _, upper = lower_and_upper(n, noise, steps)
    for riskier in ((n, noise, 2 * steps), (n - 1, noise, steps), (n, 0.8 * noise, steps)):
        assert lower_and_upper(*riskier)[0] >= upper - 3 * TOLERANCE * max(1.0, upper)
    # Subsampling never costs.
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    full = GaussianProfile(factor * math.sqrt(steps) / noise)
    assert lower_and_upper(n, noise, steps)[0] <= full.epsilon(1e-5)


@pytest.mark.parametrize(
    ("n", "b", "noise", "steps"),
    [(60000, 1000, 1e6, 1000), (100, 50, 0.05, 1), (100, 50, 1e-3, 1), (1000, 20, 0.05, 3), (10**9, 1, 1.0, 10)],
)
def test_extremes_are_bracketed(n, b, noise, steps):
    for delta in (1e-5, 1e-12):
        lower, upper = bracket(poisson_profile(n, b, noise, steps=steps, delta=delta), delta)
        assert 0.0 <= lower <= upper < math.inf
        assert upper - lower <= 1e-2 * max(1.0, upper)


def test_a_million_steps():
    lower, upper = bracket(poisson_profile(10**6, 200, 2.0, steps=10**6))
    assert upper - lower <= 1e-3
    # Central limit: mu^2 = T Var, with Var = 2 p^2 (e^(1/nm^2) - e^(-1/nm^2)) for the replace-one pair at small p.
    limit = GaussianProfile(2e-4 * 1e3 * math.sqrt(4 * math.sinh(0.25)))
    assert upper == pytest.approx(limit.epsilon(1e-5), rel=0.01)


def test_epochs_count_ragged_batches():
    by_epochs, by_steps = poisson_profile(105, 10, 3.0, epochs=4), poisson_profile(105, 10, 3.0, steps=44)
    assert by_epochs.epsilon(1e-5) == by_steps.epsilon(1e-5)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 500), (0.1, 50), (5.0, 20)])
def test_calibration_is_private_and_tight(epsilon, steps, adjacency):
    target = EpsilonDelta(epsilon, 1e-5)
    noise = calibrate_poisson(600, 10, target, steps=steps, adjacency=adjacency)
    assert poisson_profile(600, 10, noise, steps=steps, adjacency=adjacency).epsilon(1e-5) <= epsilon
    wasteful = poisson_profile(600, 10, 0.998 * noise, steps=steps, adjacency=adjacency)
    assert wasteful.delta(epsilon) > 1e-5


def test_calibration_at_epsilon_zero():
    noise = calibrate_poisson(600, 10, EpsilonDelta(0.0, 1e-5), steps=5)
    assert poisson_profile(600, 10, noise, steps=5).epsilon(1e-5) == 0.0
    assert poisson_profile(600, 10, 0.95 * noise, steps=5).epsilon(1e-5) > 0.0


def test_calibration_of_full_batches():
    noise = calibrate_poisson(10, 10, EpsilonDelta(1.0, 1e-5), steps=4)
    assert GaussianProfile(4.0 / noise).epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
    assert calibrate_poisson(10, 1, NoiseMultiplier(3.0, 1e-5), steps=4) == 3.0


@pytest.mark.parametrize(
    ("target", "error", "match"),
    [
        (GaussianMu(1.0, 1e-5), ParameterError, "target must be"),
        (1.0, ParameterTypeError, "target must be"),
        (EpsilonDelta(1.0, 0.0), ParameterError, "delta must be"),
        (EpsilonDelta(-1.0, 1e-5), ParameterError, "epsilon must be"),
        (EpsilonDelta(1.0, 0.5), ParameterError, "hardly ever sampled"),
    ],
)
def test_targets_that_make_no_sense(target, error, match):
    with pytest.raises(error, match=match):
        calibrate_poisson(1000, 1, target, steps=2)


def test_target_beyond_every_noise():
    with pytest.raises(ParameterError, match="Raise epsilon"):
        calibrate_poisson(2, 2, EpsilonDelta(0.0, 1e-12), steps=10**6)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n_records": 0}, "n_records"),
        ({"batch_size": 101}, "batch_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"noise_multiplier": 1e10}, "noise_multiplier"),
        ({"steps": 0}, "steps"),
        ({"steps": 10**6 + 1}, "steps"),
        ({"steps": None}, "epochs or steps"),
        ({"epochs": 3}, "epochs or steps"),
        ({"steps": None, "epochs": 0}, "epochs"),
        ({"adjacency": "neighbours"}, "adjacency"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_nonsense_is_refused(arguments, name):
    with pytest.raises(ParameterError, match=f"^{name} must be"):
        poisson_profile(**({"n_records": 100, "batch_size": 10, "noise_multiplier": 1.0, "steps": 5} | arguments))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("noise", "steps"), [(5.0, 2400), (15.0, 6000)])
def test_prv_accountant_brackets_the_same_epsilon(noise, steps):
    """An independent route for add-remove, the only relation that prv-accountant has."""
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

    step = PoissonSubsampledGaussianMechanism(sampling_probability=1 / 60, noise_multiplier=noise)
    accountant = PRVAccountant(prvs=[step], max_self_compositions=[steps], eps_error=0.01, delta_error=1e-9)
    low, estimate, high = accountant.compute_epsilon(1e-5, [steps])
    ours = poisson_profile(60_000, 1000, noise, steps=steps, adjacency=Adjacency.ADD_REMOVE)
    assert low <= ours.epsilon_lower(1e-5) <= ours.epsilon(1e-5) <= high
    assert ours.epsilon(1e-5) == pytest.approx(estimate, rel=1e-3)
    wrong = poisson_profile(60_000, 1000, 0.9 * noise, steps=steps, adjacency=Adjacency.ADD_REMOVE)
    assert wrong.epsilon_lower(1e-5) > high
