"""Estimators whose model is gated linear, trained by any method that this package accounts for."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import ModelFileError, check_choice, check_integer, check_real, refuse
from noisycgd.contrasts import ContrastLoss, contrast_basis, to_logit_weights
from noisycgd.data import RowBounds, make_batches
from noisycgd.data.batches import FixedBatches
from noisycgd.estimators._base import RESTORE, PrivateEstimator, Records, Seed, Shape, check_finite, checked_tensor
from noisycgd.features import GATE_KINDS, GatedFeatures, make_gates
from noisycgd.features.random import MappedRows, RowFeatures, make_row_features, read_row_features, seen_rows
from noisycgd.guarantee import DP_SGD, NOISY_CGD, NOISY_GD
from noisycgd.losses import Loss
from noisycgd.planning import is_auto, plan_dp_sgd, plan_noisy_cgd, plan_noisy_gd
from noisycgd.report.progress import epoch_progress
from noisycgd.training import Randomness, train_cyclic, train_poisson
from noisycgd.training.models import GatedLinearModel, GatedRecords
from noisycgd.training.watching import shown_as
from noisycgd.types import CYCLIC_ORDERS, LossCertificate, Order, Plan, PoissonPlan

METHODS = ("noisycgd", "dpsgd", "noisy-gd")


class Design(NamedTuple):
    """The public part of a model: what is fixed before its plan."""

    mapped: RowFeatures | None
    rows: RowBounds | MappedRows
    features: GatedFeatures
    rho: float
    clip: float
    certificate: LossCertificate
    n_contrasts: int

    @property
    def attributes(self) -> dict[str, Any]:
        """What a fitted model keeps of it."""
        return {"features_": self.features, "row_features_": self.mapped}


class PreparedRun(NamedTuple):
    """A fit that waits for its training."""

    batches: FixedBatches
    levels: NDArray[np.float32]
    loss: Loss
    plan: Plan | PoissonPlan
    n_outputs: int
    attributes: dict[str, Any]

    def trained(self, weights: NDArray[np.float32]) -> dict[str, Any]:
        """The fitted attributes; refuses a model that diverged."""
        check_finite(weights)
        return self.attributes | {"weights_": weights}


@dataclass(eq=False, repr=False)
class GatedLinearEstimator(PrivateEstimator):
    """logits = sum_m g_m(x) x' V_m on bounded rows x."""

    _: KW_ONLY
    method: str = "noisycgd"
    epochs: int = 200
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    schedule: str | ArrayLike = "auto"
    l2: float = 0.0
    clipping_norm: float | str = "auto"
    batch_order: str = "permuted"
    radius: float | str = "auto"
    allow_unproven: bool = False

    # `clipping_norm="auto"` is this share of rho; each loss that clips states its own.
    _auto_clip: ClassVar[dict[str, float]] = {}

    @abc.abstractmethod
    def _gates(self) -> tuple[str, int]:
        """Kind of gates and number of hyperplanes."""

    @abc.abstractmethod
    def _make_loss(self, clip: float, logit_noise: float | None) -> Loss:
        """The loss; `logit_noise` is None while only its certificate is wanted."""

    @abc.abstractmethod
    def _loss_name(self) -> str:
        """Name of the loss."""

    def _row_features(self, width: int, row_norm: float, seed: Seed) -> RowFeatures | None:
        """Random features of bounded rows of that width and norm, None for the rows themselves."""
        return None

    def _flags(self) -> tuple[str, ...]:
        return (*super()._flags(), "allow_unproven")

    def _mechanisms(self) -> tuple[str, ...]:
        # DP-SGD on batches of all records is gradient descent.
        return {"noisycgd": (NOISY_CGD,), "dpsgd": (DP_SGD, NOISY_GD), "noisy-gd": (NOISY_GD,)}[self.method]

    def _plan_for(self, shape: Shape) -> Plan | PoissonPlan:
        return self._plan(self._design(shape), shape)

    def _rate_cap(self, shape: Shape) -> float:
        """2 / (beta + l2), up to which a step contracts by 1 - eta l2."""
        design = self._design(shape)
        l2 = check_real("l2", self.l2, low=0)
        return 2 / (design.rho**2 * design.certificate.smoothness + 2 * l2)

    def _design(self, shape: Shape) -> Design:
        bounds = shape.bounds
        mapped = self._row_features(bounds.width(shape.n_columns), bounds.row_norm, shape.seed)
        rows = seen_rows(bounds, mapped)
        kind, P = self._gates()
        features = make_gates(kind, rows.width(shape.n_columns), P, shape.seed)
        rho = features.feature_norm(rows.row_norm)
        clip = self._clip(rho)
        loss = self._make_loss(clip, None)
        q = shape.n_outputs
        return Design(mapped, rows, features, rho, clip, loss.certificate(q), len(contrast_basis(loss, q)))

    def _train(self, records: Records, randomness: Randomness | None) -> dict[str, Any]:
        if randomness is None:
            design = self._design(records.shape)
            M, q = design.features.n_gates, records.shape.n_outputs
            start = np.zeros((design.rows.width(records.shape.n_columns), M * q), np.float32)
            return design.attributes | {
                "weights_": start,
                "plan_": self._plan(design, records.shape),
                "permutation_": None,
            }
        run = self._prepare(records, randomness)
        with epoch_progress(run.plan.epochs, enabled=bool(self.verbose)) as on_epoch, shown_as(run.trained):
            if isinstance(run.plan, Plan):
                weights = train_cyclic(run.batches, run.levels, run.loss, run.plan, run.n_outputs, randomness, on_epoch)
            else:
                weights = _train_sampled(
                    run.batches, run.levels, run.loss, run.plan, run.n_outputs, randomness, on_epoch
                )
        return run.trained(weights)

    def _prepare(self, records: Records, randomness: Randomness) -> PreparedRun:
        """All but the training: the plan, the order of the records, and their batches."""
        n, design = records.shape.n_records, self._design(records.shape)
        plan = self._plan(design, records.shape)
        permuted = isinstance(plan, Plan) and plan.order is Order.PERMUTED
        order = randomness.permutation(n) if permuted else None
        b = plan.batch_size if isinstance(plan, Plan) else n
        batches = make_batches(records.rows, records.targets, order, b, design.rows, design.features)
        return PreparedRun(
            batches,
            design.features.levels,
            self._make_loss(design.clip, plan.logit_noise),
            plan,
            records.shape.n_outputs,
            design.attributes | {"plan_": plan, "permutation_": order},
        )

    def _plan(self, design: Design, shape: Shape) -> Plan | PoissonPlan:
        n = shape.n_records
        method = check_choice("method", self.method, METHODS)
        check_choice("batch_order", self.batch_order, [o.value for o in CYCLIC_ORDERS])
        automatic = "constant" if method == "noisy-gd" else "linear"
        shared: dict[str, Any] = {
            "certificate": design.certificate,
            "feature_norm": design.rho,
            "n_records": n,
            "target": self._target(),
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "schedule": automatic if isinstance(self.schedule, str) and self.schedule == "auto" else self.schedule,
            "l2": self.l2,
        }
        if method == "noisycgd":
            return plan_noisy_cgd(
                **shared,
                batch_size=self.batch_size,
                order=Order(self.batch_order),
                allow_unproven=self.allow_unproven,
            )
        if self.batch_order != "permuted":
            refuse("batch_order", f'left alone for method="{method}"', self.batch_order, "Its batches have no order.")
        if method == "dpsgd":
            return plan_dp_sgd(**shared, batch_size=self.batch_size)
        if not is_auto(self.batch_size) and check_integer("batch_size", self.batch_size) != n:
            refuse("batch_size", f'"auto" for method="{method}"', self.batch_size, "Every step reads every record.")
        width = design.rows.width(shape.n_columns)
        n_parameters = width * design.features.n_gates * design.n_contrasts
        return plan_noisy_gd(**shared, n_parameters=n_parameters, radius=self.radius)

    def _clip(self, rho: float) -> float:
        """The clip c of a residual, so that rho * c is the clipping norm of a record's gradient."""
        if isinstance(self.clipping_norm, str):
            check_choice("clipping_norm", self.clipping_norm, ["auto"], "A number above 0 is accepted as well.")
            return self._auto_clip.get(self._loss_name(), 1.0)
        return check_real("clipping_norm", self.clipping_norm, low=0, open_low=True) / rho

    def _logits_of(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        features: GatedFeatures = self.features_
        seen = seen_rows(self.bounds_, self.row_features_)
        parts = [features.logits(part, self.weights_) for _, part in seen.chunks(rows)]
        return np.concatenate(parts)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        features: GatedFeatures = self.features_
        tensors: dict[str, NDArray[Any]] = {"weights": self.weights_, "hyperplanes": features.hyperplanes}
        if self.permutation_ is not None:
            tensors["permutation"] = self.permutation_
        parts: dict[str, Any] = {"gates": {"kind": features.kind, "n_hyperplanes": features.n_hyperplanes}}
        if self.row_features_ is not None:
            tensors |= self.row_features_.to_tensors()
            parts["row_features"] = self.row_features_.to_dict()
        return tensors, parts

    def _restore_state(
        self, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], counts: tuple[int, ...]
    ) -> None:
        gates = document["gates"]
        kind, P = gates["kind"], check_integer("n_hyperplanes", gates["n_hyperplanes"], low=0)
        if kind not in GATE_KINDS or (kind == "linear") != (P == 0) or (kind == "antithetic" and P % 2):
            raise ModelFileError(f"gates must be a known kind with a possible number of hyperplanes; got {kind!r}, {P}")
        mapped = document.get("row_features")
        self.row_features_ = None if mapped is None else read_row_features(tensors, mapped)
        width = seen_rows(self.bounds_, self.row_features_).width(self.n_features_in_)
        H = {"linear": 0, "iid": P, "antithetic": P // 2}[kind]
        self.features_ = GatedFeatures(kind, P, checked_tensor(tensors, "hyperplanes", (width, H), np.float32))
        # Not told by the parameters, which may have been changed since the fit.
        columns, M = tensors["weights"].shape[-1], self.features_.n_gates
        q = next((q for q in counts if columns == M * q), counts[0])
        self.weights_ = checked_tensor(tensors, "weights", (width, M * q), np.float32)
        self.permutation_ = self._restored_permutation(tensors)

    def _restored_permutation(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
        permutation = tensors.get("permutation")
        selection = self.guarantee_.selection
        ordered = self.guarantee_.order is Order.PERMUTED and not (selection is not None and selection.untrained)
        if (permutation is None) == ordered:
            raise ModelFileError(f"permutation must be there if and only if it is accounted for. {RESTORE}")
        if permutation is not None:
            n = self.guarantee_.n_records
            checked_tensor(tensors, "permutation", (n,), np.int64)
            if not np.array_equal(np.sort(permutation), np.arange(n)):
                raise ModelFileError(f"permutation must hold each record once. {RESTORE}")
        return permutation


def _train_sampled(
    batches: FixedBatches,
    levels: NDArray[np.float32],
    loss: Loss,
    plan: PoissonPlan,
    n_outputs: int,
    randomness: Randomness,
    on_epoch: Any,
) -> NDArray[np.float32]:
    """Run a `PoissonPlan` on records that stand in one batch, in the order given; (d, M q) weights."""
    basis = contrast_basis(loss, n_outputs)
    records = GatedRecords(batches.rows[0], batches.patterns[0], batches.targets[0], batches.scales[0])
    model = GatedLinearModel(jnp.asarray(levels), ContrastLoss(loss, jnp.asarray(basis)))
    start = np.zeros((len(levels) * len(basis), batches.rows.shape[2]), np.float32)

    def released(weights: NDArray[np.float32]) -> NDArray[np.float32]:
        return to_logit_weights(weights, basis)

    with shown_as(released):
        return released(train_poisson(records, model, start, plan, randomness, on_epoch))


def draw_row_features(
    kind: str, width: int, n_components: int, bandwidth: float | str, gates: str, row_norm: float, seed: Seed
) -> RowFeatures:
    """Draw a map of bounded rows from an estimator's parameters, whose bandwidth may be "auto"."""
    scale: float | None = None
    if not isinstance(bandwidth, str):
        scale = bandwidth
    else:
        check_choice("bandwidth", bandwidth, ["auto"], "A number above 0 is accepted as well.")
    return make_row_features(kind, width, n_components, seed, row_norm=row_norm, bandwidth=scale, hyperplanes=gates)
