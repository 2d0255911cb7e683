"""The frozen vocabulary shared by every room; names follow THEORY section 0."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from noisycgd._validation import delta_in_print, rounded_down, rounded_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Adjacency(StrEnum):
    """Which data sets count as neighbours."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


class ThreatModel(StrEnum):
    """What the adversary sees."""

    FINAL_MODEL = "final-model"
    ALL_ITERATES = "all-iterates"
    NOISY_STATISTICS = "noisy-statistics"


class Order(StrEnum):
    """How records came into their batches (THEORY section 1)."""

    PERMUTED = "permuted"
    """One uniformly random permutation, drawn from the operating system: the guarantee is an average."""
    GIVEN = "given"
    """The order given, or one fixed by a user's seed: the guarantee is that of the worst position."""
    POISSON = "poisson"
    """Independent samples of the records, secret ones: the guarantee is amplified by sampling."""
    ALL = "all"
    """Every record in every step: the guarantee is that of a composition of Gaussian releases."""


CYCLIC_ORDERS = (Order.PERMUTED, Order.GIVEN)
"""Orders of fixed batches, where privacy depends on a record's place."""


class Status(StrEnum):
    """What a printed epsilon is worth."""

    PROVED = "proved"
    """Every condition of the theorem was enforced."""
    CONDITIONAL = "conditional"
    """Holds if a stated condition, which the software could not check, is true."""
    UNPROVEN = "unproven"
    """A condition is known to fail, or its proof is missing: a number for comparison only."""
    VOID = "void"
    """No privacy at all: noise was made predictable for a test."""


class PrivacyProfile(Protocol):
    """A mechanism's privacy in full: delta as a function of epsilon, and back."""

    def delta(self, epsilon: ArrayLike) -> Any:
        """Smallest proved delta at each epsilon >= 0."""

    def epsilon(self, delta: float) -> float:
        """Smallest proved epsilon at a delta in (0, 1)."""

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate of a membership test with false-positive rate `fpr`."""


class GaussianBounded(PrivacyProfile, Protocol):
    """A profile that one Gaussian bounds as a whole."""

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter that bounds the whole profile."""


@dataclass(frozen=True, slots=True)
class EpsilonDelta:
    """Target: (epsilon, delta)-DP."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class GaussianMu:
    """Target: mu-GDP at the worst position; `delta` is where epsilon is stated."""

    mu: float
    delta: float


@dataclass(frozen=True, slots=True)
class NoiseMultiplier:
    """Target: a given noise multiplier (raw noise std is `value * C / b`); `delta` is where epsilon is stated."""

    value: float
    delta: float


Target = EpsilonDelta | GaussianMu | NoiseMultiplier


@dataclass(frozen=True, slots=True)
class LossCertificate:
    """What is proved of one record's loss h as a function of its logits (THEORY section 2).

    Attributes
    ----------
    loss : str
        Name of the loss.
    gradient_bound : float
        L_h >= sup ||dh/dz||.
    smoothness : float
        beta_h, a Lipschitz constant of dh/dz.
    convex : bool
        Whether the (clipped) residual is the gradient of a convex function.
    reference : str
        Where the proof stands.
    """

    loss: str
    gradient_bound: float
    smoothness: float
    convex: bool
    reference: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the theorem, and how it was made true."""

    name: str
    requirement: str
    enforced: str


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a training loop needs, fixed before it sees a record.

    Attributes
    ----------
    n_records, batch_size, batches_per_epoch, epochs : int
        n, b, k = ceil(n / b), E.
    learning_rates : ndarray of shape (T,)
        eta_t of each step, T = k E.
    contractions : ndarray of shape (T,)
        c_t of each step.
    l2 : float
        Coefficient lambda of (lambda / 2) ||theta||^2.
    noise_multiplier : float
        nm; the raw noise standard deviation of a step is nm C / b.
    gradient_bound : float
        C = rho L_h, bound on the norm of one record's gradient.
    feature_norm : float
        rho, public bound on ||phi(x)||.
    smoothness : float
        beta = rho^2 beta_h + l2, of one record's loss.
    learning_rate_cap : float
        2 / (beta + l2), up to which a step contracts by 1 - eta l2.
    certificate : LossCertificate
        What is proved of the loss.
    order : Order
        Whether the guarantee averages over positions.
    position_multipliers : ndarray of shape (k,)
        mu_j nm / 2 of a record in batch j.
    profile : GaussianBounded
        The released model's privacy.
    delta : float
        Where epsilon is stated.
    epsilon : float
        The stated epsilon.
    status : Status
        `proved` or `unproven`.
    logit_noise : float
        Standard deviation s_z of the noise in one logit at ||phi|| = rho (THEORY section 2). A difference of two
        logits has sqrt 2 s_z; a softmax's logits are released without their common shift, hence sqrt(1 - 1/q) s_z each.
    reasons : tuple of str
        Why the status is not `proved`; empty if it is.
    """

    n_records: int
    batch_size: int
    batches_per_epoch: int
    epochs: int
    learning_rates: NDArray[np.float64]
    contractions: NDArray[np.float64]
    l2: float
    noise_multiplier: float
    gradient_bound: float
    feature_norm: float
    smoothness: float
    learning_rate_cap: float
    certificate: LossCertificate
    order: Order
    position_multipliers: NDArray[np.float64]
    profile: GaussianBounded
    delta: float
    epsilon: float
    status: Status
    logit_noise: float
    reasons: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """T = k E."""
        return self.batches_per_epoch * self.epochs

    @property
    def noise_std(self) -> float:
        """Raw noise standard deviation of one step, nm C / b."""
        return self.noise_multiplier * self.gradient_bound / self.batch_size


@dataclass(frozen=True, eq=False)
class PoissonPlan:
    """All that DP-SGD needs, fixed before it sees a record; it owns the sampler's rate and the accountant's alike.

    With `batch_size` = n every record is in every batch: full-batch noisy gradient descent.

    Attributes
    ----------
    n_records, batch_size, epochs : int
        n, expected batch size b, E.
    learning_rates : ndarray of shape (T,)
        eta_t of each step, T = E ceil(n / b).
    l2 : float
        Coefficient lambda of (lambda / 2) ||theta||^2.
    noise_multiplier : float
        nm; the noise on a step's sum of gradients has standard deviation nm C, and the sum is divided by b.
    gradient_bound : float
        C, bound on the norm of one record's gradient.
    profile : PrivacyProfile
        Privacy of all iterates, hence of any function of them.
    delta, epsilon : float
        Where the guarantee is stated, and the stated epsilon.
    logit_noise : float
        Standard deviation of the noise in one logit at ||phi|| = rho of a model that is linear in its parameters;
        0 for others.
    radius : float or None
        Radius of the ball onto which each iterate is projected.
    average : bool
        Release the mean of all iterates instead of the last one.
    certificate : LossCertificate or None
        What is proved of the loss, where C = rho L_h follows from it; None where gradients are scaled down to C.
    """

    n_records: int
    batch_size: int
    epochs: int
    learning_rates: NDArray[np.float64]
    l2: float
    noise_multiplier: float
    gradient_bound: float
    profile: PrivacyProfile
    delta: float
    epsilon: float
    logit_noise: float = 0.0
    radius: float | None = None
    average: bool = False
    certificate: LossCertificate | None = None

    @property
    def steps(self) -> int:
        """T."""
        return len(self.learning_rates)

    @property
    def sampling_rate(self) -> float:
        """P = b / n, the probability with which each record enters each batch, independently of all others."""
        return self.batch_size / self.n_records

    @property
    def noise_std(self) -> float:
        """Noise standard deviation of one step after the division by b, nm C / b."""
        return self.noise_multiplier * self.gradient_bound / self.batch_size


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
        """Inverse of `to_dict`; raises KeyError, TypeError or ValueError on anything else."""
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
