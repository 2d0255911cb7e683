import numpy as np
import pytest

from noisycgd import LinearClassifier, SSPClassifier, SSPRegressor, load_model
from noisycgd._validation import ModelFileError, ParameterError
from noisycgd.accounting import GaussianProfile
from noisycgd.artifact import read_model, write_model
from noisycgd.training import predictable_randomness
from noisycgd.types import Order, Status, ThreatModel

N, D = 120, 5
RNG = np.random.default_rng(3)
Y = np.arange(N) % 3
X = RNG.standard_normal((N, D)) + 3 * np.eye(D)[Y]
MAPS = [("identity", 2), ("fourier", 16), ("relu-patterns", 8), ("relu", 8), ("convex-relu", 4)]


def make(kind="classifier", **changes):
    cls, facts = {
        "classifier": (SSPClassifier, {"classes": [0, 1, 2]}),
        "regressor": (SSPRegressor, {"target_range": (0, 2)}),
    }[kind]
    return cls(**{"n_components": 16, "epsilon": 2.0, **facts, **changes})


KINDS = pytest.mark.parametrize("kind", ["classifier", "regressor"])


@KINDS
def test_the_guarantee_is_that_of_three_gaussian_releases(kind):
    model = make(kind).fit(X, Y)
    g = model.guarantee_
    assert (g.status, g.threat_model, g.order) == (Status.PROVED, ThreatModel.NOISY_STATISTICS, Order.ALL)
    assert g.mu == pytest.approx(2 * np.sqrt(3) / g.noise_multiplier)
    assert g.epsilon == GaussianProfile(g.mu).epsilon(1e-5) <= 2.0
    text = str(g)
    assert "noisy sums behind the model" in text
    assert "one pass over all records" in text
    assert f"{model.plan_.gram_std:.6g}" in text


@KINDS
@pytest.mark.parametrize(("features", "components"), MAPS)
def test_a_vast_budget_gives_least_squares_on_the_features(kind, features, components):
    model = make(kind, features=features, n_components=components, epsilon=1e12, bias=1.0, random_state=0).fit(X, Y)
    seen = model.bounds_(X)
    if model.row_features_ is not None:
        seen = model.row_features_.transform(seen)
    target = np.eye(3)[Y] if kind == "classifier" else (Y - 1.0)[:, None]
    expected = seen @ np.linalg.lstsq(seen.astype(np.float64), target, rcond=1e-9)[0]
    np.testing.assert_allclose(model._logits(X), expected, atol=5e-3)


@pytest.mark.parametrize(
    ("features", "paired", "independent"), [("relu-patterns", 5, 8), ("relu", 8, 8), ("convex-relu", 25, 40)]
)
def test_hyperplanes_are_pairs_or_independent(features, paired, independent, tmp_path):
    settings = {"features": features, "n_components": 8, "random_state": 0}
    models = [make(gates=gates, **settings).fit(X, Y) for gates in ("antithetic", "iid")]
    assert [model.plan_.n_features for model in models] == [paired, independent]
    again = load_model(models[1].save(tmp_path / "model"))
    np.testing.assert_array_equal(models[1].predict(X), again.predict(X))
    # An odd number has no pairs.
    assert make(gates="iid", **settings | {"n_components": 7}).fit(X, Y).guarantee_.status is Status.PROVED


@KINDS
@pytest.mark.parametrize(("features", "components"), MAPS)
def test_saved_and_loaded(kind, features, components, tmp_path):
    model = make(kind, features=features, n_components=components).fit(X, Y)
    again = load_model(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert again.guarantee_ == model.guarantee_


@pytest.mark.parametrize("name", ["weights", "directions"])
@pytest.mark.parametrize("change", ["absent", "shorter", "other dtype"])
def test_a_folder_with_other_tensors_is_refused(tmp_path, name, change):
    path = make().fit(X, Y).save(tmp_path / "model")
    tensors, document = read_model(path)
    of_the_format = ("format", "format_version", "versions", "tensors", "files")
    value = tensors.pop(name)
    if change != "absent":
        tensors[name] = value[:-1] if change == "shorter" else value.astype(np.int32)
    write_model(path, tensors, {key: item for key, item in document.items() if key not in of_the_format})
    with pytest.raises(ModelFileError):
        load_model(path)


@KINDS
def test_a_bound_from_the_data_is_not_private_and_says_so(kind):
    rows = X / 100  # far within the public bound
    model = make(kind, features="identity", row_bounding="clip", clip="data").fit(rows, Y)
    assert model.guarantee_.status is Status.VOID
    assert "read off the records" in str(model.guarantee_)
    assert "VOID" in str(model.guarantee_).splitlines()[0]
    assert model.plan_.feature_norm == pytest.approx(np.linalg.norm(rows, axis=1).max(), rel=1e-6)
    public = make(kind, features="identity", row_bounding="clip").fit(rows, Y)
    assert public.plan_.feature_norm == pytest.approx(1.0, rel=2e-6)
    assert public.guarantee_.status is Status.PROVED


def test_noise_is_fresh_secret_and_void_under_a_seed():
    one, two = make(random_state=1).fit(X, Y), make(random_state=1).fit(X, Y)
    assert (one.weights_ != two.weights_).all()
    with predictable_randomness(0):
        one = make(random_state=1).fit(X, Y)
    with predictable_randomness(0):
        two = make(random_state=1).fit(X, Y)
    np.testing.assert_array_equal(one.weights_, two.weights_)
    assert one.guarantee_.status is Status.VOID


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"features": "pixels"}, r"^features must be one of 'identity'"),
        ({"clip": "median"}, r"^clip must be one of 'public', 'data'"),
        ({"ridge": "none"}, r"^ridge must be one of"),
        ({"rho": 1.0}, r"^rho must be"),
        ({"n_components": 15}, r"^n_components must be even"),
        ({"n_components": 10_000}, r"^n_features must be an integer at least 1 and at most 8192"),
        ({"gates": "linear"}, r"^gates must be one of"),
        ({"gates": "linear", "features": "identity"}, r"^gates must be one of"),
        ({"bandwidth": "wide"}, r"^bandwidth must be one of 'auto'"),
        ({"bandwidth": 0}, r"^bandwidth must be"),
        ({"epsilon": 0}, r"^epsilon must be"),
    ],
)
def test_nonsense_is_refused_and_leaves_it_unfitted(changes, expected):
    model = make(**changes)
    with pytest.raises(ParameterError, match=expected):
        model.fit(X, Y)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("method", ["noisycgd", "dpsgd"])
@pytest.mark.parametrize(("features", "components"), [m for m in MAPS if m[0] != "convex-relu"])
@pytest.mark.parametrize("gates", ["antithetic", "iid"])
def test_random_features_work_with_every_method(method, features, components, gates, tmp_path):
    settings = {
        "features": features,
        "n_components": components,
        "gates": gates,
        "method": method,
        "epochs": 3,
        "random_state": 0,
    }
    model = LinearClassifier(classes=[0, 1, 2], **settings).fit(X, Y)
    assert model.guarantee_.status is Status.PROVED
    rho = 1.0 if model.row_features_ is None else model.row_features_.feature_norm(1.0)
    assert model.guarantee_.gradient_bound == pytest.approx(rho * np.sqrt(2), rel=1e-5)
    again = load_model(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(model.decision_function(X), again.decision_function(X))
    mapped = model.bounds_(X) if model.row_features_ is None else model.row_features_.transform(model.bounds_(X))
    np.testing.assert_allclose(model.decision_function(X), mapped @ model.weights_, atol=1e-5)
