import math

from scipy import stats

from noisycgd.data import RowBounds
from noisycgd.planning import plan_dp_sgd, plan_noisy_cgd
from noisycgd.reach import delta_beyond_reach
from noisycgd.statements import state_guarantee
from noisycgd.training.noise import REACH
from noisycgd.types import EpsilonDelta, LossCertificate, Status


def test_small_samples_show_their_noise_s_end_sooner():
    # Ten records of 60 000 in a batch: a step that has the record shifts by 4 standard deviations.
    def dp_sgd(b):
        target = EpsilonDelta(4.0, 1e-5)
        plan = plan_dp_sgd(
            n_records=60_000, batch_size=b, epochs=1, target=target, clipping_norm=1.0, learning_rate=1.0
        )
        return plan, state_guarantee(plan, RowBounds(), secret=True)

    plan, g = dp_sgd(10)
    assert g.status is Status.CONDITIONAL
    # Sampled once on average, and then lost where a single draw has no partner.
    lost = stats.norm.sf(REACH - 2 / plan.noise_multiplier)
    assert lost <= delta_beyond_reach(plan) < 2.1 * lost
    assert dp_sgd(1000)[1].status is Status.PROVED


def test_many_draws_are_counted_by_their_number():
    run = {"n_records": 10**6, "batch_size": 1000, "epochs": 400, "clipping_norm": 1.0, "learning_rate": 1.0}
    plan = plan_dp_sgd(target=EpsilonDelta(1.0, 1e-8), **run)
    assert delta_beyond_reach(plan) < 1e-11
    softmax = LossCertificate("margin_softmax", math.sqrt(2), 0.5, True, "a proof")
    run = {"n_records": 60_000, "batch_size": 1000, "epochs": 400, "target": EpsilonDelta(1.0, 1e-8)}
    plan = plan_noisy_cgd(certificate=softmax, feature_norm=2.0, **run)
    assert state_guarantee(plan, RowBounds(), secret=True).status is Status.PROVED
