import math
from dataclasses import fields

import numpy as np
import pytest

from noisycgd import Guarantee
from noisycgd._validation import ModelFileError, NoisyCGDError
from noisycgd.planning import LAWS
from noisycgd.types import CYCLIC_ORDERS, LossCertificate
from noisycgd.verification import profile_of, read_guarantee

SOFTMAX = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
NOT_CONVEX = LossCertificate("norm_clipped_softmax", 0.5, 0.5, False, "why it fails")


@pytest.mark.parametrize("order", CYCLIC_ORDERS)
@pytest.mark.parametrize("certificate", [SOFTMAX, NOT_CONVEX])
@pytest.mark.parametrize("secret", [True, False])
def test_gives_back_what_was_stated(stated, saved, order, certificate, secret):
    _, g = stated(order, certificate, secret, ("a fact",))
    assert read_guarantee(saved(g)) == g
    assert Guarantee.from_dict(saved(g)) == g


@pytest.mark.parametrize("n", [1, 20, 21, 997])
@pytest.mark.parametrize("order", CYCLIC_ORDERS)
def test_for_any_number_of_records(stated, saved, n, order):
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
def test_refuses_what_contradicts_itself(stated, saved, change):
    values = {**saved(stated()[1]), **change}
    with pytest.raises((NoisyCGDError, KeyError, TypeError, ValueError)):
        read_guarantee(values)


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Guarantee)} - {"selection"}))
def test_refuses_what_is_incomplete(stated, saved, name):
    values = saved(stated()[1])
    del values[name]
    with pytest.raises((NoisyCGDError, KeyError, TypeError, ValueError)):
        read_guarantee(values)


def test_an_unproven_statement_does_not_become_proved(stated, saved):
    values = {**saved(stated(certificate=NOT_CONVEX)[1]), "status": "proved"}
    with pytest.raises(ModelFileError, match=r"^guarantee must be proved if and only if .* Restore the model"):
        read_guarantee(values)


@pytest.mark.parametrize("loss", [SOFTMAX, NOT_CONVEX])
def test_a_broken_condition_is_no_proof(stated, saved, loss):
    values = {**saved(stated(certificate=loss)[1]), "status": "proved", "reasons": []}
    if loss is SOFTMAX:
        read_guarantee(values)
    else:
        with pytest.raises(ModelFileError, match=r"^guarantee must be proved only if each .* got 'convex"):
            read_guarantee(values)


def test_the_contradiction_is_named(stated, saved):
    values = {**saved(stated()[1]), "epsilon": 1.0}
    with pytest.raises(ModelFileError, match=r"^guarantee must be one of epsilon .*as its other numbers say.*got 1"):
        read_guarantee(values)
    values = {**saved(stated()[1]), "mu": 1.0}
    with pytest.raises(ModelFileError, match=r"^guarantee must be .*-GDP as its other numbers say; got 1"):
        read_guarantee(values)


def test_last_digits_may_differ(stated, saved):
    g = stated()[1]
    assert read_guarantee({**saved(g), "epsilon": float(np.nextafter(g.epsilon, 3))}).epsilon > g.epsilon


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("untrained", [True, False])
@pytest.mark.parametrize("n_scored", [0, 9])
def test_a_selection_is_read_back(selected, saved, law, sampled, untrained, n_scored):
    g = selected(law, sampled, untrained=untrained, n_scored=n_scored)
    again = read_guarantee(saved(g))
    assert again == g
    assert str(again) == str(g)
    assert profile_of(again).epsilon(1e-5) == g.epsilon <= 3.0


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
def test_a_selection_refuses_what_contradicts_itself(selected, saved, change):
    values = saved(selected())
    values["selection"] |= change
    with pytest.raises((NoisyCGDError, KeyError, TypeError, ValueError)):
        read_guarantee(values)


@pytest.mark.parametrize("change", [{"epsilon": 2.0}, {"mu": 0.3}, {"position_mus": [1.0], "position_weights": [1.0]}])
def test_a_selection_refuses_other_numbers_beside_it(selected, saved, change):
    with pytest.raises(ModelFileError):
        read_guarantee({**saved(selected()), **change})


def test_a_selection_refuses_none_in_its_place(stated, saved):
    with pytest.raises(TypeError):
        read_guarantee({**saved(stated()[1]), "selection": None})


def test_a_full_batch_winner_of_a_selection_must_be_within_the_base(selected, saved):
    values = saved(selected())
    values |= {
        "mechanism": "noisy gradient descent", "threat_model": "all-iterates", "order": "all", "batch_size": 50,
    }  # fmt: skip
    values["noise_multiplier"] = 1.000001 * 2 * math.sqrt(3) / values["selection"]["base_mu"]
    assert read_guarantee(values)
    values["noise_multiplier"] *= 0.999
    with pytest.raises(ModelFileError, match="about a model within"):
        read_guarantee(values)


def test_a_sampled_winner_of_a_selection_needs_a_sampled_budget(selected, saved):
    values = saved(selected()) | {"mechanism": "DP-SGD", "threat_model": "all-iterates", "order": "poisson"}
    with pytest.raises(ModelFileError, match="a selection with sampled candidates"):
        read_guarantee(values)
    values = saved(selected(sampled=True)) | {
        "mechanism": "DP-SGD", "threat_model": "all-iterates", "order": "poisson", "noise_multiplier": 50.0,
    }  # fmt: skip
    assert read_guarantee(values)
    with pytest.raises(ModelFileError, match="about a model within"):
        read_guarantee(values | {"noise_multiplier": 0.5})
