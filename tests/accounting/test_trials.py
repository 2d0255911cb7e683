import math

import numpy as np
import pytest
from scipy.stats import norm

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile, gaussian_mu
from noisycgd.accounting.trials import NegativeBinomialTrials, PoissonTrials, as_trials

BASE = GaussianProfile(gaussian_mu(1.33, 1e-5))
LAWS = [NegativeBinomialTrials.from_mean(shape, mean) for shape, mean in ((-0.5, 20), (0, 5), (1, 20), (4, 20))]


def test_shift_of_the_negative_binomial_is_the_best_over_inner_epsilons():
    # sup over q of p'/p with Q' {better} at most 1 - f(q), f the exact trade-off function.
    for law in LAWS:
        q = np.concatenate([np.geomspace(1e-12, 1e-3, 4000), np.linspace(1e-3, 1.0, 20_000)])
        p = law.stop + (1 - law.stop) * q
        p_other = law.stop + (1 - law.stop) * norm.cdf(norm.ppf(q) + BASE.mu)
        exact = (law.shape + 1) * math.log(np.max(p_other / p))
        assert law.shift(BASE) == pytest.approx(exact, rel=1e-5)
        assert law.shift(BASE) >= exact


def test_total_variation_cap_is_that_of_all_trials():
    tv = 0.3
    for law in (NegativeBinomialTrials(-0.5, 0.3), NegativeBinomialTrials(0.0, 0.3), NegativeBinomialTrials(2.0, 0.3)):
        k = np.arange(1, 400)
        factors = np.cumprod((np.arange(400) + law.shape) / (np.arange(400) + 1.0)) if law.shape else 1 / k
        law_of_k = (1 - law.stop) ** k * factors[: k.size]
        law_of_k /= law_of_k.sum()
        assert law.mean == pytest.approx(law_of_k @ k, rel=1e-12)
        assert law.delta_cap(tv) == pytest.approx(1 - law_of_k @ (1 - tv) ** k, rel=1e-12)
    assert PoissonTrials(2.0).delta_cap(tv) == pytest.approx(1 - math.exp(-0.6))
    assert NegativeBinomialTrials(1.0, 1.0).delta_cap(tv) == tv


@pytest.mark.parametrize("shape", [-0.9, -0.5, 0.0, 1e-9, 1.0, 30.0])
@pytest.mark.parametrize("mean", [1.0, 1.0 + 1e-9, 2.0, 20.0, 1e4])
def test_from_mean_inverts_the_mean(shape, mean):
    assert NegativeBinomialTrials.from_mean(shape, mean).mean == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "stop"), [(-1.0, 0.5), (math.nan, 0.5), (1.0, 0.0), (1.0, 1.1), (1.0, math.nan), (1e7, 0.5)]
)
def test_refuses_impossible_negative_binomials(shape, stop):
    with pytest.raises(ParameterError, match="must be"):
        NegativeBinomialTrials(shape, stop)


def test_refuses_impossible_means():
    for mean in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ParameterError, match=r"mean must be a number"):
            PoissonTrials(mean)
    with pytest.raises(ParameterError, match=r"mean must be a number at least 1"):
        NegativeBinomialTrials.from_mean(1.0, 0.5)
    with pytest.raises(ParameterError, match=r"mean must be reachable with shape"):
        NegativeBinomialTrials.from_mean(-0.999, 1e9)


def test_a_number_is_the_mean_of_a_poisson_law():
    assert as_trials(20) == PoissonTrials(20.0)
    assert as_trials(LAWS[0]) is LAWS[0]
    with pytest.raises(ParameterTypeError, match="trials must be PoissonTrials"):
        as_trials(True)
