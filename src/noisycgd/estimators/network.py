"""The two-layer ReLU network, which the paper compares with: trained by DP-SGD, since its loss is not convex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import ModelFileError, check_choice, check_integer, check_real
from noisycgd.estimators._base import RESTORE, Records, Seed, check_finite, checked_tensor
from noisycgd.estimators._documentation import documented
from noisycgd.estimators._targets import PrivateClassifier
from noisycgd.planning import is_auto, plan_dp_sgd
from noisycgd.report.progress import epoch_progress
from noisycgd.training import Randomness, train_poisson
from noisycgd.training.network import (
    NetworkParameters,
    NetworkRecords,
    ReLUNetworkModel,
    network_logits,
    start_network,
)

# `learning_rate="auto"` times the row norm, since hidden units grow with the rows; docs/methods.md tells its source.
AUTO_RATE = 4.0


@documented
@dataclass(eq=False, repr=False)
class ReLUNetworkClassifier(PrivateClassifier):
    """Two-layer ReLU network, logits = W2' relu(W1' x + b1) + b2, trained privately by DP-SGD.

    Every iterate may be seen: its loss is not convex, so that hiding iterates proves nothing. Each record's gradient
    of the softmax loss, over both layers, is scaled down to norm C, with norms in closed form.

    Parameters
    ----------
    width : int, default 500
        W, number of hidden units.
    clipping_norm : float, default 1.0
        C, bound on a record's gradient.
    method : {"dpsgd"}, default "dpsgd"
        The one method that is proved for it.
    epochs : int, default 200
        Passes over the data; a step reads a Poisson batch.
    batch_size : int or "auto", default "auto"
        Expected records per batch; "auto" follows from the number of records alone.
    learning_rate : float or "auto", default "auto"
        Peak learning rate, for a sum of gradients over the expected batch size; "auto" is 4 / row_norm.
    schedule : {"linear", "constant", "cosine", "warmup-stable-decay"} or array, default "linear"
        Course of the learning rate, or factors in (0, 1] per step or per epoch.
    l2 : float, default 0.0
        Coefficient of (l2/2) ||theta||^2.
    $classes
    $shared

    Attributes
    ----------
    parameters_ : NetworkParameters
        The released weights and biases of both layers.
    $common
    classes_ : ndarray of shape (q,)
        Class labels.
    """

    _: KW_ONLY
    width: int = 500
    clipping_norm: float = 1.0
    method: str = "dpsgd"
    epochs: int = 200
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    schedule: str | ArrayLike = "linear"
    l2: float = 0.0

    def _train(self, records: Records, randomness: Randomness) -> dict[str, Any]:
        way_out = "A network's loss is not convex: no hidden-state guarantee is proved."
        check_choice("method", self.method, ("dpsgd",), way_out)
        W = check_integer("width", self.width)
        plan = plan_dp_sgd(
            n_records=len(records.rows),
            target=self._target(),
            epochs=self.epochs,
            clipping_norm=check_real("clipping_norm", self.clipping_norm, low=0, open_low=True),
            batch_size=self.batch_size,
            learning_rate=AUTO_RATE / records.bounds.row_norm if is_auto(self.learning_rate) else self.learning_rate,
            schedule=self.schedule,
            l2=self.l2,
        )
        bounds = records.bounds
        rows = np.concatenate([bounded for _, bounded in bounds.chunks(records.rows)])
        start = start_network(rows.shape[1], W, records.n_outputs, _start_seed(records.seed))
        with epoch_progress(plan.epochs, enabled=bool(self.verbose)) as on_epoch:
            parameters = train_poisson(
                NetworkRecords(rows, records.targets),
                ReLUNetworkModel(plan.gradient_bound),
                start,
                plan,
                randomness,
                on_epoch,
            )
        check_finite(*parameters)
        return {"parameters_": parameters, "plan_": plan}

    def _logits_of(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        return np.concatenate([network_logits(self.parameters_, seen) for _, seen in self.bounds_.chunks(rows)])

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return dict(self.parameters_._asdict()), {}

    def _restore_state(
        self, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], counts: tuple[int, ...]
    ) -> None:
        q = counts[0]
        W = tensors["hidden_bias"].shape[0] if tensors["hidden_bias"].ndim == 1 else 0
        if W < 1:
            raise ModelFileError(f"tensor 'hidden_bias' must be a vector of hidden units. {RESTORE}")
        shapes = {
            "hidden_weights": (self.bounds_.width(self.n_features_in_), W),
            "hidden_bias": (W,),
            "output_weights": (W, q),
            "output_bias": (q,),
        }
        self.parameters_ = NetworkParameters(
            **{name: checked_tensor(tensors, name, shape, np.float32) for name, shape in shapes.items()}
        )


def _start_seed(seed: Seed) -> int:
    generator = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    return int(generator.randint(2**31))
