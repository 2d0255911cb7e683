"""The two-layer ReLU network, which the paper compares with: trained by DP-SGD, since its loss is not convex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import LARGEST_SIZE, ModelFileError, check_choice, check_integer, check_real, refuse
from noisycgd.estimators._base import RESTORE, Records, Seed, Shape, check_finite, checked_tensor
from noisycgd.estimators._documentation import documented
from noisycgd.estimators._targets import PrivateClassifier
from noisycgd.guarantee import DP_SGD, NOISY_GD
from noisycgd.planning import is_auto, plan_dp_sgd
from noisycgd.planning.settings import check_l2
from noisycgd.report.progress import epoch_progress
from noisycgd.steps import noise_gain
from noisycgd.training import Randomness, train_poisson
from noisycgd.training.network import (
    NetworkParameters,
    NetworkRecords,
    ReLUNetworkModel,
    network_logits,
    start_network,
)
from noisycgd.training.watching import shown_as
from noisycgd.types import PoissonPlan

# `learning_rate="auto"` gives the released weights noise of this standard deviation (at rows of norm 5), and stays
# below the second number; docs/methods.md tells where they come from.
AUTO_NOISE, LARGEST_AUTO_RATE = 0.2, 4.0

# A weight of the start is about 0.1, whose neighbours in float32 are 7e-9 away.
SMALLEST_STEP_NOISE = 1e-7


@documented
@dataclass(eq=False, repr=False)
class ReLUNetworkClassifier(PrivateClassifier):
    """Two-layer ReLU network, logits = W2 relu(W1 x + b1) + b2, trained privately by DP-SGD.

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
        Peak learning rate, for a sum of gradients over the expected batch size; "auto" follows from the plan alone: it
        gives the released weights noise of standard deviation 0.2, and is at most 4 and at most 1 / l2.
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
    row_norm: float = 5.0
    schedule: str | ArrayLike = "linear"
    l2: float = 0.0

    def _mechanisms(self) -> tuple[str, ...]:
        return DP_SGD, NOISY_GD

    def _plan_for(self, shape: Shape) -> PoissonPlan:
        way_out = "A network's loss is not convex: no hidden-state guarantee is proved."
        check_choice("method", self.method, ("dpsgd",), way_out)
        check_integer("width", self.width, high=LARGEST_SIZE)
        automatic = is_auto(self.learning_rate)
        # Beyond 1/l2 a step overshoots the zero that l2 pulls to.
        largest = min(LARGEST_AUTO_RATE, 1 / max(check_l2(self.l2), 1e-300))
        plan = plan_dp_sgd(
            n_records=shape.n_records,
            target=self._target(),
            epochs=self.epochs,
            clipping_norm=check_real("clipping_norm", self.clipping_norm, low=1e-6, high=1e6),
            batch_size=self.batch_size,
            learning_rate=largest if automatic else self.learning_rate,
            schedule=self.schedule,
            l2=self.l2,
        )
        plan = _with_less_noise(plan) if automatic else plan
        step = float(plan.learning_rates.min()) * plan.noise_std
        if step < SMALLEST_STEP_NOISE:
            way_out = "Float32 weights would round it away: raise learning_rate (lower l2 first), or lower epsilon."
            refuse("noise of a step", f"at least {SMALLEST_STEP_NOISE:g} in a weight", step, way_out)
        return plan

    def _train(self, records: Records, randomness: Randomness | None) -> dict[str, Any]:
        plan, shape = self._plan_for(records.shape), records.shape
        width = shape.bounds.width(shape.n_columns)
        start = start_network(width, self.width, shape.n_outputs, _start_seed(shape.seed))
        if randomness is None:
            return {"parameters_": start, "plan_": plan}
        rows = np.concatenate([bounded for _, bounded in shape.bounds.chunks(records.rows)])

        def trained(parameters: NetworkParameters) -> dict[str, Any]:
            check_finite(*parameters)
            return {"parameters_": parameters, "plan_": plan}

        with epoch_progress(plan.epochs, enabled=bool(self.verbose)) as on_epoch, shown_as(trained):
            parameters = train_poisson(
                NetworkRecords(rows, records.targets),
                ReLUNetworkModel(plan.gradient_bound),
                start,
                plan,
                randomness,
                on_epoch,
            )
        return trained(parameters)

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
            "hidden_weights": (W, self.bounds_.width(self.n_features_in_)),
            "hidden_bias": (W,),
            "output_weights": (q, W),
            "output_bias": (q,),
        }
        self.parameters_ = NetworkParameters(
            **{name: checked_tensor(tensors, name, shape, np.float32) for name, shape in shapes.items()}
        )


def _with_less_noise(plan: PoissonPlan) -> PoissonPlan:
    """Lower the learning rates until the noise of the last iterate is no larger than is good for a network."""
    noise = plan.noise_std * noise_gain(plan.learning_rates, np.ones(plan.steps))
    return replace(plan, learning_rates=plan.learning_rates * min(AUTO_NOISE / noise, 1.0))


def _start_seed(seed: Seed) -> int:
    generator = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    return int(generator.randint(2**31))
