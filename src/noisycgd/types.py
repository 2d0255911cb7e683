"""The frozen vocabulary shared by every room; names follow THEORY section 0."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

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
