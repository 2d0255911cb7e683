import json
import math

import numpy as np
import pytest
from sklearn.base import clone

from noisycgd import Guarantee, LinearClassifier, ReLUNetworkClassifier, SSPClassifier
from noisycgd._validation import ModelFileError, NoisyCGDError, rounded_up
from noisycgd.accounting import GaussianProfile, MixtureProfile, batch_weights
from noisycgd.data import RowBounds
from noisycgd.guarantee import profile_of, read_guarantee, with_assumed_public
from noisycgd.planning import LAWS, plan_noisy_cgd, plan_selection
from noisycgd.statements import state_guarantee, state_selection
from noisycgd.types import (
    CYCLIC_ORDERS,
    Adjacency,
    EpsilonDelta,
    GaussianMu,
    LossCertificate,
    Order,
    Status,
    ThreatModel,
)

SOFTMAX = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
NOT_CONVEX = LossCertificate("norm_clipped_softmax", 0.5, 0.5, False, "why it fails")


def stated(order=Order.PERMUTED, certificate=SOFTMAX, secret=True, assumed_public=(), **changes):
    run = {"n_records": 50, "batch_size": 20, "epochs": 3, "target": EpsilonDelta(2.0, 1e-5), **changes}
    run = {"feature_norm": 2.0, **run}
    plan = plan_noisy_cgd(certificate=certificate, order=order, allow_unproven=True, **run)
    bounds = RowBounds.create(2.0, "clip", False, 0.0, None, 3)
    return plan, state_guarantee(plan, bounds, secret=secret, assumed_public=assumed_public)


def saved(guarantee):
    return json.loads(json.dumps(guarantee.to_dict()))


class TestStatement:
    def test_repeats_the_plan(self):
        plan, g = stated()
        assert (g.epsilon, g.delta, g.mu, g.status) == (plan.epsilon, 1e-5, plan.profile.mu, Status.PROVED)
        assert (g.adjacency, g.threat_model) == (Adjacency.REPLACE_ONE, ThreatModel.FINAL_MODEL)
        assert (g.n_records, g.batch_size, g.epochs, g.order) == (50, 20, 3, Order.PERMUTED)
        assert (g.noise_multiplier, g.gradient_bound) == (plan.noise_multiplier, plan.gradient_bound)

    @pytest.mark.parametrize("order", CYCLIC_ORDERS)
    def test_its_positions_give_its_epsilon(self, order):
        _, g = stated(order)
        profile = MixtureProfile(g.position_mus, g.position_weights)
        assert profile.epsilon(g.delta) == pytest.approx(g.epsilon, rel=1e-12)
        assert max(g.position_mus) == g.mu

    def test_permuted_positions_are_weighted_by_their_batches(self):
        _, g = stated()
        assert g.position_weights == tuple(batch_weights(50, 20))
        assert g.position_weights == (0.4, 0.4, 0.2)

    def test_a_given_order_has_the_worst_position(self):
        plan, g = stated(Order.GIVEN)
        assert g.position_mus == (2 * plan.position_multipliers.max() / plan.noise_multiplier,)
        assert g.epsilon == GaussianProfile(g.mu).epsilon(1e-5)
        assert "worst position of a record in the given order" in str(g)

    @pytest.mark.parametrize("feature_norm", [2.0, 1.0000004, 1.23456789, 1 / 3])
    def test_the_numbers_of_the_conditions_are_the_plan_s_rounded_to_the_safe_side(self, feature_norm):
        plan, g = stated(feature_norm=feature_norm)
        text = str(g)

        def printed(before):
            return float(text.partition(before)[2].split()[0].rstrip(",").removesuffix("-smooth"))

        for before, exact, up in (
            ("gradients of two records differ by at most ", 2 * plan.gradient_bound, True),
            ("loss is convex and ", plan.smoothness, True),
            ("largest is ", plan.learning_rates.max(), True),
            ("every learning rate is at most 2/beta = ", 2 / plan.smoothness, False),
            ("Gaussian noise of standard deviation ", plan.noise_std, False),
            ("noise multiplier ", plan.noise_multiplier, False),
        ):
            assert printed(before) == pytest.approx(exact, rel=1e-5)
            assert printed(before) >= exact if up else printed(before) <= exact
        assert "brought to norm 2 (clip)" in text

    def test_the_largest_admissible_rate_does_not_look_like_more(self):
        plan, g = stated(feature_norm=1.23456789, learning_rate=2 / (1.23456789**2 * 0.5), schedule="constant")
        steps = next(c for c in g.conditions if c.name == "admissible steps")
        assert steps.requirement.endswith(f"2/beta = {2 / plan.smoothness}")
        assert steps.enforced == f"largest is {plan.learning_rates.max()}, checked before the first step"

    def test_every_condition_of_the_theorem_is_there(self):
        names = [c.name for c in stated()[1].conditions]
        assert names == [
            "convex, smooth losses",
            "bounded gradients",
            "admissible steps",
            "fixed batches",
            "public start",
            "fresh secret noise",
            "only the last iterate leaves",
        ]

    def test_what_was_assumed_is_printed(self):
        _, g = stated(assumed_public=("the colour of the sky",))
        assert "the colour of the sky" in str(g).partition("assumed public")[2]
        assert "float32" in str(g).partition("assumed\n")[2]
        assert "assumed public" not in str(stated()[1])


class TestStatus:
    def test_proved(self):
        assert "-differential privacy — PROVED" in str(stated()[1]).splitlines()[0]
        assert stated()[1].reasons == ()

    def test_unproven_says_so_first_and_why(self):
        _, g = stated(certificate=NOT_CONVEX)
        assert g.status is Status.UNPROVEN
        assert "UNPROVEN: a number for comparison, not a guarantee" in str(g).splitlines()[0]
        assert "why not proved the residual of loss 'norm_clipped_softmax' is not the gradient" in str(g)
        assert "NOT convex (why it fails)" in str(g)
        assert g.to_dict()["status"] == "unproven"

    def test_numbers_of_records_make_it_conditional(self):
        plan, proved = stated()
        bounds = RowBounds()
        found = state_guarantee(plan, bounds, secret=True, assumed_public=("labels",), inferred=("the range",))
        assert found.status is Status.CONDITIONAL
        assert found.assumed_public == ("labels", "the range")
        assert "CONDITIONAL" in str(found)
        again = with_assumed_public(found, ("columns",), ("bounds",))
        assert again.assumed_public == ("labels", "the range", "columns", "bounds")
        assert again.reasons == found.reasons
        assert proved.status is Status.PROVED

    @pytest.mark.parametrize(
        ("model", "ends"),
        [
            (LinearClassifier(epsilon=1.0), False),
            (LinearClassifier(epsilon=15.0), False),
            (LinearClassifier(epsilon=1.0, delta=1e-9), False),
            (LinearClassifier(epsilon=30.0), True),
            (LinearClassifier(epsilon=8.0, delta=1e-11), True),
            (LinearClassifier(epsilon=None, noise_multiplier=0.5, delta=1e-8, epochs=1), True),
            (LinearClassifier(method="dpsgd", epsilon=5.0), False),
            (LinearClassifier(method="dpsgd", epsilon=1e3), True),
            (LinearClassifier(method="noisy-gd", epsilon=5.0, epochs=3), False),
            (LinearClassifier(method="noisy-gd", epsilon=50.0, epochs=3), True),
            (SSPClassifier(epsilon=8.0), False),
            (SSPClassifier(epsilon=30.0, delta=1e-12), True),
            (ReLUNetworkClassifier(epsilon=5.0, learning_rate=0.1, width=3, epochs=2), False),
            (ReLUNetworkClassifier(epsilon=1e3, learning_rate=0.1, width=3, epochs=2), True),
        ],
    )
    def test_noise_that_ends_where_it_shows_makes_it_conditional(self, model, ends):
        X = np.random.default_rng(0).standard_normal((60, 3))
        g = clone(model).set_params(classes=[0, 1]).fit(X, np.arange(60) % 2).guarantee_
        assert g.status is (Status.CONDITIONAL if ends else Status.PROVED)
        assert ["end at 9.155 standard deviations" in reason for reason in g.reasons] == [True] * ends
        assert read_guarantee(saved(g)) == g

    def test_void_does_not_claim_secret_noise(self):
        text = str(stated(secret=False)[1])
        assert "FIXED SEED" in text
        assert "keys from the operating system" not in text

    @pytest.mark.parametrize("certificate", [SOFTMAX, NOT_CONVEX])
    def test_predictable_noise_voids_whatever_else_holds(self, certificate):
        _, g = stated(certificate=certificate, secret=False)
        assert g.status is Status.VOID
        assert "VOID: no privacy at all" in str(g).splitlines()[0]
        assert "fixed seed, for a test" in g.reasons[-1]


class TestReading:
    @pytest.mark.parametrize("order", CYCLIC_ORDERS)
    @pytest.mark.parametrize("certificate", [SOFTMAX, NOT_CONVEX])
    @pytest.mark.parametrize("secret", [True, False])
    def test_gives_back_what_was_stated(self, order, certificate, secret):
        _, g = stated(order, certificate, secret, ("a fact",))
        assert read_guarantee(saved(g)) == g
        assert Guarantee.from_dict(saved(g)) == g

    @pytest.mark.parametrize("n", [1, 20, 21, 997])
    @pytest.mark.parametrize("order", CYCLIC_ORDERS)
    def test_for_any_number_of_records(self, n, order):
        _, g = stated(order, n_records=n, batch_size=min(n, 20))
        assert read_guarantee(saved(g)) == g

    @pytest.mark.parametrize(
        "change",
        [
            {"epsilon": 1.0},
            {"epsilon": 1.9999},
            {"mu": 0.1},
            {"delta": 1e-6},
            {"delta": 0.0},
            {"status": "unproven"},
            {"status": "void"},
            {"status": "conditional"},
            {"status": "proven"},
            {"reasons": ["it does not hold"]},
            {"adjacency": "add-remove"},
            {"threat_model": "all-iterates"},
            {"mechanism": "DP-SGD"},
            {"order": "given"},
            {"n_records": 60},
            {"n_records": 10**15},
            {"n_records": "50"},
            {"n_records": 50.0},
            {"n_records": True},
            {"batch_size": 51},
            {"batch_size": 1},
            {"batch_size": 0},
            {"epochs": -1},
            {"epochs": None},
            {"noise_multiplier": -1.0},
            {"gradient_bound": 0.0},
            {"position_mus": []},
            {"position_mus": [1.0, 1.0, "x"]},
            {"position_mus": 1.0},
            {"position_weights": [0.2, 0.4, 0.4]},
            {"position_weights": [0.4, 0.6]},
            {"conditions": [{"name": "none"}]},
            {"conditions": [[1, 2, 3]]},
            {"assumptions": "none"},
            {"assumptions": [1]},
            {"assumed_public": None},
            {"surplus": 1},
        ],
        ids=str,
    )
    def test_refuses_what_contradicts_itself(self, change):
        values = {**saved(stated()[1]), **change}
        with pytest.raises((NoisyCGDError, KeyError, TypeError, ValueError)):
            read_guarantee(values)

    @pytest.mark.parametrize("name", sorted(stated()[1].to_dict()))
    def test_refuses_what_is_incomplete(self, name):
        values = saved(stated()[1])
        del values[name]
        with pytest.raises((NoisyCGDError, KeyError, TypeError, ValueError)):
            read_guarantee(values)

    def test_an_unproven_statement_does_not_become_proved(self):
        values = {**saved(stated(certificate=NOT_CONVEX)[1]), "status": "proved"}
        with pytest.raises(ModelFileError, match=r"^guarantee must be proved if and only if .* Restore the model"):
            read_guarantee(values)

    def test_the_contradiction_is_named(self):
        values = {**saved(stated()[1]), "epsilon": 1.0}
        with pytest.raises(
            ModelFileError, match=r"^guarantee must be one of epsilon .*as its other numbers say.*got 1"
        ):
            read_guarantee(values)
        values = {**saved(stated()[1]), "mu": 1.0}
        with pytest.raises(ModelFileError, match=r"^guarantee must be .*-GDP as its other numbers say; got 1"):
            read_guarantee(values)

    def test_last_digits_may_differ(self):
        g = stated()[1]
        assert read_guarantee({**saved(g), "epsilon": float(np.nextafter(g.epsilon, 3))}).epsilon > g.epsilon


def selected(law="poisson", sampled=False, epsilon=3.0, delta=1e-5, **changes):
    budget = plan_selection(law=law, mean_trials=6, epsilon=epsilon, delta=delta, sampled=sampled)
    winner = stated(target=GaussianMu(budget.mu, delta), secret=changes.pop("winner_secret", True))[1]
    facts = {"secret": True, "n_scored": 0, "untrained": False, **changes}
    return state_selection(winner, budget, **facts)


class TestSelection:
    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("sampled", [True, False])
    @pytest.mark.parametrize("untrained", [True, False])
    @pytest.mark.parametrize("n_scored", [0, 9])
    def test_is_read_back(self, law, sampled, untrained, n_scored):
        g = selected(law, sampled, untrained=untrained, n_scored=n_scored)
        again = read_guarantee(saved(g))
        assert again == g
        assert str(again) == str(g)
        assert profile_of(again).epsilon(1e-5) == g.epsilon <= 3.0

    def test_says_what_led_to_its_epsilon(self):
        g = selected(n_scored=9)
        text = str(g)
        for part in (
            "6 on average (poisson)",
            f"epsilon {rounded_up(g.selection.base_epsilon)}",
            f"({rounded_up(g.epsilon)}, 1e-05)",
            "holdout of 9 records",
            "the best trial's model",
            "the candidates and every other setting were chosen without them",
        ):
            assert part in text
        names = [c.name for c in g.conditions][-4:]
        assert names == ["random number of trials", "equal trials", "private scores", "the best trial alone leaves"]
        assert [c.name for c in selected().conditions][-2] == "harmless scores"

    def test_what_was_read_off_makes_it_conditional(self):
        assert selected(inferred=("a range",)).status is Status.CONDITIONAL
        assert selected(assumed_public=("labels",)).status is Status.PROVED

    @pytest.mark.parametrize("winner_secret", [True, False])
    def test_predictable_trials_void_it(self, winner_secret):
        g = selected(secret=False, winner_secret=winner_secret)
        assert g.status is Status.VOID
        assert len(g.reasons) == 1

    def test_the_end_of_the_noise_counts_in_every_trial(self):
        assert selected(epsilon=20.0, delta=1e-4).status is Status.PROVED
        # Shown by one trial, or only by all six.
        for epsilon in (60.0, 25.0):
            again = selected(epsilon=epsilon)
            assert again.status is Status.CONDITIONAL
            (reason,) = again.reasons
            assert reason.startswith("draws of noise end at 9.155 standard deviations")
        alone = plan_selection(mean_trials=6, epsilon=25.0, delta=1e-5)
        assert stated(target=GaussianMu(alone.mu, 1e-5))[1].status is Status.PROVED

    def test_the_untrained_one_is_marked(self):
        assert "untrained: no trial ran" in str(selected(untrained=True))

    @pytest.mark.parametrize(
        "change",
        [
            {"law": "fixed"},
            {"mean_trials": 5.0},
            {"mean_trials": -1.0},
            {"base_mu": 0.1},
            {"base_mu": "1"},
            {"base_epsilon": 0.5},
            {"sampled": True},
            {"sampled": 0},
            {"untrained": None},
            {"n_scored": -1},
            {"n_scored": True},
            {"surplus": 1},
        ],
        ids=str,
    )
    def test_refuses_what_contradicts_itself(self, change):
        values = saved(selected())
        values["selection"] |= change
        with pytest.raises((NoisyCGDError, KeyError, TypeError, ValueError)):
            read_guarantee(values)

    @pytest.mark.parametrize(
        "change", [{"epsilon": 2.0}, {"mu": 0.3}, {"position_mus": [1.0], "position_weights": [1.0]}]
    )
    def test_refuses_other_numbers_beside_it(self, change):
        with pytest.raises(ModelFileError):
            read_guarantee({**saved(selected()), **change})

    def test_refuses_none_in_its_place(self):
        with pytest.raises(TypeError):
            read_guarantee({**saved(stated()[1]), "selection": None})

    def test_a_full_batch_winner_must_be_within_the_base(self):
        values = saved(selected())
        values |= {
            "mechanism": "noisy gradient descent", "threat_model": "all-iterates", "order": "all", "batch_size": 50,
        }  # fmt: skip
        values["noise_multiplier"] = 1.000001 * 2 * math.sqrt(3) / values["selection"]["base_mu"]
        assert read_guarantee(values)
        values["noise_multiplier"] *= 0.999
        with pytest.raises(ModelFileError, match="about a model within"):
            read_guarantee(values)

    def test_a_sampled_winner_needs_a_sampled_budget(self):
        values = saved(selected()) | {"mechanism": "DP-SGD", "threat_model": "all-iterates", "order": "poisson"}
        with pytest.raises(ModelFileError, match="a selection with sampled candidates"):
            read_guarantee(values)
        values = saved(selected(sampled=True)) | {
            "mechanism": "DP-SGD", "threat_model": "all-iterates", "order": "poisson", "noise_multiplier": 50.0,
        }  # fmt: skip
        assert read_guarantee(values)
        with pytest.raises(ModelFileError, match="about a model within"):
            read_guarantee(values | {"noise_multiplier": 0.5})
