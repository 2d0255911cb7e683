"""The statement that goes with a released model: what it promises, to whom, and how each condition was made true."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from noisycgd._validation import delta_in_print, rounded_down, rounded_up
from noisycgd.types import CYCLIC_ORDERS, Adjacency, Order, Status, ThreatModel

NOISY_CGD, DP_SGD, NOISY_GD, SSP = "NoisyCGD", "DP-SGD", "noisy gradient descent", "sufficient-statistics perturbation"

THREATS = {
    ThreatModel.FINAL_MODEL: "the adversary sees the final parameters only",
    ThreatModel.ALL_ITERATES: "the adversary may see every step of training",
    ThreatModel.NOISY_STATISTICS: "the adversary may see the noisy sums behind the model",
}
ORDERS = {
    Order.PERMUTED: "averaged over one random permutation",
    Order.GIVEN: "worst position of a record in the given order",
    Order.POISSON: "amplified by secret Poisson sampling, all steps composed numerically",
    Order.ALL: "composition of Gaussian releases",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the theorem, and how it was made true."""

    name: str
    requirement: str
    enforced: str


@dataclass(frozen=True, slots=True)
class Selection:
    """How a released model was chosen: the best of a random number of private trials (THEORY section 4).

    Attributes
    ----------
    law : str
        Law of the number of trials, "poisson" or "geometric".
    mean_trials : float
        Its mean.
    base_mu : float
        Every trial, its score included, is mu-GDP; if `sampled`, no worse than that where the bound looks.
    base_epsilon : float
        Epsilon of one trial at the guarantee's delta.
    sampled : bool
        Whether a candidate may be trained on Poisson batches, which no Gaussian bounds as a whole.
    n_scored : int
        Private records that were held out to score trials; 0 if the score was computed on public data.
    untrained : bool
        No trial ran: the model is a public start point.
    """

    law: str
    mean_trials: float
    base_mu: float
    base_epsilon: float
    sampled: bool
    n_scored: int
    untrained: bool

    @property
    def scored_on(self) -> str:
        """What told trials apart, in words."""
        return f"a private holdout of {self.n_scored} records, by noised accuracy" if self.n_scored else "public data"

    @property
    def released(self) -> str:
        """What left the selection, in words."""
        return (
            "untrained: no trial ran, the model is a public start point" if self.untrained else "the best trial's model"
        )

    @property
    def trial(self) -> str:
        """The guarantee of one trial, in words."""
        worse = ", or no worse where the bound looks" * self.sampled
        return f"epsilon {rounded_up(self.base_epsilon)}; {rounded_up(self.base_mu)}-GDP{worse}, score included"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a released model promises, to whom, and how each condition was made true."""

    epsilon: float
    delta: float
    mu: float | None
    status: Status
    adjacency: Adjacency
    threat_model: ThreatModel
    mechanism: str
    order: Order
    n_records: int
    batch_size: int
    epochs: int
    noise_multiplier: float
    gradient_bound: float
    conditions: tuple[Condition, ...]
    assumptions: tuple[str, ...] = ()
    assumed_public: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    position_mus: tuple[float, ...] = field(default=(), repr=False)
    position_weights: tuple[float, ...] = field(default=(), repr=False)
    selection: Selection | None = None

    @property
    def has_positions(self) -> bool:
        """Whether privacy depends on a record's place among the batches; a selection counts its worst place."""
        return self.order in CYCLIC_ORDERS and self.selection is None

    @property
    def accounting(self) -> str:
        """How the numbers were put together, in words."""
        if self.selection is None:
            return ORDERS[self.order]
        mean, law = rounded_up(self.selection.mean_trials), self.selection.law
        return f"best of a random number of trials, {mean} on average ({law})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `from_dict` reads them back."""
        values = asdict(self)
        if self.selection is None:
            del values["selection"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Guarantee:
        """Inverse of `to_dict`; raises KeyError, TypeError or ValueError where parts are missing or of other types.

        Whether the numbers agree with each other is not looked at here: `noisycgd.load_model` does.
        """
        fields = dict(values)
        fields["status"] = Status(fields["status"])
        fields["adjacency"] = Adjacency(fields["adjacency"])
        fields["threat_model"] = ThreatModel(fields["threat_model"])
        fields["order"] = Order(fields["order"])
        fields["conditions"] = tuple(Condition(**c) for c in fields["conditions"])
        for name in ("epsilon", "delta", "noise_multiplier", "gradient_bound"):
            fields[name] = float(fields[name])
        fields["mu"] = None if fields["mu"] is None else float(fields["mu"])
        for name in ("assumptions", "assumed_public", "reasons"):
            fields[name] = tuple(str(v) for v in fields[name])
        for name in ("position_mus", "position_weights"):
            fields[name] = tuple(float(v) for v in fields[name])
        if "selection" in fields:
            fields["selection"] = Selection(**fields["selection"])
        return cls(**fields)

    def __str__(self) -> str:
        head = {
            Status.PROVED: "PROVED",
            Status.CONDITIONAL: "CONDITIONAL: holds only if the assumptions below are true",
            Status.UNPROVEN: "UNPROVEN: a number for comparison, not a guarantee",
            Status.VOID: "VOID: no privacy at all",
        }[self.status]
        passes = f"{self.epochs} epochs, batches of {self.batch_size}"
        if self.order is Order.ALL:
            passes = "one pass over all records" if self.epochs == 1 else f"{self.epochs} steps over all records"
        mu = "" if self.mu is None else f"; {rounded_up(self.mu)}-GDP" + " at the worst position" * self.has_positions
        public = str(self.n_records)
        if self.selection is not None and self.selection.n_scored:
            public += f" to train on, {self.selection.n_scored} to score"
        lines = [
            f"({rounded_up(self.epsilon)}, {delta_in_print(self.delta)})-differential privacy — {head}",
            f"  adjacency      {self.adjacency}: the number of records ({public}) is public",
            f"  threat model   {self.threat_model}: {THREATS[self.threat_model]}",
            f"  mechanism      {self.mechanism}, {passes}, noise multiplier {rounded_down(self.noise_multiplier)}",
            f"  accounting     {self.accounting}{mu}",
        ]
        if self.selection is not None:
            lines += [f"  one trial      {self.selection.trial}", f"  scored on      {self.selection.scored_on}"]
            lines += [f"  released       {self.selection.released}"]
        lines += [f"  why not proved {reason}" for reason in self.reasons]
        lines.append("  conditions")
        lines += [f"    - {c.name}: {c.requirement} — {c.enforced}" for c in self.conditions]
        for title, items in (("assumed", self.assumptions), ("assumed public", self.assumed_public)):
            if items:
                lines += [f"  {title}"] + [f"    - {item}" for item in items]
        return "\n".join(lines)


_INFERRED = "numbers were read off the records and are published with the model; see assumed public"


def weakened(guarantee: Guarantee, status: Status, reason: str) -> Guarantee:
    """The statement with a reason why it is worth no more than `status`; it may be worth less already."""
    worst = max(guarantee.status, status, key=list(Status).index)
    reasons = guarantee.reasons if reason in guarantee.reasons else (*guarantee.reasons, reason)
    return replace(guarantee, status=worst, reasons=reasons)


def with_assumed_public(guarantee: Guarantee, facts: tuple[str, ...], inferred: tuple[str, ...] = ()) -> Guarantee:
    """The statement with more facts assumed public; numbers inferred from records make a proved one `conditional`."""
    stated = weakened(guarantee, Status.CONDITIONAL, _INFERRED) if inferred else guarantee
    return replace(stated, assumed_public=(*stated.assumed_public, *facts, *inferred))
