"""The selection's law is the one accounted for: K is random, and the winner has density m Q e^(-m Q(> y)).

A toy mechanism stands for a trial: its score is uniform on [0, 1], Q(> y) = 1 - y. Every draw is seeded; LEVEL is the
error probability that each test would have under fresh randomness. A fixed number of trials, and one forced to be at
least 1, are rejected.
"""

import numpy as np
import pytest
from scipy import stats

from noisycgd.planning import trials_law
from noisycgd.training.noise import predictable_randomness, system_randomness
from noisycgd.tuning.trials import best_of, draw_number

LEVEL = 1e-6
RUNS, MEAN = 20_000, 3.0


def selected(seed, number):
    """(RUNS,) score of the winner of each search, nan where no trial ran; `number` draws K."""
    with predictable_randomness(seed):
        source = system_randomness()
    generator, scores = source.generator(), source.spawn(0).generator()
    winners = (best_of((scores.random() for _ in range(number(generator))), float) for _ in range(RUNS))
    return np.array([np.nan if winner is None else winner for winner in winners])


def drawn(law):
    return lambda generator: draw_number(trials_law(law, MEAN), generator)


def fixed(generator):
    return int(MEAN)


def forced(generator):
    return max(1, draw_number(trials_law("poisson", MEAN), generator))


def poisson_winner(y):
    """P(winner <= y, or no trial): the integral of m e^(-m (1 - t)) up to y, and e^-m for none."""
    return np.exp(-MEAN * (1 - np.asarray(y)))


def geometric_winner(y):
    """E[y^K] of a geometric law."""
    stop = 1 / MEAN
    return stop * np.asarray(y) / (1 - (1 - stop) * np.asarray(y))


def number_pvalue(numbers):
    """Chi-square test that K is Poisson; rare numbers are pooled at the end."""
    last = 9
    law = stats.poisson(MEAN)
    observed = np.bincount(np.minimum(numbers, last), minlength=last + 1)
    expected = np.append(law.pmf(np.arange(last)), law.sf(last - 1))
    return stats.chisquare(observed, len(numbers) * expected).pvalue


def winner_pvalue(winners, law):
    """Kolmogorov-Smirnov test; a run without trial counts as a score spread below all others, as a law without atom."""
    atom = float(law(0.0))
    none = np.isnan(winners)
    ranks = np.where(none, np.nan, law(np.nan_to_num(winners)))
    ranks[none] = np.random.default_rng(99).uniform(0, atom, none.sum())
    return stats.kstest(ranks, "uniform").pvalue


class TestNumberOfTrials:
    def numbers(self, number):
        generator = np.random.default_rng(17)
        return np.array([number(generator) for _ in range(RUNS)])

    def test_is_poisson(self):
        assert number_pvalue(self.numbers(drawn("poisson"))) > LEVEL

    @pytest.mark.parametrize("number", [fixed, forced, drawn("geometric")])
    def test_other_laws_are_rejected(self, number):
        assert number_pvalue(self.numbers(number)) < LEVEL

    def test_the_operating_system_draws_it(self):
        # Of 40 draws with mean 1000 all are equal with a probability below 1e-70.
        assert len({system_randomness().generator().poisson(1000) for _ in range(40)}) > 1


class TestWinner:
    @pytest.mark.parametrize(("law", "winner"), [("poisson", poisson_winner), ("geometric", geometric_winner)])
    def test_has_the_density_accounted_for(self, law, winner):
        assert winner_pvalue(selected(5, drawn(law)), winner) > LEVEL

    def test_no_trial_has_probability_e_to_the_minus_mean(self):
        none = int(np.isnan(selected(5, drawn("poisson"))).sum())
        assert stats.binomtest(none, RUNS, np.exp(-MEAN)).pvalue > LEVEL

    @pytest.mark.parametrize("number", [fixed, forced])
    def test_other_laws_are_rejected(self, number):
        assert winner_pvalue(selected(5, number), poisson_winner) < LEVEL
