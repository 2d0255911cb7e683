import math

import numpy as np
import pytest

from noisycgd._validation import ParameterError, UnprovenGuaranteeError
from noisycgd.accounting import GaussianProfile, calibrate_poisson, composition_mu, poisson_profile
from noisycgd.planning import plan_dp_sgd, plan_noisy_gd
from noisycgd.types import EpsilonDelta, GaussianMu, LossCertificate, NoiseMultiplier

SOFTMAX = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
NOT_CONVEX = LossCertificate("norm_clipped_softmax", 0.5, 0.5, False, "why it fails")
RHO = 3.0


def sampled(**changes):
    settings = {
        "n_records": 130,
        "target": NoiseMultiplier(4.0, 1e-5),
        "epochs": 7,
        "batch_size": 20,
        "certificate": SOFTMAX,
        "feature_norm": RHO,
    }
    return plan_dp_sgd(**{**settings, **changes})


def full(**changes):
    settings = {
        "n_records": 130,
        "target": NoiseMultiplier(4.0, 1e-5),
        "epochs": 9,
        "certificate": SOFTMAX,
        "feature_norm": RHO,
        "n_parameters": 50,
    }
    return plan_noisy_gd(**{**settings, **changes})


class TestDPSGD:
    def test_sampler_and_accountant_get_the_same_rate_and_steps(self):
        plan = sampled()
        assert plan.sampling_rate == 20 / 130
        assert plan.steps == 7 * 7
        # The exact profile of just these steps, whatever the plan says of its epochs.
        assert plan.epsilon == poisson_profile(130, 20, 4.0, steps=plan.steps, delta=1e-5).epsilon(1e-5)
        assert plan.epsilon != pytest.approx(
            poisson_profile(130, 20, 4.0, steps=plan.steps - 7).epsilon(1e-5), rel=1e-3
        )

    @pytest.mark.parametrize("epsilon", [0.3, 3.0])
    def test_a_target_is_met_from_below(self, epsilon):
        plan = sampled(target=EpsilonDelta(epsilon, 1e-5), batch_size=40, epochs=2)
        assert epsilon * (1 - 1e-3) <= plan.epsilon <= epsilon
        assert plan.noise_multiplier == calibrate_poisson(130, 40, EpsilonDelta(epsilon, 1e-5), epochs=2)

    def test_a_bound_comes_from_the_certificate_or_from_clipping(self):
        assert sampled().gradient_bound == pytest.approx(RHO * math.sqrt(2))
        assert sampled().noise_std == pytest.approx(4 * RHO * math.sqrt(2) / 20)
        clipped = sampled(certificate=None, feature_norm=None, clipping_norm=0.7, learning_rate=0.1)
        assert (clipped.gradient_bound, clipped.certificate) == (0.7, None)
        assert sampled(certificate=NOT_CONVEX).gradient_bound == RHO * 0.5

    @pytest.mark.parametrize("given", [{"clipping_norm": 1.0}, {"certificate": None, "feature_norm": None}])
    def test_two_bounds_or_none_are_refused(self, given):
        with pytest.raises(ParameterError, match=r"^clipping_norm or certificate must be given, one of the two"):
            sampled(**given)

    def test_auto_needs_a_certificate_and_is_the_largest_stable_step(self):
        assert sampled(schedule="constant").learning_rates[0] == pytest.approx(0.97 * 2 / (RHO**2 * 0.5))
        with pytest.raises(ParameterError, match=r"^learning_rate must be a number"):
            sampled(certificate=None, feature_norm=None, clipping_norm=1.0)
        # Nothing is proved from smoothness here, so that larger steps are allowed.
        assert sampled(learning_rate=50.0).learning_rates.max() == 50

    def test_growing_parameters_are_refused(self):
        with pytest.raises(ParameterError, match=r"^learning_rate \* l2 must be at most 2"):
            sampled(learning_rate=5.0, l2=0.5)
        assert sampled(learning_rate=4.0, l2=0.5).learning_rates.max() == 4

    def test_a_mu_target_is_refused(self):
        with pytest.raises(ParameterError, match="subsampled mechanism is not Gaussian"):
            sampled(target=GaussianMu(1.0, 1e-5))

    @pytest.mark.parametrize("l2", [0.0, 0.3])
    def test_logit_noise_is_that_of_the_last_iterate(self, l2):
        plan = sampled(l2=l2)
        variance = 0.0
        for eta in plan.learning_rates:
            variance = (1 - eta * l2) ** 2 * variance + (eta * plan.noise_std) ** 2
        assert plan.logit_noise == pytest.approx(RHO * math.sqrt(variance), rel=1e-9)

    def test_full_batches_are_gaussian(self):
        plan = sampled(batch_size=130, target=GaussianMu(0.8, 1e-5))
        assert plan.noise_multiplier == pytest.approx(2 * math.sqrt(7) / 0.8)
        assert plan.profile.mu <= 0.8
        assert isinstance(plan.profile, GaussianProfile)


class TestNoisyGD:
    def test_steps_compose(self):
        plan = full()
        assert (plan.sampling_rate, plan.steps, plan.average) == (1.0, 9, True)
        assert plan.profile == GaussianProfile(composition_mu(9, 4.0))
        exact = GaussianProfile(2 * 3 / 4.0).epsilon(1e-5)
        assert exact <= plan.epsilon <= exact * (1 + 1e-12)

    @pytest.mark.parametrize("target", [EpsilonDelta(1.5, 1e-5), GaussianMu(0.5, 1e-5)])
    def test_a_target_is_met_from_below(self, target):
        plan = full(target=target)
        reached, asked = (
            (plan.epsilon, target.epsilon) if isinstance(target, EpsilonDelta) else (plan.profile.mu, target.mu)
        )
        assert asked * (1 - 1e-6) <= reached <= asked

    @pytest.mark.parametrize("noise", [4.0, 400.0])
    def test_the_automatic_step_minimises_the_bound_on_the_excess_loss(self, noise):
        plan = full(target=NoiseMultiplier(noise, 1e-5))
        sigma, D, T = plan.noise_std, plan.radius, 9
        assert pytest.approx(10 / RHO) == D

        def bound(eta):
            return D**2 / (2 * eta * T) + eta / 2 * 50 * sigma**2

        eta, largest = plan.learning_rates[0], 1 / (RHO**2 * 0.5)
        assert np.ptp(plan.learning_rates) == 0
        assert eta <= largest
        assert bound(0.9 * eta) > bound(eta)
        assert bound(min(1.1 * eta, largest)) >= bound(eta)
        # Noise decides in one case, smoothness in the other.
        assert (eta < 0.9 * largest) == (noise > 100)

    def test_a_loss_that_is_not_convex_is_refused(self):
        with pytest.raises(UnprovenGuaranteeError, match=r"^loss must be convex for an average of iterates"):
            full(certificate=NOT_CONVEX)

    @pytest.mark.parametrize("radius", [0, -1.0, 1e31, math.inf])
    def test_a_radius_is_a_number_of_float32(self, radius):
        with pytest.raises(ParameterError, match=r"^radius must be a number at least 1e-30 and at most 1e\+30"):
            full(radius=radius)
