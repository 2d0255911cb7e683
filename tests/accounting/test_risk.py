import math

import numpy as np
import pytest
from scipy.stats import norm

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile, MixtureProfile
from noisycgd.accounting.risk import (
    log_odds_shift,
    membership_advantage,
    posterior_bound,
    risk_summary,
    true_positive_rate,
)
from noisycgd.accounting.selection import SelectionProfile
from noisycgd.types import Adjacency

PROFILES = [GaussianProfile(0.35), GaussianProfile(1.0), MixtureProfile((0.2, 0.6), (0.5, 0.5))]


def exceeding(profile, t):
    """Exact probability that the likelihood ratio exceeds e^t, under the data set that it favours."""
    mus, weights = profile.components
    return float(weights @ norm.sf(t / mus - mus / 2))


@pytest.mark.parametrize("profile", PROFILES)
def test_advantage_is_the_largest_gap_between_the_rates(profile):
    fpr = np.linspace(0.0, 1.0, 20_001)
    gap = true_positive_rate(profile, fpr) - fpr
    assert membership_advantage(profile) == pytest.approx(gap.max(), abs=1e-7)
    mus, weights = profile.components
    assert membership_advantage(profile) == pytest.approx(float(weights @ (2 * norm.cdf(mus / 2) - 1)), rel=1e-9)


@pytest.mark.parametrize("fpr", [0.0, 1e-4, 0.1, 1.0])
def test_true_positive_rate_is_that_of_the_neyman_pearson_test(fpr):
    assert true_positive_rate(GaussianProfile(1.0), fpr) == pytest.approx(norm.cdf(norm.ppf(fpr) + 1.0), abs=1e-9)
    assert true_positive_rate(GaussianProfile(1.0), [fpr, fpr]).shape == (2,)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-5, 1e-10])
def test_odds_shift_fails_with_probability_at_most_delta(profile, delta):
    t = log_odds_shift(profile, delta)
    assert exceeding(profile, t) <= delta
    # Not vacuous: a tenth less is too little for some delta' not much smaller than delta.
    assert exceeding(profile, 0.9 * t) > 0.2 * delta


def test_epsilon_itself_is_no_bound_on_the_odds():
    # Negative control: odds grow by more than e^epsilon with probability above delta.
    profile, delta = GaussianProfile(1.0), 1e-5
    assert exceeding(profile, profile.epsilon(delta)) > 5 * delta
    assert log_odds_shift(profile, delta) > profile.epsilon(delta)


def test_odds_shift_is_the_best_over_inner_epsilons():
    profile, delta = GaussianProfile(1.0), 1e-5
    epsilons = np.linspace(profile.epsilon(delta), 8.0, 20_001)[1:]
    by_grid = np.min(epsilons - np.log1p(-profile.delta(epsilons) / delta))
    assert log_odds_shift(profile, delta) == pytest.approx(by_grid, rel=1e-6)


def test_posterior_simulated():
    """Either record used; posterior above its bound with frequency at most delta. Wrong failure: p < 1e-8.

    Negative control: the same bound with epsilon in place of the odds shift is exceeded too often.
    """
    mu, delta, prior, size = 1.0, 0.01, 0.3, 200_000
    profile = GaussianProfile(mu)
    rng = np.random.default_rng(3)
    bound = posterior_bound(profile, prior, delta)
    spread = 6 * math.sqrt(delta / size)
    for mean in (mu, 0.0):
        y = rng.normal(mean, 1.0, size)
        posterior = prior / (prior + (1 - prior) * np.exp(-(mu * y - mu * mu / 2)))
        assert np.mean(posterior > bound) <= delta + spread
        if mean == mu:
            naive = prior / (prior + (1 - prior) * math.exp(-profile.epsilon(delta)))
            assert np.mean(posterior > naive) > delta + spread


def test_posterior_follows_bayes_and_stays_in_range():
    t = log_odds_shift(GaussianProfile(0.5), 1e-5)
    for prior in (1e-9, 0.01, 0.5, 0.99):
        posterior = posterior_bound(GaussianProfile(0.5), prior, 1e-5)
        assert prior <= posterior <= 1.0
        assert posterior / (1 - posterior) == pytest.approx(math.exp(t) * prior / (1 - prior), rel=1e-6)
    assert posterior_bound(GaussianProfile(0.5), 0.0, 1e-5) == 0.0
    assert posterior_bound(GaussianProfile(0.5), 1.0, 1e-5) == 1.0
    assert posterior_bound(GaussianProfile(1e3), 0.5, 1e-5) == 1.0
    assert posterior_bound(GaussianProfile(0.0), 0.5, 1e-5) == pytest.approx(0.5, abs=1e-10)


def test_odds_shift_monotone():
    by_mu = [log_odds_shift(GaussianProfile(mu), 1e-5) for mu in (0.0, 1e-6, 1e-3, 0.1, 1.0, 50.0, 1e4)]
    assert by_mu == sorted(by_mu)
    by_delta = [log_odds_shift(GaussianProfile(1.0), d) for d in (1e-300, 1e-30, 1e-5, 0.1, 0.9)]
    assert by_delta == sorted(by_delta, reverse=True)


def test_summary_says_what_the_functions_say():
    profile = GaussianProfile(0.3473)
    summary = risk_summary(profile, 1e-5, priors=(0.5,), fprs=(0.01, 0.1))
    assert summary.epsilon == profile.epsilon(1e-5)
    assert summary.advantage == membership_advantage(profile)
    assert summary.true_positive_rates == (true_positive_rate(profile, 0.01), true_positive_rate(profile, 0.1))
    assert summary.posteriors == (posterior_bound(profile, 0.5, 1e-5),)
    assert summary.odds_factor == pytest.approx(math.exp(log_odds_shift(profile, 1e-5)))
    assert str(summary).splitlines() == [
        "Question: which of two given records was used in training, when all other records are known.",
        "The true-positive rate of any test exceeds its false-positive rate by at most 13.8 % (guessing: 0 %).",
        "A test with a false-positive rate of at most 1 % has a true-positive rate of at most 2.4 % (guessing: 1 %).",
        "A test with a false-positive rate of at most 10 % has a true-positive rate of at most 17.6 % "
        "(guessing: 10 %).",
        "Whoever gave a probability of 50 % that the first record was used, not the second, gives it at most 83.4 % "
        "after seeing the result, except with probability at most 1e-05 over the training's randomness.",
    ]


def test_printed_numbers_are_rounded_up():
    text = str(risk_summary(GaussianProfile(0.3473), 1e-5, priors=(), fprs=(0.01,)))
    rate = true_positive_rate(GaussianProfile(0.3473), 0.01)
    printed = float(text.rsplit("at most ", 1)[1].split(" %")[0]) / 100
    assert rate <= printed <= rate * 1.01


def test_add_remove_profiles_answer_another_question():
    text = str(risk_summary(GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE), 1e-5))
    assert "whether a given record was used" in text
    assert "two given records" not in text


def test_any_profile_will_do():
    summary = risk_summary(SelectionProfile(GaussianProfile(0.3), 20), 1e-5)
    base = risk_summary(GaussianProfile(0.3), 1e-5)
    assert summary.odds_factor > base.odds_factor
    assert all(a >= b for a, b in zip(summary.true_positive_rates, base.true_positive_rates, strict=True))


def test_refuses():
    with pytest.raises(ParameterError, match="prior must be"):
        risk_summary(GaussianProfile(1.0), 1e-5, priors=(1.5,))
    with pytest.raises(ParameterError, match="fpr must be"):
        risk_summary(GaussianProfile(1.0), 1e-5, fprs=(-0.1,))
    with pytest.raises(ParameterError, match="delta must be"):
        log_odds_shift(GaussianProfile(1.0), 0.0)
    with pytest.raises(ParameterTypeError, match="prior must be"):
        posterior_bound(GaussianProfile(1.0), "half", 1e-5)
