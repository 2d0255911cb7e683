"""Losses of one record as functions of its logits, and what is proved of them (THEORY section 2).

A loss is a frozen dataclass and a JAX pytree whose parameter is a leaf: a new margin or clip compiles nothing anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from noisycgd._validation import check_integer, check_real, refuse
from noisycgd.clipping import clip_norm, envelope_residual, envelope_value, label_mask, rounding_slack
from noisycgd.types import LossCertificate

_ANY_SOFTMAX_SMOOTHNESS = 0.5
"""Largest eigenvalue of diag(p) - pp' over all p."""

LossType = TypeVar("LossType")


class Loss(Protocol):
    """What a training loop and a planner ask of a loss; q is the number of logits, b the number of records.

    The parameters `logits`, `targets` and `scale` are as follows in every method.

    logits : Array of shape (b, q)
        Linear in the model's parameters; float32 or float64.
    targets : Array of shape (b,)
        Class indices in [0, q) for softmax losses, 0 or 1 for `Logistic`, real numbers for `ClippedSquared`.
    scale : Array of shape (b,)
        rho / ||phi(x_i)|| >= 1, infinity allowed. A record is clipped at c times its scale, so that rho c bounds the
        gradient of every record. Losses without a clip ignore it.
    """

    name: ClassVar[str]
    shift_invariant: ClassVar[bool]
    """Whether adding one number to all logits of a record changes nothing, so that residuals sum to zero."""

    def residual(self, logits: Array, targets: Array, scale: Array) -> Array:
        """(b, q): the (clipped) derivative of the loss in the logits."""

    def value(self, logits: Array, targets: Array, scale: Array) -> Array:
        """(b,): the function whose gradient in the logits is `residual`; ParameterError where there is none."""

    def certificate(self, n_outputs: int) -> LossCertificate:
        """What is proved for q = `n_outputs` logits and scale 1.

        It carries over to any scale s >= 1: ||r|| <= s L_h and smoothness at most s^2 beta_h, which the record's
        smaller feature norm rho / s makes up for. Raises ParameterError for a q that the loss does not take.
        """


def _loss(cls: type[LossType]) -> type[LossType]:
    """Register a dataclass as a pytree with all its fields as leaves.

    Unlike `jax.tree_util.register_dataclass`, unflattening does not call the constructor: JAX unflattens with tracers
    and placeholders, which the constructor is right to refuse.
    """
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def flatten(loss: LossType) -> tuple[list[tuple[Any, Any]], Hashable]:
        return [(jax.tree_util.GetAttrKey(name), getattr(loss, name)) for name in names], None

    def unflatten(_: Hashable, leaves: Iterable[Any]) -> LossType:
        loss = object.__new__(cls)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(loss, name, leaf)
        return loss

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


@_loss
@dataclasses.dataclass(frozen=True)
class MarginSoftmax:
    """log sum_j exp(z_j + m [j != y]) - z_y: convex, 1/2-smooth and sqrt 2-Lipschitz, so it needs no clip.

    The margin only adds a constant to the logits, so gradient and Hessian keep the softmax form. A larger margin makes
    records that are not yet safely classified pull with their full weight. Softmax of the plain logits, without the
    margin, is what predicts.

    Parameters
    ----------
    margin : float, default 0.0
        m >= 0, in units of a logit; 0 is the ordinary softmax loss.
    """

    margin: float = 0.0
    name: ClassVar[str] = "margin_softmax"
    shift_invariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _normalise(self, "margin", open_low=False)

    def residual(self, logits: Array, targets: Array, scale: Array) -> Array:
        """softmax(z + m (1 - e_y)) - e_y; the norm is below sqrt 2 also after rounding, see `Loss.residual`."""
        is_label = label_mask(logits, targets)
        others = jnp.where(is_label, -jnp.inf, logits)
        top = jnp.max(others, axis=-1, keepdims=True)
        weights = jnp.exp(others - top)
        # Differences come before the margin: adding a large margin to each logit would round the logits away.
        # An overflow to infinity is the right limit, a residual of zero.
        label = jnp.exp(_label_logit(logits, is_label) - top - self.margin)
        shrink = 1 - rounding_slack(logits.shape[-1], logits.dtype)
        weights = weights * (shrink / (jnp.sum(weights, axis=-1, keepdims=True) + label))
        # Minus the others' sum: p_y - 1 would cancel once the record is well classified.
        return jnp.where(is_label, -jnp.sum(weights, axis=-1, keepdims=True), weights)

    def value(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.value`."""
        is_label = label_mask(logits, targets)
        others = jax.nn.logsumexp(jnp.where(is_label, -jnp.inf, logits), axis=-1)
        return jax.nn.softplus(others - _label_logit(logits, is_label)[..., 0] + self.margin)

    def certificate(self, n_outputs: int) -> LossCertificate:
        """See `Loss.certificate`."""
        _check_softmax_outputs(n_outputs)
        return LossCertificate(
            self.name, math.sqrt(2), _ANY_SOFTMAX_SMOOTHNESS, True, "THEORY section 2, margin softmax"
        )


@_loss
@dataclasses.dataclass(frozen=True)
class EnvelopeSoftmax:
    """The largest convex function that agrees with softmax where ||r|| <= c and is c-Lipschitz.

    h_c(z) = min_w softmax(w) + c ||z - w||; see `noisycgd.clipping.envelope_residual`.

    Parameters
    ----------
    clip : float
        c > 0, bound on the norm of the residual at scale 1. A record's clip never exceeds 1, where the solver is still
        accurate and which few residuals exceed; a smaller clip than the certificate's breaks nothing.

    Notes
    -----
    The solver runs in float64 where JAX allows it (training does): in float32 its error, times the batch size, would
    count in the shifts (THEORY sections 2 and 5).
    """

    clip: float
    name: ClassVar[str] = "envelope_softmax"
    shift_invariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _normalise(self, "clip", open_low=True)

    def residual(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.residual`."""
        wide = logits.astype(jax.dtypes.canonicalize_dtype(jnp.float64))
        return envelope_residual(wide, targets, self._clips(scale)).astype(logits.dtype)

    def value(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.value`."""
        return envelope_value(logits, targets, self._clips(scale))

    def certificate(self, n_outputs: int) -> LossCertificate:
        """See `Loss.certificate`."""
        _check_softmax_outputs(n_outputs)
        return LossCertificate(
            self.name,
            min(self.clip, 1.0),
            _envelope_smoothness(self.clip),
            True,
            "THEORY section 2, envelope",
        )

    def _clips(self, scale: Array) -> Array:
        return jnp.minimum(self.clip * scale, 1)


@_loss
@dataclasses.dataclass(frozen=True)
class NormClippedSoftmax:
    """Softmax with the residual scaled down to norm c, as in the paper (arXiv 2407.04884).

    For two classes this is `EnvelopeSoftmax`. For three or more it is not the gradient of any function, and steps along
    it can expand distances: no hidden-state guarantee is proved.

    Parameters
    ----------
    clip : float
        c > 0, bound on the norm of the residual at scale 1.
    """

    clip: float
    name: ClassVar[str] = "norm_clipped_softmax"
    shift_invariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _normalise(self, "clip", open_low=True)

    def residual(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.residual`."""
        return clip_norm(MarginSoftmax().residual(logits, targets, scale), self.clip * scale)

    def value(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.value`; raises ParameterError for q >= 3."""
        if logits.shape[-1] != 2:
            refuse(
                "number of logits",
                "2 for norm-clipped softmax to have a value",
                logits.shape[-1],
                "The clipped residual is no gradient; use EnvelopeSoftmax, or only its residual.",
            )
        return envelope_value(logits, targets, self.clip * scale)

    def certificate(self, n_outputs: int) -> LossCertificate:
        """See `Loss.certificate`; `convex` is False for q >= 3, where smoothness is that of the field alone."""
        _check_softmax_outputs(n_outputs)
        bound = min(self.clip, math.sqrt(2))
        if n_outputs == 2:
            smoothness, reference = _envelope_smoothness(self.clip), "THEORY section 2, envelope (equal for q = 2)"
        else:
            # Scaling down to a ball is a projection, and projections expand nothing.
            smoothness, reference = _ANY_SOFTMAX_SMOOTHNESS, "THEORY section 2, why norm clipping fails"
        return LossCertificate(self.name, bound, smoothness, n_outputs == 2, reference)


@_loss
@dataclasses.dataclass(frozen=True)
class Logistic:
    """Binary logistic loss of one logit, with its derivative clipped at c; targets are 0 or 1.

    Parameters
    ----------
    clip : float, default 1.0
        c > 0; from 1 on nothing is clipped.
    """

    clip: float = 1.0
    name: ClassVar[str] = "logistic"
    shift_invariant: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _normalise(self, "clip", open_low=True)

    def residual(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.residual`."""
        sign = _wrong_side(logits, targets)
        return (sign * jnp.minimum(jax.nn.sigmoid(sign * logits[..., 0]), self.clip * scale))[..., None]

    def value(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.value`."""
        slope = jnp.minimum(self.clip * scale, 1)
        # Where sigmoid reaches the clip the loss goes on along its tangent; a clip of 1 is reached at infinity.
        kink = jnp.log(slope) - jnp.log1p(-slope)
        wrong = _wrong_side(logits, targets) * logits[..., 0]
        return jax.nn.softplus(jnp.minimum(wrong, kink)) + slope * jnp.maximum(wrong - kink, 0)

    def certificate(self, n_outputs: int) -> LossCertificate:
        """See `Loss.certificate`."""
        _check_one_output(n_outputs)
        return LossCertificate(self.name, min(self.clip, 1.0), 0.25, True, "THEORY section 2, table, logistic")


@_loss
@dataclasses.dataclass(frozen=True)
class ClippedSquared:
    """(z - y)^2 / 2 with its derivative clipped at c (Huber's loss); one logit, real targets.

    Parameters
    ----------
    clip : float
        c > 0, in units of the target.
    """

    clip: float
    name: ClassVar[str] = "clipped_squared"
    shift_invariant: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _normalise(self, "clip", open_low=True)

    def residual(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.residual`."""
        limit = self.clip * scale
        return jnp.clip(logits[..., 0] - targets, -limit, limit)[..., None]

    def value(self, logits: Array, targets: Array, scale: Array) -> Array:
        """See `Loss.value`."""
        error = jnp.abs(logits[..., 0] - targets)
        inner = jnp.minimum(error, self.clip * scale)
        return inner * (error - inner / 2)

    def certificate(self, n_outputs: int) -> LossCertificate:
        """See `Loss.certificate`."""
        _check_one_output(n_outputs)
        return LossCertificate(self.name, self.clip, 1.0, True, "THEORY section 2, table, squared")


def _normalise(loss: Any, name: str, *, open_low: bool) -> None:
    """Check a parameter and store it as a Python float, which takes the logits' precision; arrays pass as they are."""
    value = getattr(loss, name)
    if not isinstance(value, Array):
        object.__setattr__(loss, name, check_real(name, value, low=0.0, open_low=open_low))


def _envelope_smoothness(clip: float) -> float:
    return _ANY_SOFTMAX_SMOOTHNESS if clip >= math.sqrt(0.5) else math.sqrt(2) * clip - clip * clip


def _check_softmax_outputs(n_outputs: int) -> None:
    check_integer("n_outputs", n_outputs, low=2, way_out="For one logit use Logistic.")


def _check_one_output(n_outputs: int) -> None:
    check_integer("n_outputs", n_outputs, low=1, high=1, way_out="For several logits use a softmax loss.")


def _label_logit(logits: Array, is_label: Array) -> Array:
    return jnp.sum(jnp.where(is_label, logits, 0), axis=-1, keepdims=True)


def _wrong_side(logits: Array, targets: Array) -> Array:
    """+1 for target 0 and -1 for target 1: the direction in which the loss grows."""
    return (1 - 2 * targets).astype(logits.dtype)
