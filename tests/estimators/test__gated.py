"""The methods of a gated-linear estimator: each trains by its own plan, and says what that plan promises."""

import json

import numpy as np
import pytest

from noisycgd import ConvexReLUClassifier, ConvexReLURegressor, LinearClassifier, load_model
from noisycgd._validation import ModelFileError, ParameterError, UnprovenGuaranteeError
from noisycgd.accounting import GaussianProfile, poisson_profile
from noisycgd.training import predictable_randomness
from noisycgd.types import Order, Status, ThreatModel
from noisycgd.verification import profile_of, read_guarantee

N, D = 90, 5
RNG = np.random.default_rng(3)
Y = np.arange(N) % 3
X = RNG.standard_normal((N, D)) + 3 * np.eye(D)[Y]
KINDS = {
    "relu": lambda **changes: ConvexReLUClassifier(n_hyperplanes=4, classes=[0, 1, 2], **changes),
    "linear": lambda **changes: LinearClassifier(classes=[0, 1, 2], **changes),
    "regressor": lambda **changes: ConvexReLURegressor(n_hyperplanes=4, target_range=(0, 2), **changes),
}
EVERY = pytest.mark.parametrize("kind", list(KINDS))
SAMPLED = pytest.mark.parametrize("method", ["dpsgd", "noisy-gd"])


def fitted(kind="relu", method="dpsgd", **changes):
    return KINDS[kind](method=method, **{"epochs": 3, "epsilon": 2.0, **changes}).fit(X, Y)


@EVERY
def test_dp_sgd_states_an_exact_epsilon_for_all_iterates(kind):
    model = fitted(kind)
    g = model.guarantee_
    assert (g.mechanism, g.threat_model, g.order) == ("DP-SGD", ThreatModel.ALL_ITERATES, Order.POISSON)
    assert (g.status, g.mu, g.position_mus) == (Status.PROVED, None, ())
    exact = poisson_profile(N, g.batch_size, g.noise_multiplier, epochs=3, delta=1e-5)
    assert g.epsilon == exact.epsilon(1e-5) <= 2.0
    assert model.permutation_ is None
    assert "no record is dropped" in str(g)
    assert "secret Poisson sampling" in str(g)


@EVERY
def test_noisy_gradient_descent_composes(kind):
    g = fitted(kind, "noisy-gd").guarantee_
    assert (g.mechanism, g.order, g.batch_size) == ("noisy gradient descent", Order.ALL, N)
    assert g.mu == pytest.approx(2 * np.sqrt(3) / g.noise_multiplier)
    assert g.epsilon == GaussianProfile(g.mu).epsilon(1e-5) <= 2.0
    assert "average of all iterates" in str(g)
    assert "3 steps over all records" in str(g)


@EVERY
@pytest.mark.parametrize("method", ["noisycgd", "dpsgd", "noisy-gd"])
def test_every_method_learns_when_the_budget_is_vast(kind, method):
    # Three clusters 4 standard deviations apart, of rows with a bias. The control has hardly any budget.
    def score(epsilon):
        model = KINDS[kind](method=method, epochs=60, epsilon=epsilon, bias=1.0, random_state=0)
        return model.fit(X, Y).score(X, Y)

    with predictable_randomness(0):
        vast, tiny = score(1e6), score(1e-3)
    assert vast > (0.5 if kind == "regressor" else 0.85)
    assert tiny < vast


@SAMPLED
def test_an_iterate_on_zero_rows_is_noise_of_the_planned_size(method):
    # std of N normals is off by 1 / sqrt(2 N); 5 standard deviations, seeded. 10 % less noise is refused.
    model = ConvexReLUClassifier(
        n_hyperplanes=256, classes=range(40), method=method, epochs=4, epsilon=2.0, learning_rate=0.1, radius=1e9
    )
    with predictable_randomness(2):
        model.fit(np.zeros((N, D)), Y)
    plan = model.plan_
    # One class's weights would share noise with the others'; their differences do not see the common shift.
    noise = (model.weights_.reshape(-1, 40)[:, 0] - model.weights_.reshape(-1, 40)[:, 1]) / np.sqrt(2)
    steps = (plan.steps - np.arange(plan.steps)) / plan.steps if plan.average else np.ones(plan.steps)
    std = plan.noise_std * np.sqrt(((plan.learning_rates * steps) ** 2).sum())
    tolerance = 5 / np.sqrt(2 * noise.size)
    assert tolerance < 0.2
    assert noise.std() == pytest.approx(std, rel=tolerance)
    assert noise.std() != pytest.approx(std * 2, rel=tolerance)


@SAMPLED
def test_predictable_noise_voids_and_repeats(method):
    with predictable_randomness(4):
        one, two = fitted(method=method, random_state=1), fitted(method=method, random_state=1)
    np.testing.assert_array_equal(one.weights_, two.weights_)
    assert one.guarantee_.status is Status.VOID
    assert (fitted(method=method).weights_ != fitted(method=method).weights_).any()


@EVERY
@SAMPLED
def test_saved_and_loaded(kind, method, tmp_path):
    model = fitted(kind, method)
    again = load_model(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert again.guarantee_ == model.guarantee_
    assert again.permutation_ is None
    assert again.method == method


@SAMPLED
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.5),
        ("noise_multiplier", 99.0),
        ("n_records", 80),
        ("epochs", 4),
        ("mechanism", "NoisyCGD"),
        ("threat_model", "final-model"),
        ("order", "permuted"),
        ("adjacency", "add-remove"),
        ("position_mus", [0.1]),
        ("mu", 0.7),
    ],
)
def test_a_statement_that_contradicts_itself_is_refused(method, name, value):
    guarantee = fitted(method=method).guarantee_
    stated = json.loads(json.dumps(guarantee.to_dict()))
    assert read_guarantee(stated) == guarantee
    with pytest.raises(ModelFileError, match=r"^guarantee must be"):
        read_guarantee({**stated, name: value})


def test_profiles_give_the_stated_epsilon():
    for method in ("noisycgd", "dpsgd", "noisy-gd"):
        g = fitted(method=method).guarantee_
        assert profile_of(g).epsilon(g.delta) == pytest.approx(g.epsilon, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "error", "expected"),
    [
        ({"method": "sgd"}, ParameterError, "^method must be one of 'noisycgd', 'dpsgd', 'noisy-gd'"),
        ({"batch_order": "given"}, ParameterError, "^batch_order must be left alone"),
        ({"method": "noisy-gd", "batch_size": 10}, ParameterError, '^batch_size must be "auto" for method="noisy-gd"'),
        ({"method": "noisy-gd", "loss": "norm_clipped_softmax"}, UnprovenGuaranteeError, "^loss must be convex"),
        ({"method": "noisy-gd", "radius": 0}, ParameterError, "^radius must be"),
        ({"mu": 1.0, "epsilon": None}, ParameterError, "not Gaussian"),
    ],
)
def test_what_does_not_fit_the_method_is_refused(changes, error, expected):
    with pytest.raises(error, match=expected):
        fitted(**{"method": "dpsgd", **changes})


def test_dp_sgd_takes_losses_that_are_not_convex_and_steps_of_any_length():
    model = fitted(loss="norm_clipped_softmax", clipping_norm=0.5, learning_rate=40.0)
    assert model.guarantee_.status is Status.PROVED
    assert model.guarantee_.gradient_bound == pytest.approx(0.5)
