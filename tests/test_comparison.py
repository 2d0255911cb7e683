from __future__ import annotations

import numpy as np
import pytest

from noisycgd._validation import ParameterError
from noisycgd.accounting import GaussianProfile, poisson_profile
from noisycgd.comparison import compare_schedules, epsilon_against_epochs, shuffling_profiles, tradeoff_curve
from noisycgd.planning import account_noisy_cgd
from noisycgd.types import NoiseMultiplier, Order

RUN = {"n_records": 6000, "batch_size": 100, "noise_multiplier": 15.0, "delta": 1e-5}


def test_each_point_is_the_accountants() -> None:
    found = epsilon_against_epochs(
        **RUN,
        epochs=20,
        mechanisms=["noisycgd", "noisycgd-given", "noisycgd-linear", "dpsgd", "composition"],
        eta_l2=[0.0, 1e-3],
    )
    curves = {c.name: dict(zip(c.x, c.y, strict=True)) for c in found.curves}
    assert len(curves) == 8

    def direct(schedule: str, order: Order, l2: float) -> float:
        target = NoiseMultiplier(15.0, 1e-5)
        return account_noisy_cgd(
            n_records=6000, batch_size=100, epochs=20, target=target, l2=l2, schedule=schedule, order=order
        ).epsilon

    assert curves["NoisyCGD, permuted, constant, eta l2 = 0.001"][20] == direct("constant", Order.PERMUTED, 1e-3)
    assert curves["NoisyCGD, given, constant, eta l2 = 0"][20] == direct("constant", Order.GIVEN, 0.0)
    assert curves["NoisyCGD, permuted, linear, eta l2 = 0"][20] == direct("linear", Order.PERMUTED, 0.0)
    assert curves["DP-SGD, Poisson batches"][20] == poisson_profile(6000, 100, 15.0, epochs=20).epsilon(1e-5)
    plain = GaussianProfile(2 * np.sqrt(20) / 15).epsilon(1e-5)
    assert curves["fixed batches, every step published"][20] == pytest.approx(plain)


def test_curves_are_ordered_and_rise() -> None:
    found = epsilon_against_epochs(**RUN, epochs=50, mechanisms=["noisycgd", "noisycgd-given", "composition"])
    permuted, given, composed = (np.array(c.y) for c in found.curves)
    assert np.all(permuted <= given)
    assert np.all(given <= composed * (1 + 1e-9))
    for y in (permuted, given, composed):
        assert np.all(np.diff(y) >= 0)
    assert {c.threat_model for c in found.curves} == {"final-model", "all-iterates"}
    assert len(found.rows()) == 150


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(ParameterError, match="mechanism must be one of"):
        epsilon_against_epochs(**RUN, epochs=2, mechanisms=["magic"])


def test_an_l2_beyond_what_a_step_can_pull_is_refused_by_its_own_name() -> None:
    with pytest.raises(ParameterError, match=r"^eta_l2 must be a number at least 0 and at most 1; got 2\.0"):
        epsilon_against_epochs(**RUN, epochs=2, eta_l2=[0.1, 2.0])


def test_schedules_meet_their_target_and_decay_is_almost_free() -> None:
    rows = compare_schedules(n_records=6000, batch_size=100, epochs=50, epsilon=1.0, delta=1e-5)
    by_name = {row.schedule: row for row in rows}
    assert set(by_name) == {"constant", "linear", "cosine", "warmup-stable-decay"}
    assert by_name["constant"].epsilon == pytest.approx(1.0)
    assert 1.0 < by_name["linear"].epsilon < 1.1
    for row in rows:
        achieved = account_noisy_cgd(
            n_records=6000,
            batch_size=100,
            epochs=50,
            target=NoiseMultiplier(row.noise_multiplier, 1e-5),
            schedule=row.schedule,
        )
        assert achieved.epsilon <= 1.0
        assert achieved.epsilon == pytest.approx(1.0)


def test_shuffling_is_worse_than_the_gaussian_at_60_batches_and_better_at_1000() -> None:
    found = shuffling_profiles(batches=[60, 1000], noise_multiplier=5.0, points=5)
    plain, few, many = (dict(zip(c.y, c.x, strict=True)) for c in found.curves)
    for delta in set(few) & set(many):
        if delta <= 1e-5:
            assert many[delta] < plain[delta] < few[delta]


def test_tradeoff_curve_is_below_the_line_of_no_knowledge() -> None:
    curve, nothing = tradeoff_curve(GaussianProfile(0.5), "m", "all-iterates").curves
    assert curve.threat_model == "all-iterates"
    assert np.all(np.array(curve.y) <= 1 - np.array(curve.x) + 1e-12)
    assert (nothing.x, nothing.y) == ((0.0, 1.0), (1.0, 0.0))
    assert curve.y[0] == 1.0
