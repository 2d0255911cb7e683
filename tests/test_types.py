import dataclasses

import numpy as np
import pytest

from noisycgd.types import (
    CYCLIC_ORDERS,
    Adjacency,
    EpsilonDelta,
    GaussianMu,
    LossCertificate,
    NoiseMultiplier,
    Order,
    Plan,
    Status,
    ThreatModel,
)


@pytest.mark.parametrize(
    "value",
    [
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
