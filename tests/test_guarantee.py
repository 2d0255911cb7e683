import dataclasses
import json

import pytest

from noisycgd.guarantee import Condition, Guarantee, weakened, with_assumed_public
from noisycgd.types import CYCLIC_ORDERS, Adjacency, Order, Status, ThreatModel


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


@pytest.mark.parametrize("value", [guarantee(), Condition("a", "b", "c")], ids=lambda value: type(value).__name__)
def test_a_statement_is_frozen(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, "other")


def test_a_reason_never_raises_the_worth_and_stands_once(stated):
    _, g = stated()
    conditional = weakened(g, Status.CONDITIONAL, "one")
    assert (conditional.status, conditional.reasons) == (Status.CONDITIONAL, ("one",))
    assert weakened(conditional, Status.CONDITIONAL, "one") == conditional
    same = weakened(conditional, Status.VOID, "one")
    assert (same.status, same.reasons) == (Status.VOID, ("one",))
    void = weakened(conditional, Status.VOID, "two")
    assert (void.status, void.reasons) == (Status.VOID, ("one", "two"))
    assert weakened(void, Status.UNPROVEN, "three").status is Status.VOID


def test_facts_are_listed_in_order_and_inferred_ones_make_it_conditional(stated):
    _, g = stated()
    listed = with_assumed_public(g, ("labels",))
    assert (listed.status, listed.assumed_public) == (Status.PROVED, ("labels",))
    inferred = with_assumed_public(listed, ("columns",), ("bounds",))
    assert (inferred.status, inferred.assumed_public) == (Status.CONDITIONAL, ("labels", "columns", "bounds"))
    assert with_assumed_public(inferred, (), ("more",)).reasons == inferred.reasons


def test_plain_values_give_it_back(stated, selected, saved):
    for g in (stated()[1], selected(n_scored=9)):
        assert Guarantee.from_dict(saved(g)) == g
    assert "selection" not in stated()[1].to_dict()
