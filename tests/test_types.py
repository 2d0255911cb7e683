import dataclasses
import json

import numpy as np
import pytest

from noisycgd.types import (
    CYCLIC_ORDERS,
    Adjacency,
    Condition,
    EpsilonDelta,
    GaussianMu,
    Guarantee,
    LossCertificate,
    NoiseMultiplier,
    Order,
    Plan,
    Status,
    ThreatModel,
)


def guarantee(**changes):
    values = {
        "epsilon": 1.25,
        "delta": 1e-5,
        "mu": 0.4,
        "status": Status.PROVED,
        "adjacency": Adjacency.REPLACE_ONE,
        "threat_model": ThreatModel.FINAL_MODEL,
        "mechanism": "NoisyCGD",
        "order": Order.PERMUTED,
        "n_records": 1000,
        "batch_size": 100,
        "epochs": 30,
        "noise_multiplier": 5.0,
        "gradient_bound": 1.4,
        "conditions": (Condition("convexity", "each loss is convex", "by the loss"), Condition("noise", "fresh", "OS")),
        "assumptions": ("float32 rounding is negligible",),
        "assumed_public": ("class labels",),
        "reasons": (),
        "position_mus": (0.3, 0.4),
        "position_weights": (0.5, 0.5),
    }
    return Guarantee(**(values | changes))


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("order", CYCLIC_ORDERS)
def test_a_guarantee_survives_json(status, order):
    original = guarantee(status=status, order=order)
    again = Guarantee.from_dict(json.loads(json.dumps(original.to_dict())))
    assert again == original
    assert str(again) == str(original)
    assert (type(again.status), type(again.order)) == (Status, Order)
    assert isinstance(again.conditions[0], Condition)


def test_from_dict_takes_whole_numbers_for_reals():
    again = Guarantee.from_dict(guarantee().to_dict() | {"epsilon": 2, "noise_multiplier": 5})
    assert (again.epsilon, type(again.epsilon)) == (2.0, float)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "certain"},
        {"adjacency": "neighbour"},
        {"threat_model": "none"},
        {"order": "sorted"},
        {"epsilon": "small"},
        {"conditions": [{"name": "only"}]},
        {"conditions": 3},
        {"position_mus": ["a"]},
        {"unknown_field": 1},
    ],
)
def test_from_dict_refuses_anything_else(changes):
    with pytest.raises((TypeError, ValueError)):
        Guarantee.from_dict(guarantee().to_dict() | changes)


@pytest.mark.parametrize("name", ["status", "epsilon", "conditions", "mechanism"])
def test_from_dict_misses_a_field(name):
    values = guarantee().to_dict()
    del values[name]
    with pytest.raises((KeyError, TypeError)):
        Guarantee.from_dict(values)


@pytest.mark.parametrize(
    ("status", "headline"),
    [
        (Status.PROVED, "PROVED"),
        (Status.CONDITIONAL, "CONDITIONAL: holds only if the assumptions below are true"),
        (Status.UNPROVEN, "UNPROVEN: a number for comparison, not a guarantee"),
        (Status.VOID, "VOID: no privacy at all"),
    ],
)
def test_the_statement_leads_with_what_it_is_worth(status, headline):
    first = str(guarantee(status=status)).splitlines()[0]
    assert first == f"(1.25, 1e-05)-differential privacy — {headline}"


def test_the_statement_rounds_delta_up_too():
    first = str(guarantee(delta=1.0484340e-05)).splitlines()[0]
    assert first.startswith("(1.25, 0.0000104844)-")


def test_the_statement_names_every_fact():
    text = str(guarantee(reasons=("the loss is not convex",)))
    for fact in (
        "replace-one: the number of records (1000) is public",
        "final-model: the adversary sees the final parameters only",
        "NoisyCGD, 30 epochs, batches of 100, noise multiplier 5",
        "averaged over one random permutation; 0.4-GDP at the worst position",
        "why not proved the loss is not convex",
        "- convexity: each loss is convex — by the loss",
        "- float32 rounding is negligible",
        "- class labels",
    ):
        assert fact in text
    assert "worst position of a record in the given order" in str(guarantee(order=Order.GIVEN))


def test_the_statement_has_no_empty_sections():
    text = str(guarantee(assumptions=(), assumed_public=()))
    assert "assumed" not in text
    assert "why not proved" not in text


@pytest.mark.parametrize(
    "value",
    [
        guarantee(),
        Condition("a", "b", "c"),
        EpsilonDelta(1.0, 1e-5),
        GaussianMu(1.0, 1e-5),
        NoiseMultiplier(1.0, 1e-5),
        LossCertificate("l", 1.0, 0.5, True, "r"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_vocabulary_is_frozen(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, "other")


def test_words_are_what_files_and_users_spell():
    assert [str(a) for a in Adjacency] == ["replace-one", "add-remove"]
    assert [str(t) for t in ThreatModel] == ["final-model", "all-iterates", "noisy-statistics"]
    assert [str(o) for o in Order] == ["permuted", "given", "poisson", "all"]
    assert CYCLIC_ORDERS == (Order.PERMUTED, Order.GIVEN)
    assert [str(s) for s in Status] == ["proved", "conditional", "unproven", "void"]


def test_a_plans_derived_quantities():
    fields = {field.name: None for field in dataclasses.fields(Plan)}
    plan = Plan(
        **(
            fields
            | {"batches_per_epoch": 4, "epochs": 3, "noise_multiplier": 2.0, "gradient_bound": 1.5, "batch_size": 10}
        )
    )
    assert plan.steps == 12
    assert plan.noise_std == pytest.approx(0.3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.noise_multiplier = 0.0
    # Plans hold arrays: they are compared by identity, never elementwise.
    assert plan != dataclasses.replace(plan, contractions=np.ones(12))
    assert len({plan, plan}) == 1
