import numpy as np
import pytest

from noisycgd import (
    ConvexReLUClassifier,
    ConvexReLURegressor,
    LinearClassifier,
    ReLUNetworkClassifier,
    SSPClassifier,
)
from noisycgd._validation import NoisyCGDError, ParameterError, ParameterTypeError, UnprovenGuaranteeError
from noisycgd.planning import plan_selection
from noisycgd.tuning.budget import Budget, check_tunable, may_sample
from noisycgd.tuning.candidates import Candidates

N, D = 200, 4
PLAN = plan_selection(law="geometric", mean_trials=5, epsilon=4.0, delta=1e-3)
SAMPLED = plan_selection(law="geometric", mean_trials=5, epsilon=4.0, delta=1e-3, sampled=True)
SMALL = {"epochs": 2, "batch_size": 50}


def ready(model, parameters=None, plan=PLAN, facts=None, check=True):
    return Budget(plan, N, D, facts or {"classes": np.arange(3)}).ready(model, parameters or {}, check=check)


def planned(model):
    return model._plan_for(model._shape(N, D, 3))


def test_a_candidate_whose_noise_ends_where_it_shows_is_refused():
    def of_many(epsilon, **model):
        plan = plan_selection(mean_trials=20, epsilon=epsilon, delta=1e-5, sampled="method" in model)
        budget = Budget(plan, 60_000, D, {"classes": np.arange(3)})
        return budget.ready(LinearClassifier(epochs=1, **model), {})

    expected = r"^what the end of the noise adds to delta must be at most 1e-08; got .* Lower epsilon, raise delta"
    of_many(12.0)
    # The guarantee of the whole says it.
    of_many(60.0)
    of_many(6.0, method="dpsgd", batch_size=1000)
    with pytest.raises(ParameterError, match=expected):
        of_many(6.0, method="dpsgd", batch_size=10)


class TestEqualTrials:
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"epochs": 7, "l2": 0.3},
            {"batch_size": 33, "schedule": "cosine"},
            {"method": "noisy-gd", "batch_size": "auto"},
            {"loss": "envelope_softmax", "batch_order": "given"},
        ],
    )
    def test_every_candidate_has_the_base_s_mu(self, parameters):
        plan = planned(ready(ConvexReLUClassifier(n_hyperplanes=4, **SMALL), parameters))
        assert plan.profile.mu == pytest.approx(PLAN.mu, rel=1e-9)
        assert plan.profile.mu <= PLAN.mu

    def test_noisy_sums_too(self):
        plan = planned(ready(SSPClassifier(n_components=4)))
        assert PLAN.mu * (1 - 1e-9) <= plan.mu <= PLAN.mu

    @pytest.mark.parametrize(
        "model",
        [LinearClassifier(method="dpsgd", **SMALL), ReLUNetworkClassifier(width=3, **SMALL)],
        ids=lambda m: type(m).__name__,
    )
    def test_dp_sgd_stays_within_the_envelope(self, model):
        found = ready(model, plan=SAMPLED)
        assert found.mu is None
        assert (planned(found).profile.delta(SAMPLED.base.epsilons) <= SAMPLED.base.deltas).all()

    def test_dp_sgd_on_all_records_is_gaussian(self):
        found = ready(LinearClassifier(method="dpsgd", epochs=2, batch_size=N), plan=SAMPLED)
        assert found.noise_multiplier is None
        assert planned(found).profile.mu <= SAMPLED.mu

    def test_the_estimator_is_left_alone(self):
        model = LinearClassifier(**SMALL)
        before = model.get_params()
        ready(model, {"epochs": 9})
        assert model.get_params() == before


class TestRate:
    @pytest.mark.parametrize("l2", [0.0, 0.5])
    @pytest.mark.parametrize("fraction", [0.25, 1.0])
    def test_is_a_share_of_what_the_plan_admits(self, fraction, l2):
        found = ready(ConvexReLUClassifier(n_hyperplanes=4, **SMALL), {"learning_rate_fraction": fraction, "l2": l2})
        plan = planned(found)
        assert found.learning_rate == pytest.approx(fraction * plan.learning_rate_cap, rel=1e-12)
        assert plan.learning_rates.max() == pytest.approx(fraction * plan.learning_rate_cap, rel=1e-12)

    def test_is_the_same_for_dp_sgd(self):
        parameters = {"learning_rate_fraction": 0.5}
        rates = [
            ready(LinearClassifier(method=method, **SMALL), parameters, SAMPLED).learning_rate
            for method in ("noisycgd", "dpsgd")
        ]
        assert rates[0] == rates[1]

    @pytest.mark.parametrize("fraction", [0.0, 1.01, -1, float("nan")])
    def test_is_a_share(self, fraction):
        with pytest.raises(ParameterError, match="learning_rate_fraction must be a number above 0 and at most 1"):
            ready(LinearClassifier(**SMALL), {"learning_rate_fraction": fraction})

    @pytest.mark.parametrize("model", [LinearClassifier(method="noisy-gd", epochs=2), ReLUNetworkClassifier(**SMALL)])
    def test_needs_a_largest_rate(self, model):
        with pytest.raises(ParameterError, match="learning_rate_fraction must be left out"):
            ready(model, {"learning_rate_fraction": 0.5}, SAMPLED)


class TestRefusals:
    def test_a_rate_above_the_cap_names_the_candidate(self):
        with pytest.raises(UnprovenGuaranteeError, match=r"learning_rate must be at most 3.99.*The candidate is .*99"):
            ready(LinearClassifier(**SMALL), {"learning_rate": 99.0})

    @pytest.mark.parametrize(
        ("model", "parameters"),
        [
            (LinearClassifier(**SMALL), {"loss": "logistic"}),
            (LinearClassifier(**SMALL), {"loss": "norm_clipped_softmax"}),
            (LinearClassifier(**SMALL), {"epochs": 0}),
            (LinearClassifier(**SMALL), {"batch_size": N + 1}),
            (LinearClassifier(**SMALL), {"row_norm": -1.0}),
            (ConvexReLUClassifier(**SMALL), {"n_hyperplanes": 3}),
            (SSPClassifier(), {"clip": "data"}),
            (LinearClassifier(method="dpsgd", **SMALL), {"epochs": "many"}),
        ],
    )
    def test_whatever_breaks_a_condition(self, model, parameters):
        with pytest.raises(NoisyCGDError, match="no trial has run"):
            ready(model, parameters, SAMPLED)

    def test_two_classes_may_share_a_logit(self):
        assert ready(LinearClassifier(**SMALL), {"loss": "logistic"}, facts={"classes": np.array(["a", "b"])})

    def test_a_regressor_knows_its_range(self):
        model = ready(ConvexReLURegressor(n_hyperplanes=2, **SMALL), facts={"target_range": (0.0, 3.0)})
        assert model.target_range == (0.0, 3.0)


@pytest.mark.parametrize("name", ["epsilon", "delta", "mu", "noise_multiplier"])
def test_an_estimator_brings_no_budget_of_its_own(name):
    with pytest.raises(ParameterError, match=f"{name} of the estimator must be left at its default"):
        check_tunable(LinearClassifier(**{name: 0.5}))


def test_an_estimator_keeps_its_guarantee():
    with pytest.raises(ParameterError, match="allow_unproven"):
        check_tunable(LinearClassifier(allow_unproven=True))
    with pytest.raises(ParameterTypeError, match="a private estimator of this package"):
        check_tunable(object())


@pytest.mark.parametrize(
    ("model", "candidates", "sampled"),
    [
        (LinearClassifier(), {}, False),
        (LinearClassifier(method="dpsgd"), {}, True),
        (LinearClassifier(), {"method": ["noisycgd", "dpsgd"]}, True),
        (LinearClassifier(method="dpsgd"), {"method": ["noisy-gd"]}, False),
        (ReLUNetworkClassifier(), {}, True),
        (SSPClassifier(), {}, False),
    ],
)
def test_may_sample(model, candidates, sampled):
    assert may_sample(model, Candidates(candidates, model)) is sampled
