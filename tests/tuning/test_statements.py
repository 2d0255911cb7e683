import pytest

from noisycgd._validation import rounded_up
from noisycgd.planning import plan_selection
from noisycgd.tuning.scores import score_std
from noisycgd.types import GaussianMu, Status


def test_says_what_led_to_its_epsilon(selected):
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


def test_what_was_read_off_makes_it_conditional(selected):
    assert selected(inferred=("a range",)).status is Status.CONDITIONAL
    assert selected(assumed_public=("labels",)).status is Status.PROVED


@pytest.mark.parametrize("winner_secret", [True, False])
def test_predictable_trials_void_it(selected, winner_secret):
    g = selected(secret=False, winner_secret=winner_secret)
    assert g.status is Status.VOID
    assert len(g.reasons) == 1


def test_the_end_of_the_noise_counts_in_every_trial(stated, selected):
    assert selected(epsilon=20.0, delta=1e-4).status is Status.PROVED
    # Shown by one trial, or only by all six.
    for epsilon in (60.0, 25.0):
        again = selected(epsilon=epsilon)
        assert again.status is Status.CONDITIONAL
        (reason,) = again.reasons
        assert reason.startswith("draws of noise end at 9.155 standard deviations")
    alone = plan_selection(mean_trials=6, epsilon=25.0, delta=1e-5)
    assert stated(target=GaussianMu(alone.mu, 1e-5))[1].status is Status.PROVED


def test_the_untrained_one_is_marked(selected):
    assert "untrained: no trial ran" in str(selected(untrained=True))


def test_its_numbers_are_rounded_to_the_safe_side(selected, printed):
    g = selected(mean_trials=6.1234567, n_scored=9)
    text = str(g)
    assert printed(text, "poisson with mean ") >= 6.1234567
    assert printed(text, "a random number of trials, ") >= 6.1234567
    std = score_std(g.selection.base_mu, 9)
    assert std * (1 - 1e-5) <= printed(text, "accuracy with Gaussian noise of standard deviation ") <= std
