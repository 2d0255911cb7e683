"""Private selection from a bank of finished runs: what the best of a random number of trials would be.

A trial draws a candidate of the bank and one of its runs, both uniformly; the number of trials is Poisson, and without
any the released model is untrained. The law of the best is known in closed form, so nothing is drawn here.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd.data.datasets import DATASETS
from reproduce.experiments import Experiment, Printed
from reproduce.methods import DELTA, EPOCHS, LABELS, SELECTION_LABELS
from reproduce.privacy import profile_at, selection_epsilon, selection_epsilon_of_label
from reproduce.summary import Summary, deviation, in_words, printed, privacy, upward, varied
from reproduce.tables import (
    LARGE_DIFFERENCE,
    dataset_title,
    difference,
    identity,
    in_print,
    markdown,
    number,
    statuses_explained,
)

MEAN_TRIALS = 20.0


def best_of_poisson(values: ArrayLike, weights: ArrayLike, mean: float, untrained: float) -> tuple[float, float]:
    """Mean and standard deviation of the best of Poisson(mean) independent draws, `untrained` if there is none.

    P(best <= v, and a trial ran) = exp(-mean (1 - F(v))) - exp(-mean), F the distribution of one draw.
    """
    v, w = (np.asarray(a, dtype=np.float64) for a in (values, weights))
    order = np.argsort(v, kind="stable")
    v, F = np.append(untrained, v[order]), np.append(0.0, np.cumsum(w[order] / w.sum()))
    shares: NDArray[np.float64] = np.diff(np.exp(-mean * (1.0 - F)), prepend=0.0)
    expected = float(shares @ v)
    return expected, float(np.sqrt(shares @ (v - expected) ** 2))


@dataclass(frozen=True, eq=False)
class Bank:
    """The candidates of a method at a noise level."""

    experiment: Experiment
    candidates: Sequence[Summary]

    @property
    def first(self) -> Summary:
        """Any of them: they share the method, the data and the noise."""
        return self.candidates[0]

    @property
    def selects(self) -> bool:
        """Whether there is anything to choose from: a single candidate is one release, as it is."""
        return len(self.candidates) > 1

    @property
    def done(self) -> int:
        """Finished runs."""
        return sum(min(one.n, one.wanted) for one in self.candidates)

    @property
    def total(self) -> int:
        """Runs of the full bank."""
        return sum(one.wanted for one in self.candidates)

    @property
    def complete(self) -> bool:
        """Whether the best of the bank may be told: of a part it would be biased."""
        return self.done == self.total > 0

    @property
    def printed(self) -> Printed | None:
        """The paper's accuracy."""
        return self.first.printed

    @functools.cached_property
    def best(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the selection's accuracy in per cent, None while the bank is incomplete."""
        if not self.complete:
            return None
        if not self.selects:
            return self.first.mean, deviation(self.first.values())
        values = np.concatenate([one.values() for one in self.candidates])
        weights = np.concatenate([np.full(one.n, 1.0 / one.n) for one in self.candidates])
        return best_of_poisson(values, weights, MEAN_TRIALS, 100.0 / len(DATASETS[self.first.cell.dataset].classes))

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.best is None or self.printed is None else self.printed.difference(self.best[0])

    @functools.cached_property
    def epsilon(self) -> float | None:
        """Of the selection among the runs as they were made; None without a complete bank."""
        return self._epsilon(self.first.cell.epochs) if self.selects else self.first.epsilon

    @functools.cached_property
    def epsilon_in_full(self) -> float | None:
        """Of the selection if each trial had the `EPOCHS` epochs of the paper's; None without a complete bank."""
        return self._epsilon(EPOCHS) if self.selects else None

    def _epsilon(self, epochs: int) -> float | None:
        if not self.complete:
            return None
        # An l2 has five digits, so that candidates differ in the sixth of their epsilon: the worst one speaks for all.
        worst = max(self.candidates, key=lambda one: one.epsilon or math.inf)
        if worst.run is None or worst.noise_multiplier is None:
            return None
        base = profile_at(worst.run, worst.noise_multiplier, epochs, DELTA / MEAN_TRIALS)
        return selection_epsilon(base, MEAN_TRIALS, DELTA)

    @property
    def label_epsilon(self) -> float | None:
        """Of the whole selection, from a Gaussian trial with the label's epsilon."""
        label = self.first.label
        return None if label is None or not self.selects else selection_epsilon_of_label(label, MEAN_TRIALS, DELTA)

    @property
    def favourite(self) -> str | None:
        """The candidate with the best mean, None of an incomplete bank and where there is nothing to choose."""
        if not (self.complete and self.selects):
            return None
        best = max(self.candidates, key=lambda one: one.mean)
        return ", ".join(in_words(*pair) for pair in varied(self.experiment, best.cell).items())


def banks(experiment: Experiment, found: Sequence[Summary]) -> list[Bank]:
    """Cells grouped by data set, noise level and method."""
    groups = itertools.groupby(found, key=lambda s: (s.cell.dataset, s.cell.noise_multiplier, s.cell.method.name))
    return [Bank(experiment, list(group)) for _, group in groups]


def selection_tables(experiment: Experiment, found: Sequence[Summary]) -> str:
    """One table per data set: a row per bank."""
    labels = ", ".join(f"{epsilon:g} from {LABELS[noise]:g}" for noise, epsilon in SELECTION_LABELS.items())
    parts = [
        "Accuracy: mean ± standard deviation, in per cent, of the best of a Poisson number of trials of mean "
        f"{MEAN_TRIALS:g}, over the draw of the trials from the bank. Resampled: no selection was run. Trials score "
        "by the accuracy that is shown, on test records, which makes it optimistic. A bank that is not complete shows "
        "nothing, since the best of a part would be biased. SSP selects nothing: it has the noise of the printed "
        f"epsilon, ± over its seeds. Difference: ours minus the paper's, bold beyond {LARGE_DIFFERENCE:.1f}.",
        f"epsilon of the whole selection is under replace-one adjacency, delta = {in_print(DELTA)}, rounded up. Paper: "
        f"as printed ({labels}); of the label: from a Gaussian trial with it; of the run: from the exact profile of a "
        f"trial as it was made; of {EPOCHS} epochs: the same if trials had as many as the paper's. DP-SGD has the "
        "profile bound only, NoisyCGD the smaller of that and the Rényi bound. " + statuses_explained(found),
    ]
    header = ["method", "base label", "epsilon, paper", "of the label", "of the run", f"of {EPOCHS} epochs"]
    header += ["accuracy", "paper", "difference", "bank", "best candidate"]
    for dataset, group in itertools.groupby(banks(experiment, found), key=lambda bank: bank.first.cell.dataset):
        parts += [f"## {dataset_title(dataset)}", markdown(header, [_row(bank) for bank in group])]
    return "\n\n".join(parts)


def _row(bank: Bank) -> list[str]:
    one = bank.first
    noise = one.cell.noise_multiplier
    return [
        one.cell.method.title,
        f"{one.label:g}" if one.label and bank.selects else "–",
        f"{SELECTION_LABELS[noise]:g}" if noise in SELECTION_LABELS else "–",
        "–" if bank.label_epsilon is None else upward(bank.label_epsilon),
        privacy(one, bank.epsilon) if bank.complete else "–",
        "–" if bank.epsilon_in_full is None else upward(bank.epsilon_in_full),
        "not complete" if bank.best is None else "{:.2f} ± {:.2f}".format(*bank.best),
        printed(bank.printed),
        difference(bank.difference),
        f"{bank.done} of {bank.total} runs" if not bank.complete else f"{bank.total} runs",
        bank.favourite or "–",
    ]


def selection_rows(experiment: Experiment, found: Sequence[Summary]) -> list[dict[str, Any]]:
    """One row per bank."""
    rows = []
    for bank in banks(experiment, found):
        one, best = bank.first, bank.best
        rows.append(
            {
                **identity(experiment, one),
                "epsilon_label": one.label if bank.selects else SELECTION_LABELS.get(one.cell.noise_multiplier),
                "title": one.cell.method.title,
                "varied": "",
                "mean_trials": MEAN_TRIALS,
                "selection_epsilon_paper": SELECTION_LABELS.get(one.cell.noise_multiplier),
                "selection_epsilon_label": bank.label_epsilon,
                "selection_epsilon": bank.epsilon,
                f"selection_epsilon_{EPOCHS}_epochs": bank.epsilon_in_full,
                "epochs": one.cell.epochs if one.cell.method.iterative else None,
                "accuracy": None if best is None else number(best[0]),
                "accuracy_sd": None if best is None else number(best[1]),
                "paper_accuracy": bank.printed.value if bank.printed else None,
                "paper_spread": bank.printed.spread if bank.printed else None,
                "difference": bank.difference,
                "n_runs": bank.done,
                "n_runs_wanted": bank.total,
                "n_candidates": len(bank.candidates),
                "best_candidate": bank.favourite,
            }
        )
    return rows
