import math

import numpy as np
import pytest

from noisycgd._validation import ParameterError
from noisycgd.accounting import EnvelopeProfile, GaussianProfile, MaxProfile, MixtureProfile, poisson_profile
from noisycgd.types import Adjacency

ONE, TWO = GaussianProfile(0.5), MixtureProfile((0.1, 1.0), (0.9, 0.1))
EPSILONS = np.linspace(0.0, 6.0, 40)


class TestMaxProfile:
    def test_is_the_worst_at_every_point(self):
        pool = MaxProfile((ONE, TWO))
        # The two cross, so that neither alone would do.
        assert ONE.delta(0.0) > TWO.delta(0.0)
        assert ONE.delta(4.0) < TWO.delta(4.0)
        np.testing.assert_array_equal(pool.delta(EPSILONS), np.maximum(ONE.delta(EPSILONS), TWO.delta(EPSILONS)))
        for delta in (1e-6, 1e-2):
            assert pool.epsilon(delta) == max(ONE.epsilon(delta), TWO.epsilon(delta))
            assert pool.delta(pool.epsilon(delta)) <= delta
        rates = np.linspace(0, 1, 11)
        np.testing.assert_array_equal(pool.tradeoff(rates), np.minimum(ONE.tradeoff(rates), TWO.tradeoff(rates)))
        assert isinstance(pool.delta(1.0), float)

    def test_one_is_itself(self):
        assert MaxProfile((ONE,)).epsilon(1e-5) == ONE.epsilon(1e-5)

    def test_refuses_none_and_different_neighbours(self):
        with pytest.raises(ParameterError, match="at least one profile"):
            MaxProfile(())
        with pytest.raises(ParameterError, match="adjacency"):
            MaxProfile((ONE, GaussianProfile(1.0, adjacency=Adjacency.ADD_REMOVE)))
        assert MaxProfile((poisson_profile(100, 10, 2.0, steps=3), ONE)).adjacency is Adjacency.REPLACE_ONE


def envelope(profile, points=9, last=3.0):
    epsilons = np.linspace(0.0, last, points)
    return EnvelopeProfile(epsilons, profile.delta(epsilons))


class TestEnvelope:
    @pytest.mark.parametrize("profile", [ONE, TWO, GaussianProfile(3.0)])
    def test_lies_above_every_profile_that_meets_its_points(self, profile):
        found = envelope(profile)
        assert (found.delta(EPSILONS) >= profile.delta(EPSILONS)).all()
        rates = np.linspace(0, 1, 41)
        assert (found.tradeoff(rates) <= profile.tradeoff(rates)).all()
        for delta in np.geomspace(1.001 * found.deltas[-1], 0.9, 20):
            assert found.epsilon(delta) >= profile.epsilon(delta)

    def test_is_exact_at_its_points_and_flat_beyond(self):
        found = envelope(ONE)
        np.testing.assert_array_equal(found.delta(found.epsilons), ONE.delta(found.epsilons))
        assert found.delta(800.0) == found.deltas[-1]
        assert found.epsilon(float(found.deltas[-1])) == 3.0
        assert found.epsilon(float(found.deltas[-1]) * 0.999) == math.inf
        assert found.epsilon(0.99) == 0.0

    def test_between_points_it_is_the_chord_over_the_ratio(self):
        found = EnvelopeProfile(np.array([0.0, math.log(3.0)]), np.array([0.5, 0.1]))
        assert found.delta(math.log(2.0)) == pytest.approx(0.3, rel=1e-11)
        # No lower value can be proved: this mechanism meets both points and attains the chord.
        assert found.delta(math.log(2.0)) >= 0.3
        assert found.epsilon(0.3) == pytest.approx(math.log(2.0), rel=1e-11)

    @pytest.mark.parametrize("delta", np.geomspace(1e-3, 0.15, 12))
    def test_epsilon_satisfies_its_delta(self, delta):
        found = envelope(ONE)
        assert found.delta(found.epsilon(delta)) <= delta
        assert found.epsilon(delta) == 0 or found.delta(found.epsilon(delta) * (1 - 1e-9)) > delta

    @pytest.mark.parametrize(
        ("epsilons", "deltas", "message"),
        [
            ([0.1, 1.0], [0.2, 0.1], "epsilons"),
            ([0.0, 0.0], [0.2, 0.1], "epsilons"),
            ([0.0, 1.0], [0.1, 0.2], "deltas"),
            ([0.0, 1.0], [1.2, 0.2], "deltas"),
            ([0.0, 1.0], [0.2], "deltas"),
            ([], [], "epsilons"),
        ],
    )
    def test_refusals(self, epsilons, deltas, message):
        with pytest.raises(ParameterError, match=message):
            EnvelopeProfile(np.array(epsilons), np.array(deltas))

    def test_points_beyond_double_precision_do_no_harm(self):
        found = EnvelopeProfile(np.array([0.0, 1.0, 800.0]), np.array([0.5, 0.1, 1e-9]))
        short = EnvelopeProfile(found.epsilons[:2], found.deltas[:2])
        rates = np.linspace(0, 1, 11)
        np.testing.assert_array_equal(found.tradeoff(rates), short.tradeoff(rates))
