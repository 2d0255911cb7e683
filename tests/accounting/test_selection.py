import json
import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile, MixtureProfile, gaussian_mu
from noisycgd.accounting.selection import SelectionProfile, calibrate_selection_base, selection_bound
from noisycgd.accounting.trials import NegativeBinomialTrials, PoissonTrials
from noisycgd.types import Adjacency

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
BASE = GaussianProfile(gaussian_mu(1.33, 1e-5))
LAWS = [
    PoissonTrials(0.3),
    PoissonTrials(20),
    NegativeBinomialTrials.from_mean(-0.5, 20),
    NegativeBinomialTrials.from_mean(0, 5),
    NegativeBinomialTrials.from_mean(1, 20),
    NegativeBinomialTrials.from_mean(4, 20),
]


class Opaque:
    """A base of which only the profile is known."""

    def __init__(self, base):
        self.delta, self.epsilon, self.tradeoff = base.delta, base.epsilon, base.tradeoff


def weight(law, better):
    """E[K] w as a function of Q{better}, straight from the generating function's derivative."""
    if isinstance(law, PoissonTrials):
        return law.mean * np.exp(-law.mean * better)
    return law.mean * (law.stop / (law.stop + (1 - law.stop) * better)) ** (law.shape + 1)


def example_delta(law, mu, epsilon):
    """Exact delta of a selection among N(mu, 1) against N(0, 1), scored by the output; worst of order and direction."""
    y = np.linspace(-12.0, mu + 12.0, 100_001)
    one, two = norm.pdf(y - mu), norm.pdf(y)
    found = []
    for better_one, better_two in ((norm.sf(y - mu), norm.sf(y)), (norm.cdf(y - mu), norm.cdf(y))):
        first, second = weight(law, better_one) * one, weight(law, better_two) * two
        for p, q in ((first, second), (second, first)):
            found.append(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), y))
    return max(found)


def example_epsilon(law, mu, delta):
    high = 3 * GaussianProfile(mu).epsilon(delta)
    return brentq(lambda e: math.log(max(example_delta(law, mu, e), 1e-300) / delta), 0.0, high)


@pytest.mark.parametrize(
    ("mean", "base_epsilon", "by_profile", "by_renyi", "floor"),
    [
        (*row, *rest)
        for row, rest in zip(ORACLES["selection_epsilon"], [(3.781, 2.7230), (12.767, 8.2433)], strict=True)
    ],
)
def test_oracles(mean, base_epsilon, by_profile, by_renyi, floor):
    base = GaussianProfile(gaussian_mu(base_epsilon, 1e-5))
    bound = selection_bound(base, mean, 1e-5)
    assert bound.profile_epsilon == pytest.approx(by_profile, abs=1e-5)
    assert bound.renyi_epsilon == pytest.approx(by_renyi, abs=6e-4)
    assert (bound.method, bound.epsilon) == ("renyi", bound.renyi_epsilon)
    assert (bound.delta, bound.mean_trials) == (1e-5, mean)
    assert example_epsilon(PoissonTrials(mean), base.mu, 1e-5) == pytest.approx(floor, abs=1e-4)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mu", [0.05, 0.35, 2.0])
def test_never_below_an_exact_example(law, mu):
    profile = SelectionProfile(GaussianProfile(mu), law)
    for epsilon in (0.0, 0.3 * mu, mu, 4 * mu):
        # The quadrature's error, mostly at the kink, is below 1e-8.
        assert profile.delta(epsilon) >= example_delta(law, mu, epsilon) - 1e-8


def test_the_example_can_reject_a_wrong_bound():
    # Negative control of the test above: the base's own profile is no bound for its selection.
    law, mu = PoissonTrials(20), 0.35
    assert GaussianProfile(mu).delta(mu) < 0.5 * example_delta(law, mu, mu)


def test_zero_is_the_best_inner_epsilon_of_the_papers_bound():
    # The paper's theorem with a free inner epsilon e1: eps = eps_hat + m (e^e1 - 1) + m delta(e1).
    m, delta = 20.0, 1e-5
    hat = BASE.epsilon(delta / m)

    def paper(e1):
        return hat + m * math.expm1(e1) + m * BASE.delta(e1)

    values = [paper(e1) for e1 in np.linspace(0.0, 2.0, 201)]
    assert int(np.argmin(values)) == 0
    assert selection_bound(BASE, m, delta).profile_epsilon == pytest.approx(values[0], rel=1e-11)


def dp_accounting_epsilon(mu, law, shape, delta, excess):
    accountant = RdpAccountant(orders=(1.0 + excess).tolist())
    event = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1.0 / mu), law.mean, shape)
    return accountant.compose(event).get_epsilon(delta)


@pytest.mark.parametrize("law", [law for law in LAWS if law.mean >= 1 and getattr(law, "shape", 0) >= 0])
@pytest.mark.parametrize("mu", [0.35, 1.2])
def test_agrees_with_dp_accounting(law, mu):
    """Twin with dp-accounting's inner constants, which come from Renyi orders alone; ours are exact, hence smaller."""
    delta, excess = 1e-5, np.geomspace(0.05, 200.0, 400)
    orders = 1.0 + excess
    rdp = orders * mu * mu / 2
    shape = getattr(law, "shape", math.inf)
    if isinstance(law, PoissonTrials):
        hat = np.log1p(1.0 / excess)
        by_order = excess * (rdp - hat[:, None] + np.log1p(-1.0 / orders)) - np.log(orders)
        by_order = np.minimum(by_order, 0.5 * np.log1p(-np.exp(-rdp)))
        shift = law.mean * np.exp(by_order.min(axis=1))
    else:
        shift = (1 + shape) * np.min((1 - 1 / orders) * rdp - math.log(law.stop) / orders)
    twin = np.min(rdp + shift + math.log(law.mean) / excess + np.log1p(-1 / orders) - np.log(delta * orders) / excess)
    theirs = dp_accounting_epsilon(mu, law, shape, delta, excess)
    assert theirs == pytest.approx(twin, rel=1e-7)
    ours = selection_bound(GaussianProfile(mu), law, delta)
    assert ours.renyi_epsilon <= theirs
    # The same formula with the exact inner constant, on the grid of orders: continuous orders are at least as good.
    exact = law.renyi_shift(GaussianProfile(mu), law.shift(GaussianProfile(mu)), excess)
    assert np.all(exact <= shift * (1 + 1e-9))
    on_grid = np.min(
        rdp + exact + math.log(law.mean) / excess + np.log1p(-1 / orders) - np.log(delta * orders) / excess
    )
    assert on_grid * (1 - 1e-3) <= ours.renyi_epsilon <= on_grid * (1 + 1e-10)


def test_mixture_uses_the_moment_of_the_mixture():
    mixture = MixtureProfile((0.2, 0.4), (0.7, 0.3))
    t = np.array([3.0])
    moments = [w * math.exp(0.5 * 3.0 * 4.0 * mu * mu) for mu, w in zip(mixture.mus, mixture.weights, strict=True)]
    from noisycgd.accounting.selection import _RenyiBound

    shift = 20 * mixture.delta(math.log(4 / 3))
    expected = math.log(sum(moments)) / 3 + shift + math.log(20) / 3 + math.log(0.75)
    assert _RenyiBound(mixture, PoissonTrials(20), math.nan)._log_moment(t)[0] == pytest.approx(expected, rel=1e-10)
    bounds = [selection_bound(p, 20, 1e-5) for p in (GaussianProfile(0.2), mixture, GaussianProfile(0.4))]
    assert bounds[0].epsilon < bounds[1].epsilon < bounds[2].epsilon
    same = selection_bound(MixtureProfile((0.4, 0.4), (0.5, 0.5)), 20, 1e-5)
    assert same.renyi_epsilon == pytest.approx(bounds[2].renyi_epsilon, rel=1e-10)


def test_a_base_known_by_its_profile_alone_gets_the_profile_bound():
    bound = selection_bound(Opaque(BASE), 20, 1e-5)
    assert (bound.method, bound.renyi_epsilon) == ("profile", None)
    assert bound.epsilon == pytest.approx(4.32286, abs=1e-5)
    assert SelectionProfile(Opaque(BASE), 20).delta(5.0) >= SelectionProfile(BASE, 20).delta(5.0)


def selected(rng, law_draw, mu, size):
    """Best outputs of `size` selections among N(mu, 1), and how many trials each had; nan where none ran."""
    counts = law_draw(rng, size)
    best = np.full(size, np.nan)
    ran = counts > 0
    # The maximum of k uniforms is U^(1/k).
    best[ran] = norm.ppf(rng.random(ran.sum()) ** (1.0 / counts[ran])) + mu
    return best


@pytest.mark.parametrize(
    ("law", "draw"),
    [
        (PoissonTrials(3.0), lambda rng, n: rng.poisson(3.0, n)),
        (NegativeBinomialTrials(1.0, 0.25), lambda rng, n: rng.geometric(0.25, n)),
        (NegativeBinomialTrials(0.0, 0.25), lambda rng, n: rng.logseries(0.75, n)),
    ],
)
def test_simulated_selection_obeys_the_exact_density_and_the_bound(law, draw):
    """Monte Carlo of the event that attains the example's delta; each comparison fails wrongly with p < 1e-8.

    Negative controls: one trial less is told apart from the exact density, and noise scaled by 0.3 breaks the bound.
    """
    mu, size = 1.0, 400_000
    rng = np.random.default_rng(5)
    spread = 6.0 * math.sqrt(0.5 / size)

    def rates(shift, draw):
        # The likelihood ratio is monotone here, so that the best event is a half line.
        y = np.linspace(-12.0, shift + 12.0, 400_001)
        density = [weight(law, norm.sf(y - m)) * norm.pdf(y - m) for m in (shift, 0.0)]
        threshold = y[np.argmax(density[0] > density[1])]
        exact = [np.trapezoid(np.where(y > threshold, d, 0.0), y) for d in density]
        return np.array([np.mean(selected(rng, draw, m, size) > threshold) for m in (shift, 0.0)]), np.array(exact)

    found, exact = rates(mu, draw)
    assert np.abs(found - exact).max() < spread
    bound = SelectionProfile(GaussianProfile(mu), law).delta(0.0)
    assert found[0] - found[1] <= bound + 2 * spread

    fewer, exact = rates(mu, lambda rng, n: np.maximum(draw(rng, n) - 1, 1))
    assert np.abs(fewer - exact).max() > spread
    loud, _ = rates(mu / 0.3, draw)
    assert loud[0] - loud[1] > bound + 2 * spread


def test_geometric_law_and_a_single_trial():
    assert NegativeBinomialTrials.from_mean(1.0, 20.0).stop == pytest.approx(0.05, rel=1e-12)
    one = SelectionProfile(BASE, NegativeBinomialTrials(1.0, 1.0))
    for delta in (1e-3, 1e-5, 1e-9):
        assert one.epsilon(delta) == pytest.approx(BASE.epsilon(delta), rel=1e-9)
        assert one.epsilon(delta) >= BASE.epsilon(delta)


@pytest.mark.parametrize("law", LAWS)
def test_round_trip_monotone_and_above_the_base(law):
    profile = SelectionProfile(BASE, law)
    deltas = [1e-12, 1e-8, 1e-5, 1e-3, 0.05]
    epsilons = [profile.epsilon(d) for d in deltas]
    assert epsilons == sorted(epsilons, reverse=True)
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        assert profile.delta(epsilon) <= delta
        assert profile.delta(epsilon) == pytest.approx(delta, rel=1e-6) or epsilon == 0.0
        assert law.mean < 1 or epsilon >= BASE.epsilon(delta)
    grid = np.linspace(0.0, 6.0, 25)
    values = profile.delta(grid)
    assert values.shape == grid.shape
    assert np.all(np.diff(values) <= 1e-12)
    assert isinstance(profile.delta(1.0), float)


def test_monotone_in_the_mean_and_in_mu():
    means = [1e-3, 0.1, 1.0, 20.0, 300.0]
    by_mean = [selection_bound(BASE, m, 1e-5).epsilon for m in means]
    assert by_mean == sorted(by_mean)
    by_geometric = [
        selection_bound(BASE, NegativeBinomialTrials.from_mean(1, m), 1e-5).epsilon for m in (1, 2, 20, 1e3)
    ]
    assert by_geometric == sorted(by_geometric)
    by_mu = [selection_bound(GaussianProfile(mu), 20, 1e-5).epsilon for mu in (0.0, 1e-6, 0.01, 0.1, 1.0, 10.0, 100.0)]
    assert by_mu == sorted(by_mu)
    assert by_mu[0] == 0.0


def test_no_jump_where_the_winner_changes():
    grid = np.linspace(0.5, 12.0, 120)
    logs = np.log(SelectionProfile(BASE, 1.9).delta(grid))
    bounds = [selection_bound(BASE, m, 1e-5) for m in np.linspace(1.0, 4.0, 61)]
    assert {b.method for b in bounds} == {"profile", "renyi"}
    assert np.abs(np.diff([b.epsilon for b in bounds])).max() < 0.05
    assert np.all(np.diff(logs) < 0)
    assert np.abs(np.diff(logs, 2)).max() < 0.2


def test_tradeoff_lies_below_the_example_and_is_convex():
    law, mu = PoissonTrials(3.0), 0.5
    profile = SelectionProfile(GaussianProfile(mu), law)
    y = np.linspace(-12.0, 12.5, 2001)
    # Tests that reject above a threshold; without trials the output is the same and is never rejected.
    reject = [1 - np.exp(-law.mean * norm.sf(y - m)) for m in (0.0, mu)]
    assert np.all(profile.tradeoff(reject[0]) <= 1 - reject[1] + 1e-12)
    fpr = np.linspace(0.0, 1.0, 101)
    curve = profile.tradeoff(fpr)
    assert curve.shape == fpr.shape
    assert np.all(np.diff(curve) <= 0)
    assert np.all(np.diff(curve, 2) >= -1e-12)
    assert curve[-1] == 0.0
    assert curve[0] == pytest.approx(1.0, abs=1e-9)
    assert np.all(curve <= GaussianProfile(mu).tradeoff(fpr) + 1e-12)
    assert isinstance(profile.tradeoff(0.5), float)


@given(
    mean=st.floats(1e-3, 1e4),
    epsilon=st.sampled_from([0.0, 1e-6, 0.1, 1.0, 30.0, 1e4]),
    delta=st.sampled_from([1e-300, 1e-12, 1e-5, 0.3]),
)
@settings(deadline=None, max_examples=6, derandomize=True)
def test_calibrated_base_is_the_largest_on_the_private_side(mean, epsilon, delta):
    if -math.expm1(-mean) <= delta * (1 + 1e-9):
        with pytest.raises(ParameterError, match=r"Any base would meet this target"):
            calibrate_selection_base(mean, epsilon, delta)
        return
    mu = calibrate_selection_base(mean, epsilon, delta)
    profile = SelectionProfile(GaussianProfile(mu), mean)
    assert profile.delta(epsilon) <= delta
    assert profile.epsilon(delta) <= epsilon
    assert SelectionProfile(GaussianProfile(mu * (1 + 1e-9)), mean).delta(epsilon) > delta


def test_calibration_inverts_the_oracle_and_other_laws():
    assert calibrate_selection_base(20, selection_bound(BASE, 20, 1e-5).epsilon, 1e-5) == pytest.approx(
        BASE.mu, rel=1e-9
    )
    law = NegativeBinomialTrials.from_mean(1, 20)
    mu = calibrate_selection_base(law, 2.0, 1e-5)
    assert mu > calibrate_selection_base(20, 2.0, 1e-5)
    assert selection_bound(GaussianProfile(mu), law, 1e-5).epsilon == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize(
    ("mean", "mu"), [(1e-3, 1.0), (1e-3, 1e3), (1.0, 0.0), (1.0, 1e160), (1e4, 1e-9), (1e4, 1.0), (1e4, 1e3)]
)
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.9])
def test_extreme_inputs_stay_silent_and_ordered(mean, mu, delta):
    for law in (mean, NegativeBinomialTrials.from_mean(0.5, 1 + mean)):
        profile = SelectionProfile(GaussianProfile(mu), law)
        epsilon = profile.epsilon(delta)
        assert epsilon >= 0.0
        assert math.isinf(epsilon) or profile.delta(epsilon) <= delta
        assert 0.0 <= profile.delta(1e6) <= profile.delta(0.0) <= 1.0


def test_adjacency_is_that_of_the_base():
    assert SelectionProfile(BASE, 2).adjacency is Adjacency.REPLACE_ONE
    base = GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE)
    assert SelectionProfile(base, 2).adjacency is Adjacency.ADD_REMOVE


@pytest.mark.parametrize("mean", [0.0, -1.0, math.nan, math.inf])
def test_refuses_impossible_means(mean):
    for call in (lambda: selection_bound(BASE, mean, 1e-5), lambda: calibrate_selection_base(mean, 1.0, 1e-5)):
        with pytest.raises(ParameterError, match=r"mean_trials must be a number above 0"):
            call()


def test_refuses_the_rest():
    with pytest.raises(ParameterTypeError, match=r"trials must be PoissonTrials, NegativeBinomialTrials or the mean"):
        selection_bound(BASE, "20", 1e-5)
    with pytest.raises(ParameterError, match=r"delta must be"):
        selection_bound(BASE, 20, 0.0)
    with pytest.raises(ParameterError, match=r"epsilon must be"):
        SelectionProfile(BASE, 20).delta(-1.0)
    with pytest.raises(ParameterError, match=r"fpr must be"):
        SelectionProfile(BASE, 20).tradeoff(1.5)
    with pytest.raises(ParameterError, match=r"epsilon must be"):
        calibrate_selection_base(20, math.nan, 1e-5)
