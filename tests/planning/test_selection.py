import math

import numpy as np
import pytest

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import (
    GaussianProfile,
    NegativeBinomialTrials,
    PoissonTrials,
    SelectionProfile,
    calibrate_selection_base,
    constant_multipliers,
    poisson_profile,
)
from noisycgd.planning import (
    LAWS,
    SelectionPlan,
    equal_base_contraction,
    equal_base_noise,
    plan_selection,
    trials_law,
)

N, B, E = 1000, 100, 5


class TestLaw:
    def test_names(self):
        assert trials_law("poisson", 20) == PoissonTrials(20)
        law = trials_law("geometric", 20)
        assert isinstance(law, NegativeBinomialTrials)
        assert law.shape == 1
        assert law.mean == pytest.approx(20)

    @pytest.mark.parametrize(("law", "mean"), [("binomial", 20), ("poisson", 0), ("geometric", 0.5), (None, 20)])
    def test_refusals(self, law, mean):
        with pytest.raises(ParameterError):
            trials_law(law, mean)

    def test_a_mean_is_a_number(self):
        with pytest.raises(ParameterTypeError):
            trials_law("poisson", "20")


@pytest.mark.parametrize("law", LAWS)
class TestPlan:
    @pytest.mark.parametrize("sampled", [False, True])
    @pytest.mark.parametrize(("epsilon", "delta", "mean"), [(1.0, 1e-5, 20), (6.0, 1e-4, 2), (0.1, 1e-3, 5)])
    def test_meets_its_target_and_hardly_misses_it(self, law, sampled, epsilon, delta, mean):
        plan = plan_selection(law=law, mean_trials=mean, epsilon=epsilon, delta=delta, sampled=sampled)
        assert epsilon * (1 - 1e-6) <= plan.epsilon <= epsilon
        assert plan.epsilon == SelectionProfile(plan.base, trials_law(law, mean)).epsilon(delta)
        assert plan.base_epsilon == GaussianProfile(plan.mu).epsilon(delta)
        assert plan.base_epsilon < epsilon

    def test_without_sampling_it_is_the_accountant_s(self, law):
        plan = plan_selection(law=law, mean_trials=7, epsilon=2.0, delta=1e-5)
        assert plan.mu == calibrate_selection_base(trials_law(law, 7), 2.0, 1e-5)
        assert plan.base == GaussianProfile(plan.mu)

    def test_with_sampling_it_is_the_profile_bound(self, law):
        plan = plan_selection(law=law, mean_trials=7, epsilon=2.0, delta=1e-5, sampled=True)
        by_profile = SelectionProfile(GaussianProfile(plan.mu), plan.trials).bound(1e-5).profile_epsilon
        assert plan.epsilon == pytest.approx(by_profile, rel=1e-4)
        assert plan.mu <= plan_selection(law=law, mean_trials=7, epsilon=2.0, delta=1e-5).mu

    def test_sampled_candidates_are_within_the_base(self, law):
        plan = plan_selection(law=law, mean_trials=7, epsilon=2.0, delta=1e-5, sampled=True)
        noise = plan.sampled_noise(N, B, E)
        profile = poisson_profile(N, B, noise, epochs=E)
        assert (profile.delta(plan.base.epsilons) <= plan.base.deltas).all()
        # The twin: the selection of this candidate alone, by its own profile, is no worse and hardly better.
        alone = SelectionProfile(profile, plan.trials).epsilon(1e-5)
        assert 0.97 * plan.epsilon < alone <= plan.epsilon
        # The negative control: less noise breaks a point and the total.
        less = poisson_profile(N, B, 0.98 * noise, epochs=E)
        assert (less.delta(plan.base.epsilons) > plan.base.deltas).any()
        assert SelectionProfile(less, plan.trials).epsilon(1e-5) > plan.epsilon

    def test_fewer_trials_and_more_budget_allow_a_worse_base(self, law):
        def mu(**changes):
            return plan_selection(**{"law": law, "mean_trials": 7, "epsilon": 2.0, "delta": 1e-5, **changes}).mu

        assert mu(mean_trials=3) > mu()
        assert mu(epsilon=3.0) > mu()
        assert mu(delta=1e-4) > mu()


def test_a_plan_without_room_has_no_sampled_noise():
    with pytest.raises(ParameterError, match="sampled must be True"):
        plan_selection(epsilon=1.0, delta=1e-5).sampled_noise(N, B, E)


@pytest.mark.parametrize("changes", [{"epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"mean_trials": -1}])
def test_refusals(changes):
    with pytest.raises(ParameterError):
        plan_selection(**{"epsilon": 1.0, "delta": 1e-5, **changes})


def test_trials_may_be_rare():
    # Delta alone covers most of it: the envelope has one point.
    plan = SelectionPlan("poisson", 1e-6, 0.01, 1e-5, sampled=True)
    assert plan.epsilon == 0.0


class TestEqualBase:
    @pytest.mark.parametrize("noise", [15.0, 5.0])
    def test_the_paper_s_recipe(self, noise):
        found = equal_base_contraction(60_000, 1000, 400, noise)
        assert found.epsilon == pytest.approx({15.0: 1.31712, 5.0: 4.54293}[noise], abs=1e-3)
        own = GaussianProfile(found.mu)
        assert found.epsilon * (1 - 1e-6) < own.epsilon(1e-5) <= found.epsilon
        assert found.mu == 2 / noise * constant_multipliers(60, 400, found.contraction).max()
        # It is the least: a little less regularisation is too little.
        less = GaussianProfile(2 / noise * float(constant_multipliers(60, 400, 0.999 * found.contraction).max()))
        assert less.epsilon(1e-5) > found.epsilon
        # Tuned guarantees: the worse of the two profiles, which differ by less than a thousandth.
        total = SelectionProfile(found.profile, 20)
        assert total.epsilon(1e-5) >= SelectionProfile(own, 20).bound(1e-5).profile_epsilon
        assert total.epsilon(1e-5) == pytest.approx(SelectionProfile(own, 20).bound(1e-5).profile_epsilon, rel=1e-3)

    def test_more_epochs_at_the_same_noise_need_less_of_it(self):
        found = [equal_base_contraction(60_000, 1000, epochs, 15.0).contraction for epochs in (200, 400, 800)]
        assert found == sorted(found, reverse=True)

    def test_noise_is_the_inverse(self):
        found = equal_base_contraction(N, B, 20, 4.0)
        back = equal_base_noise(N, B, 20, found.mu)
        assert back == pytest.approx(4.0, rel=1e-3)
        assert poisson_profile(N, B, back, epochs=20).epsilon(1e-5) <= GaussianProfile(found.mu).epsilon(1e-5)
        assert equal_base_noise(N, B, 20, 2 * found.mu) < back

    def test_where_no_regularisation_is_needed_it_is_zero(self):
        found = equal_base_contraction(100, 99, 50, 5.0)
        assert found.contraction == 0.0
        assert GaussianProfile(found.mu).epsilon(1e-5) < found.epsilon

    def test_what_cannot_be_matched_is_refused(self):
        # One epoch: NoisyCGD costs one Gaussian release, DP-SGD's sampling costs less.
        with pytest.raises(ParameterError, match="such that one step of NoisyCGD"):
            equal_base_contraction(60_000, 1000, 1, 15.0)

    def test_a_mu_is_positive(self):
        with pytest.raises(ParameterError, match="mu must be a number above 0"):
            equal_base_noise(N, B, E, 0.0)
        assert math.isfinite(equal_base_noise(N, B, E, 1.0))
        assert np.isfinite(equal_base_contraction(N, B, 20, 4.0).profile.delta(1.0))
