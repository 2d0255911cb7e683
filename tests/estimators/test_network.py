import numpy as np
import pytest

from noisycgd import ReLUNetworkClassifier, load_model
from noisycgd._validation import ModelFileError, ParameterError, ParameterTypeError
from noisycgd.accounting import poisson_profile
from noisycgd.artifact import read_model, write_model
from noisycgd.training import predictable_randomness
from noisycgd.training.network import network_logits
from noisycgd.types import Status, ThreatModel

N, D = 90, 5
RNG = np.random.default_rng(3)
Y = np.arange(N) % 3
X = RNG.standard_normal((N, D)) + 3 * np.eye(D)[Y]


def make(**changes):
    return ReLUNetworkClassifier(**{"width": 8, "epochs": 3, "epsilon": 2.0, "classes": [0, 1, 2], **changes})


def test_the_guarantee_is_that_of_dp_sgd():
    g = make(clipping_norm=0.7).fit(X, Y).guarantee_
    assert (g.mechanism, g.threat_model, g.status) == ("DP-SGD", ThreatModel.ALL_ITERATES, Status.PROVED)
    assert g.gradient_bound == 0.7
    assert g.epsilon == poisson_profile(N, g.batch_size, g.noise_multiplier, epochs=3).epsilon(1e-5) <= 2.0
    assert "scaled down to C record by record" in str(g)
    assert "weights drawn from a public seed" in str(g)


def test_it_learns_what_no_linear_model_can():
    # Two interlocked half planes: the sign of a product. The control has hardly any budget.
    rng = np.random.default_rng(0)
    data = rng.choice([-1.0, 1.0], (400, 2)) + 0.2 * rng.standard_normal((400, 2))
    target = (data[:, 0] * data[:, 1] > 0).astype(int)

    def score(epsilon):
        model = make(width=16, epochs=60, epsilon=epsilon, classes=[0, 1], learning_rate=4.0, random_state=0)
        return model.fit(data, target).score(data, target)

    with predictable_randomness(0):
        assert score(1e6) > 0.95
        assert score(1e-3) < 0.8


def test_its_start_is_public_and_its_noise_is_not():
    def start(seed):
        return make(random_state=seed)._fit(X, Y, None).parameters_.hidden_weights

    np.testing.assert_array_equal(start(1), start(1))
    assert np.abs(start(1) - start(2)).max() > 0.1
    generator = np.random.RandomState(5)
    assert np.abs(start(generator) - start(generator)).max() > 0.1

    def trained():
        return make(random_state=1).fit(X, Y).parameters_.hidden_weights

    assert (trained() != trained()).any()
    with predictable_randomness(0):
        assert make().fit(X, Y).guarantee_.status is Status.VOID


@pytest.mark.parametrize("changes", [{"learning_rate": 1e-9}, {"clipping_norm": 1e-6, "learning_rate": 1e-2}])
def test_noise_that_float32_weights_would_round_away_is_refused(changes):
    with pytest.raises(ParameterError, match=r"^noise of a step must be at least 1e-07"):
        make(**changes).fit(X, Y)


def test_saved_and_loaded(tmp_path):
    model = make(bias=1.0).fit(X, Y)
    again = load_model(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(model.decision_function(X), again.decision_function(X))
    assert again.guarantee_ == model.guarantee_
    np.testing.assert_array_equal(
        model.decision_function(X), network_logits(model.parameters_, model.bounds_(X.astype(np.float64)))
    )


@pytest.mark.parametrize("name", ["hidden_weights", "hidden_bias", "output_weights", "output_bias"])
@pytest.mark.parametrize("change", ["absent", "shorter", "float64"])
def test_a_folder_with_other_tensors_is_refused(tmp_path, name, change):
    path = make().fit(X, Y).save(tmp_path / "model")
    tensors, document = read_model(path)
    content = {
        k: v for k, v in document.items() if k not in ("format", "format_version", "versions", "tensors", "files")
    }
    value = tensors.pop(name)
    if change != "absent":
        tensors[name] = value[:-1] if change == "shorter" else value.astype(np.float64)
    write_model(path, tensors, content)
    with pytest.raises(ModelFileError):
        load_model(path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"method": "noisycgd"}, r"^method must be one of 'dpsgd'; got 'noisycgd'\. A network's loss is not convex"),
        ({"width": 0}, r"^width must be"),
        ({"clipping_norm": 0}, r"^clipping_norm must be"),
        ({"learning_rate": "fast"}, r"^learning_rate must be a number"),
        ({"learning_rate": -1.0}, r"^learning_rate must be"),
        ({"mu": 1.0, "epsilon": None}, r"not Gaussian"),
    ],
)
def test_nonsense_is_refused_and_leaves_it_unfitted(changes, expected):
    model = make(**changes)
    with pytest.raises((ParameterError, ParameterTypeError), match=expected):
        model.fit(X, Y)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_learning_rate_with_which_it_could_leave_float32_is_refused():
    with pytest.raises(ParameterError, match=r"^learning_rate must be .* at most 1e\+30"):
        make(learning_rate=1e38).fit(X, Y)
    with pytest.raises(ParameterError, match=r"^noise standard deviation in the model must be .* lower learning_rate"):
        make(learning_rate=1e28).fit(X, Y)
    assert np.isfinite(make(learning_rate=1e16, epochs=20).fit(X, Y).parameters_.hidden_weights).all()


def test_the_automatic_rate_follows_from_the_plan_alone():
    one, two = make().fit(X, Y), make().fit(10 * X[::-1], Y)
    np.testing.assert_array_equal(one.plan_.learning_rates, two.plan_.learning_rates)
    plan = one.plan_
    assert plan.noise_std * np.sqrt((plan.learning_rates**2).sum()) == pytest.approx(0.2)
    # With hardly any noise the rate is bounded instead.
    assert make(epsilon=1e4).fit(X, Y).plan_.learning_rates.max() == 4.0


@pytest.mark.parametrize("l2", [0.2, 1.9, 50.0])
def test_the_automatic_rate_does_not_let_parameters_grow(l2):
    assert make(epsilon=1e4, l2=l2).fit(X, Y).plan_.learning_rates.max() * l2 <= 1 + 1e-15
