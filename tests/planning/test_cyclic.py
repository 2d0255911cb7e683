import math
import warnings

import numpy as np
import pytest

from noisycgd._validation import ParameterError, ParameterTypeError, UnprovenGuaranteeError
from noisycgd.accounting import hidden_state_profile, multipliers
from noisycgd.planning import account_noisy_cgd, auto_batch_size, plan_noisy_cgd
from noisycgd.schedules import SCHEDULES
from noisycgd.steps import AUTO_PEAK
from noisycgd.types import CYCLIC_ORDERS, EpsilonDelta, GaussianMu, LossCertificate, NoiseMultiplier, Order, Status

SOFTMAX = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
NOT_CONVEX = LossCertificate("norm_clipped_softmax", 0.5, 0.5, False, "why it fails")
TARGET = EpsilonDelta(2.0, 1e-5)


def plan(**changes):
    defaults = {
        "certificate": SOFTMAX,
        "feature_norm": 3.0,
        "n_records": 130,
        "target": TARGET,
        "epochs": 7,
        "batch_size": 20,
    }
    return plan_noisy_cgd(**{**defaults, **changes})


class TestQuantities:
    @pytest.mark.parametrize("schedule", [*SCHEDULES, "per epoch", "per step"])
    @pytest.mark.parametrize("l2", [0.0, 0.3])
    def test_every_field_is_what_its_name_says(self, schedule, l2):
        b, n, E, rho = 20, 130, 7, 3.0
        k = 7  # the last batch is short
        given = {"per epoch": np.linspace(0.5, 0.1, E), "per step": np.linspace(0.8, 0.2, k * E)}
        p = plan(schedule=given.get(schedule, schedule), l2=l2)
        beta = rho**2 * 0.5 + l2
        assert (p.batches_per_epoch, p.steps, p.batch_size, p.n_records) == (k, k * E, b, n)
        assert p.smoothness == pytest.approx(beta, rel=1e-15)
        assert p.learning_rate_cap == pytest.approx(2 / (beta + l2), rel=1e-15)
        assert p.learning_rates.shape == p.contractions.shape == (k * E,)
        # "auto" is the peak of what runs, also where the factors given never reach 1.
        assert p.learning_rates.max() == pytest.approx(0.97 * 2 / (beta + l2), rel=1e-12)
        np.testing.assert_allclose(p.contractions, 1 - p.learning_rates * l2, rtol=1e-15)
        assert p.gradient_bound == pytest.approx(rho * math.sqrt(2), rel=1e-15)
        assert p.noise_std == pytest.approx(p.noise_multiplier * rho * math.sqrt(2) / b, rel=1e-15)
        assert (p.status, p.reasons) == (Status.PROVED, ())
        expected = multipliers(p.learning_rates, p.contractions, k)
        np.testing.assert_allclose(p.position_multipliers, expected, rtol=1e-9)

    def test_auto_is_0_97_of_the_cap(self):
        assert AUTO_PEAK == 0.97

    @pytest.mark.parametrize("share", [0.2, 0.999, 1.0])
    def test_contractions_between_the_two_caps_are_those_of_the_steepest_direction(self, share):
        l2 = 1.5
        beta = 9 * 0.5 + l2
        rate = 2 / (beta + l2) + share * (2 / beta - 2 / (beta + l2))
        p = plan(l2=l2, learning_rate=rate, schedule="constant")
        assert (p.status, p.learning_rates[0]) == (Status.PROVED, rate)
        np.testing.assert_allclose(p.contractions, rate * beta - 1, rtol=1e-12)
        assert p.contractions[0] > 1 - rate * l2
        np.testing.assert_allclose(p.position_multipliers, multipliers(p.learning_rates, p.contractions, 7), rtol=1e-9)

    @pytest.mark.parametrize("l2", [0.0, 1e-9, 0.3, 7.0, 1e19])
    @pytest.mark.parametrize("rho", [1e-3, 1.0, 5.656859905, 77.0])
    def test_the_largest_admissible_step_is_admitted(self, rho, l2):
        p = plan(feature_norm=rho, l2=l2, learning_rate=2 / (rho**2 * 0.5 + l2), schedule="constant")
        assert p.status is Status.PROVED
        np.testing.assert_allclose(p.contractions, 1, rtol=1e-12)
        assert p.contractions.max() <= 1

    def test_the_released_noise_is_that_of_the_linear_recursion(self):
        # Variances of theta <- (1 - eta l2) theta - eta noise, by hand.
        for l2, schedule in ((0.0, "linear"), (0.4, "cosine"), (0.4, "constant")):
            p = plan(l2=l2, schedule=schedule)
            variance = 0.0
            for rate in p.learning_rates:
                variance = (1 - rate * l2) ** 2 * variance + (rate * p.noise_std) ** 2
            assert p.logit_noise == pytest.approx(3.0 * math.sqrt(variance), rel=1e-12)

    def test_the_released_noise_bounds_a_simulated_run(self):
        # 400 runs of 49 steps: the standard deviation of a sample of 4000 numbers is within 4 sigma = 4.5 % of its
        # mean with probability 1 - 6e-5; noise scaled by 0.9 falls outside.
        p = plan(l2=0.2)
        rng = np.random.default_rng(5)
        theta = np.zeros(4000)
        for rate in p.learning_rates:
            theta -= rate * (0.2 * theta + p.noise_std * rng.standard_normal(4000))
        assert 3.0 * theta.std() == pytest.approx(p.logit_noise, rel=0.045)
        assert 0.9 * 3.0 * theta.std() != pytest.approx(p.logit_noise, rel=0.045)

    def test_a_contraction_of_zero_forgets_all_earlier_noise(self):
        # beta = l2 up to rounding, so that a step of 1 / l2 contracts to a point.
        p = plan(feature_norm=1e-9, l2=4.0, learning_rate=0.25, schedule="constant")
        assert p.contractions.max() == 0
        assert p.logit_noise == pytest.approx(1e-9 * 0.25 * p.noise_std, rel=1e-12)
        assert p.position_multipliers[-1] == pytest.approx(1, rel=1e-9)

    def test_a_run_of_24000_steps(self):
        p = plan(n_records=60_000, batch_size=1000, epochs=400, target=NoiseMultiplier(15.0, 1e-5))
        assert p.steps == 24_000
        worst = 2 * p.position_multipliers.max() / 15
        # THEORY section 1: linear decay moves the worst position's epsilon from 1.4212 to 1.4278.
        assert hidden_state_profile([worst / 2 * 15], 15.0, Order.GIVEN).epsilon(1e-5) == pytest.approx(
            1.4278, abs=1e-4
        )
        # THEORY section 2: s_z = 7.4 at rho = sqrt(32) holds for this multiplier.
        assert math.isfinite(p.logit_noise)

    @pytest.mark.parametrize(
        ("n", "b"), [(1, 1), (2, 2), (16, 16), (17, 16), (100, 40), (60_000, 980), (10**12, 4 * 10**6)]
    )
    def test_auto_batch_size(self, n, b):
        assert auto_batch_size(n) == b


class TestTargets:
    @pytest.mark.parametrize("order", CYCLIC_ORDERS)
    @pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0, 50.0])
    def test_epsilon_is_met_from_below(self, epsilon, order):
        p = plan(target=EpsilonDelta(epsilon, 1e-5), order=order)
        assert epsilon * (1 - 1e-6) <= p.epsilon <= epsilon

    def test_mu_binds_the_worst_position_in_any_order(self):
        for order in CYCLIC_ORDERS:
            p = plan(target=GaussianMu(0.7, 1e-5), order=order)
            assert 0.7 * (1 - 1e-6) <= p.profile.mu <= 0.7

    def test_a_noise_multiplier_is_taken_as_it_is(self):
        assert plan(target=NoiseMultiplier(3.25, 1e-5)).noise_multiplier == 3.25

    def test_permuting_needs_less_noise(self):
        assert plan().noise_multiplier < plan(order=Order.GIVEN).noise_multiplier

    def test_order_may_be_its_name(self):
        p = plan(order="given")
        assert p.order is Order.GIVEN

    @pytest.mark.parametrize(
        ("target", "name"),
        [
            (EpsilonDelta(0, 1e-5), "epsilon"),
            (EpsilonDelta(-1.0, 1e-5), "epsilon"),
            (EpsilonDelta(math.nan, 1e-5), "epsilon"),
            (EpsilonDelta(math.inf, 1e-5), "epsilon"),
            (EpsilonDelta(1.0, 0.0), "delta"),
            (EpsilonDelta(1.0, 1.0), "delta"),
            (EpsilonDelta(1.0, -1e-5), "delta"),
            (GaussianMu(0.0, 1e-5), "mu"),
            (NoiseMultiplier(0.0, 1e-5), "noise_multiplier"),
        ],
    )
    def test_targets_that_make_no_sense(self, target, name):
        with pytest.raises(ParameterError, match=rf"^{name} must be a number above 0.*; got "):
            plan(target=target)

    @pytest.mark.parametrize("epsilon", ["1", None, True, 1j, [1.0]])
    def test_targets_of_the_wrong_type(self, epsilon):
        with pytest.raises(ParameterTypeError, match=r"^epsilon must be a number above 0; got "):
            plan(target=EpsilonDelta(epsilon, 1e-5))

    def test_delta_above_one_in_n_warns(self):
        with pytest.warns(UserWarning, match=r"^delta must be at most 1/n = 0.00769 .*; got 0.01. Lower it.$"):
            plan(target=EpsilonDelta(1.0, 0.01))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plan(target=EpsilonDelta(1.0, 1 / 130))


class TestRefusals:
    def test_a_step_above_the_cap_names_the_cap_and_the_way_out(self):
        expected = (
            r"^learning_rate must be at most 0\.444444 \(= 2/beta, beta = 4\.5\) for the hidden-state guarantee; "
            r"got 0\.5\. Lower it; 0\.431111 is a good choice\. Or use learning_rate=\"auto\"; allow_unproven=True"
        )
        with pytest.raises(UnprovenGuaranteeError, match=expected):
            plan(learning_rate=0.5)

    def test_a_step_just_above_the_cap(self):
        with pytest.raises(UnprovenGuaranteeError):
            plan(learning_rate=np.nextafter(2 / 4.5, 1))

    def test_a_loss_that_is_not_convex(self):
        with pytest.raises(UnprovenGuaranteeError, match=r"^loss must be convex.*got 'norm_clipped.*envelope_softmax"):
            plan(certificate=NOT_CONVEX)

    @pytest.mark.parametrize("schedule", ["constant", "linear"])
    @pytest.mark.parametrize("l2", [0.0, 0.5])
    def test_on_request_what_is_not_proved_is_planned_and_labelled(self, l2, schedule):
        p = plan(certificate=NOT_CONVEX, learning_rate=5.0, l2=l2, schedule=schedule, allow_unproven=True)
        assert p.status is Status.UNPROVEN
        assert "not the gradient of a convex function (why it fails)" in p.reasons[0]
        assert p.reasons[1].startswith("a learning rate of 5 exceeds 2/beta = ")
        assert p.epsilon == pytest.approx(2.0, rel=1e-6)

    def test_asking_for_less_than_proved_changes_nothing_where_all_is_proved(self):
        lax, strict = plan(allow_unproven=True), plan()
        assert (lax.status, lax.noise_multiplier) == (Status.PROVED, strict.noise_multiplier)

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"n_records": 0}, r"^n_records must be an integer at least 1; got 0\."),
            ({"epochs": 0}, r"^epochs must be an integer at least 1; got 0\."),
            ({"batch_size": 0}, r"^batch_size must be an integer at least 1; got 0\. batch_size=\"auto\""),
            ({"batch_size": 131}, r"^batch_size must be at most the number of records \(130\); got 131\. Lower it; "),
            (
                {"learning_rate": 0.0},
                r"^learning_rate must be a number at least 1e-30 and at most 1e\+30; got 0.0\. learning_rate=\"auto\"",
            ),
            ({"learning_rate": -1.0}, r"^learning_rate must be a number at least 1e-30 and at most 1e\+30; got -1"),
            ({"learning_rate": math.nan}, r"^learning_rate must be .* got nan"),
            ({"l2": -1e-9}, r"^l2 must be a number at least 0 and at most 1e\+20; got -1e-09\. .*l2=0 is allowed"),
            ({"l2": 1e300}, r"^l2 must be a number at least 0 and at most 1e\+20; got 1e\+300"),
            ({"feature_norm": 0.0}, r"^feature_norm must be a number above 0; got 0"),
            ({"feature_norm": -3.0}, r"^feature_norm must be a number above 0; got -3"),
            ({"certificate": LossCertificate("flat", 1.0, 0.0, True, "")}, r"^smoothness of the loss must be a number"),
            (
                {"schedule": "sawtooth"},
                r"^schedule must be one of 'linear', 'constant', 'cosine', 'warmup-stable-decay'; got 'sawtooth'\. An",
            ),
            ({"schedule": np.ones(3)}, r"^schedule must be of shape \(49,\), one factor per step, or \(7,\), one per"),
            ({"schedule": np.ones((7, 7))}, r"^schedule must be of shape \(49,\).*got \(7, 7\)"),
            ({"schedule": np.zeros(49)}, r"^schedule must be made of factors above 0 and at most 1; got "),
            ({"schedule": np.full(7, 1.01)}, r"^schedule must be made of factors above 0 and at most 1; got "),
            ({"schedule": [0.5] * 6 + [math.nan]}, r"^schedule must be made of factors above 0 and at most 1; got "),
            ({"schedule": ["a"] * 7}, r"^schedule must be a name or an array of numbers"),
            ({"order": "sorted"}, r"^order must be one of 'permuted', 'given'; got 'sorted'"),
        ],
    )
    def test_parameters_out_of_range(self, changes, expected):
        with pytest.raises(ParameterError, match=expected):
            plan(**changes)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("batch_size", 2.5),
            ("batch_size", "large"),
            ("batch_size", True),
            ("epochs", 3.0),
            ("epochs", "3"),
            ("l2", "0"),
            ("l2", None),
            ("learning_rate", "fast"),
            ("learning_rate", None),
            ("learning_rate", np.ones(2)),
            ("learning_rate", True),
            ("feature_norm", "3"),
        ],
    )
    def test_parameters_of_the_wrong_type(self, name, value):
        with pytest.raises(ParameterTypeError, match=f"^{name} must be "):
            plan(**{name: value})


RUN = {"n_records": 60_000, "batch_size": 1000, "epochs": 400, "target": NoiseMultiplier(15.0, 1e-5)}


class TestAccount:
    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("l2", [0.0, 0.05])
    def test_agrees_with_the_plan_of_the_same_run(self, l2, schedule):
        p = plan(l2=l2, schedule=schedule)
        stated = account_noisy_cgd(
            n_records=130,
            batch_size=20,
            epochs=7,
            target=TARGET,
            learning_rate=p.learning_rates.max(),
            schedule=schedule,
            l2=l2,
            smoothness=p.smoothness,
        )
        assert stated.status is Status.PROVED
        assert stated.noise_multiplier == pytest.approx(p.noise_multiplier, rel=1e-9)
        np.testing.assert_allclose(stated.position_mus, 2 * p.position_multipliers / p.noise_multiplier, rtol=1e-9)
        assert stated.composition.mu == pytest.approx(2 * math.sqrt(7) / stated.noise_multiplier)

    @pytest.mark.parametrize(("l2", "epsilon"), [(5.4e-5, 1.234670191), (0.0, 1.325196114)])
    def test_without_the_smoothness_the_answer_is_conditional(self, l2, epsilon):
        answer = account_noisy_cgd(**RUN, l2=l2)
        assert answer.status is Status.CONDITIONAL
        assert answer.epsilon == pytest.approx(epsilon, rel=1e-6)
        assert any("not checked: no smoothness was stated" in condition for condition in answer.conditions)

    def test_a_step_above_the_stated_smoothness(self):
        with pytest.raises(UnprovenGuaranteeError, match=r"^learning_rate must be at most 0\.5 \(= 2/beta.*Lower it"):
            account_noisy_cgd(**RUN, smoothness=4.0)

    def test_a_step_that_no_smoothness_admits(self):
        with pytest.raises(ParameterError, match=r"^learning_rate must be at most 1/l2 = 0\.333333; got 1"):
            account_noisy_cgd(**RUN, l2=3.0)

    def test_smoothness_includes_l2(self):
        with pytest.raises(ParameterError, match=r"^smoothness must be a number at least 0\.5; got 0\.4"):
            account_noisy_cgd(**RUN, l2=0.5, smoothness=0.4)

    def test_a_batch_larger_than_the_data(self):
        with pytest.raises(ParameterError, match=r"^batch_size must be at most the number of records \(5\); got 6"):
            account_noisy_cgd(n_records=5, batch_size=6, epochs=1, target=TARGET)

    @pytest.mark.parametrize("rate", [0.3, 0.7, 1.1, 3.3])
    def test_the_largest_admissible_step(self, rate):
        answer = account_noisy_cgd(**RUN, learning_rate=rate, smoothness=2 / rate)
        assert answer.epsilon == pytest.approx(1.325196114, rel=1e-6)
