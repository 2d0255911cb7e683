import numpy as np
import pytest

from noisycgd.accounting import GaussianProfile, hidden_state_profile, multipliers
from noisycgd.types import Order
from reproduce.privacy import epsilon_at, profile_at, selection_epsilon, selection_epsilon_of_label
from reproduce.runs import Run
from reproduce.training import make, n_records

N, B, E = n_records("digits"), 200, 5
K = -(-N // B)


def run_of(estimator="ConvexReLUClassifier", **parameters):
    shared = {"batch_size": B, "epochs": E, "noise_multiplier": 4.0, "delta": 1e-5}
    return Run("digits", estimator, {**shared, **parameters}, seed=0)


@pytest.mark.parametrize(
    "run",
    [
        run_of(n_hyperplanes=4),
        run_of("LinearClassifier", schedule="cosine", batch_order="given"),
        run_of(
            n_hyperplanes=4,
            schedule="constant",
            learning_rate=0.02,
            l2=0.5,
            batch_order="given",
            allow_unproven=True,
            loss="norm_clipped_softmax",
        ),
        run_of("LinearClassifier", loss="envelope_softmax", l2=0.01),
        run_of("LinearClassifier", method="dpsgd"),
        run_of("ReLUNetworkClassifier", width=8),
    ],
    ids=["defaults", "given", "the paper's", "automatic rate with l2", "dpsgd", "network"],
)
def test_at_its_end_it_is_the_runs_own(run):
    result = make(run)
    assert epsilon_at(run, 4.0, E, result["peak_rate"]) == pytest.approx(result["epsilon"], rel=1e-9)


def test_the_rate_matters_where_there_is_an_l2():
    run = run_of("LinearClassifier", l2=0.01)
    assert epsilon_at(run, 4.0, E, 3.0) < 0.99 * epsilon_at(run, 4.0, E, 1.0)


@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_before_the_end_the_first_steps_of_the_whole_schedule_count(epoch):
    rates = np.linspace(1.0, 0.02, K * E)[: K * epoch]
    sizes = np.full(K, B)
    sizes[-1] = N - B * (K - 1)
    profile = hidden_state_profile(multipliers(rates, np.ones(K * epoch), K), 4.0, Order.PERMUTED, sizes / N)
    assert epsilon_at(run_of(), 4.0, epoch) == pytest.approx(profile.epsilon(1e-5), rel=1e-9)
    # A schedule that decays within these epochs is another one.
    other = Run("digits", "ConvexReLUClassifier", {**run_of().parameters, "epochs": epoch}, seed=0)
    assert epsilon_at(other, 4.0, epoch) != pytest.approx(profile.epsilon(1e-5), rel=1e-3)


def test_more_epochs_cost_more():
    for run in (run_of(), run_of(method="dpsgd"), run_of(schedule="constant", batch_order="given")):
        found = [epsilon_at(run, 4.0, e) for e in range(1, E + 1)]
        assert found == sorted(found)


def test_numbers_of_the_paper():
    # docs/paper_epsilons.md has the same ones.
    shared = {"batch_size": 1000, "epochs": 400, "delta": 1e-5}
    sampled = Run("mnist", "ReLUNetworkClassifier", shared, seed=0)
    assert epsilon_at(sampled, 15.0, 400) == pytest.approx(1.3173, abs=1e-4)
    cyclic = {**shared, "schedule": "constant", "learning_rate": 0.1, "l2": 5.4e-4, "batch_order": "given"}
    assert epsilon_at(Run("mnist", "LinearClassifier", cyclic, seed=0), 15.0, 400) == pytest.approx(1.3358, abs=1e-4)


def test_what_has_no_epochs_or_no_known_l2_is_refused():
    with pytest.raises(ValueError, match="must train by NoisyCGD or DP-SGD for an epsilon by epoch; got SSPClassifier"):
        epsilon_at(run_of("SSPClassifier"), 4.0, 1)
    with pytest.raises(ValueError, match="got LinearClassifier"):
        epsilon_at(run_of("LinearClassifier", method="noisy-gd"), 4.0, 1)
    with pytest.raises(ValueError, match="learning_rate must be known where l2 is used; got auto"):
        epsilon_at(run_of(l2=0.1), 4.0, 1)


def test_a_schedule_that_has_ended_has_no_further_epochs():
    with pytest.raises(ValueError, match="epoch must be at most 5 for a linear schedule; got 6"):
        profile_at(run_of(), 4.0, E + 1, 1e-5)
    constant = run_of(schedule="constant", batch_order="given")
    assert profile_at(constant, 4.0, E + 1, 1e-5).epsilon(1e-5) > profile_at(constant, 4.0, E, 1e-5).epsilon(1e-5)


def test_selection_from_the_labels():
    assert selection_epsilon_of_label(1.33, 20.0, 1e-5) == pytest.approx(3.7807, abs=1e-4)
    assert selection_epsilon_of_label(4.76, 20.0, 1e-5) == pytest.approx(12.7669, abs=1e-4)


def test_trials_that_share_a_permutation_are_bounded_by_the_worst_position():
    profile = profile_at(run_of(), 4.0, E, 1e-5)
    worst = selection_epsilon(GaussianProfile(profile.mu), 20.0, 1e-5)
    assert selection_epsilon(profile, 20.0, 1e-5) == worst
