"""Ways to bound a record's residual: norm clipping, and the envelope that keeps softmax convex (THEORY section 2).

The envelope of the softmax loss h at clip c is ``h_c(z) = min_w h(w) + c ||z - w||``. Where ``||grad h(z)|| > c`` its
gradient is ``r(w)`` for the point ``w = z - t r(w)`` with ``||r(w)|| = c``. One scalar equation finds it. With y the
label, ``rho_j = p_j / max_{i != y} p_i`` at w, ``gap_j = max_{i != y} z_i - z_j``, ``D = max_{i != y} z_i - z_y`` and
``a = t max_{i != y} p_i``, subtracting the lines of ``w + t r(w) = z`` from one another gives

    -log rho_j + a (1 - rho_j) = gap_j      for each j != y,                                                      (1)
    c (R1 + e^A) = S,      A = a (1 + R1) - D,      R1 = sum rho_j,      S = sqrt(R1^2 + sum rho_j^2),            (2)

and then ``r(w) = (c / S) (rho, -R1)`` with ``-R1`` at the label. Given a, (1) determines rho, with rho_j' =
rho_j (1 - rho_j) / (1 + a rho_j) in [0, rho_j]. Larger shares of R1 grow more slowly, so R1 / S increases with a
(Chebyshev's sum inequality), and so does A - log R1: (2) has at most one root, and a root a > 0 exactly where
``||r(z)|| > c``. No term cancels, so saturated logits cost no accuracy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from noisycgd._validation import refuse

_NEWTON_STEPS = 30
"""5 to 10 are usual; this many were needed only for logits of 1e4 with clips above 1."""
_MOST_STEPS = _NEWTON_STEPS + 64
"""After the Newton steps the bracket is halved, so that the search ends at the root for any input."""
_RATIO_STEPS = 4


def rounding_slack(n_outputs: int, dtype: DTypeLike) -> float:
    """Relative amount by which a bound is undercut so that it still holds after rounding.

    Two sums of q nonnegative terms, a root, a quotient and two products are together off by less than (q + 4) eps, in
    whatever order the device adds (q < 1 / sqrt(eps)).
    """
    return (n_outputs + 4) * _epsilon(dtype)


def label_mask(logits: Array, labels: Array) -> Array:
    """(b, q), (b,) -> (b, q): True at each row's label. A comparison, which fuses where a gather would not."""
    return labels[..., None] == jnp.arange(logits.shape[-1])


def clip_norm(residual: Array, bound: ArrayLike) -> Array:
    """(b, q), () or (b,) -> (b, q). Rows longer than `bound` are scaled down to it; the others stay as they are.

    The norm of every returned row is at most `bound`, also after rounding (see `rounding_slack`).
    """
    limit = jnp.asarray(bound, residual.dtype) * (1 - rounding_slack(residual.shape[-1], residual.dtype))
    norm = jnp.sqrt(jnp.sum(residual * residual, axis=-1))
    # A zero row divides to infinity, which the minimum turns into 1.
    return residual * jnp.minimum(1, limit / norm)[..., None]


def envelope_residual(logits: Array, labels: Array, clip: ArrayLike) -> Array:
    """Gradient in the logits of the envelope of the softmax loss (THEORY section 2).

    Parameters
    ----------
    logits : Array of shape (b, q)
        q >= 2; float32 or float64.
    labels : Array of shape (b,)
        Class indices in [0, q).
    clip : float or Array of shape (b,)
        c > 0 of each record; infinity means no clipping.

    Returns
    -------
    Array of shape (b, q)
        The residual: norm at most `clip` (exactly, also after rounding), rows sum to zero up to rounding, error at
        most ``solver_error(dtype) * clip``. Equal to the plain softmax residual wherever that is no longer than
        `clip`, and to the norm-clipped one for q = 2.
    """
    solution = _solve(logits, labels, clip)
    scale = jnp.minimum(solution.clip / solution.length, 1 / (solution.total + jnp.exp(-solution.lead)))
    direction = jnp.where(label_mask(logits, labels), -solution.total[..., None], solution.ratios)
    return clip_norm(direction * scale[..., None], clip)


@jax.custom_jvp
def envelope_value(logits: Array, labels: Array, clip: ArrayLike) -> Array:
    """The envelope h_c(z) = min_w h(w) + c ||z - w||: (b, q), (b,), () or (b,) -> (b,). See `envelope_residual`.

    Its derivative in the logits is `envelope_residual`, and in the clip the distance ||z - w||.
    """
    solution = _solve(logits, labels, clip)
    lead = solution.lead - solution.pull * (1 + solution.total)
    return jax.nn.softplus(lead + jnp.log(solution.total)) + solution.clip * solution.pull * solution.length


@envelope_value.defjvp
def _envelope_value_jvp(
    primals: tuple[Array, Array, ArrayLike], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    logits, labels, clip = primals
    solution = _solve(logits, labels, clip)
    along = jnp.sum(envelope_residual(logits, labels, clip) * tangents[0], axis=-1)
    return envelope_value(logits, labels, clip), along + solution.pull * solution.length * tangents[2]


def solver_error(dtype: DTypeLike) -> float:
    """Error of `envelope_residual` as a fraction of the clip: ||computed - exact|| / c, rounding included.

    Measured, not proved: against 60-digit arithmetic (float64) and against float64 (float32), for the clip less
    `rounding_slack`, over logits up to 1e4 in size, clips in [0.01, 1.41], 2 to 100 classes and exact ties; at least
    twice the largest error found. Clips within 0.01 of sqrt(q / (q - 1)), q >= 3, are left out: there a record far from
    its class, whose other logits are all but equal, has a residual as sensitive to the clip as a square root is at 0,
    and the error can reach sqrt(eps). By THEORY section 5 an error r counts in the shifts as e / s = b r / 2.

    Raises
    ------
    ParameterError
        If `dtype` is neither float32 nor float64.
    """
    measured = {"float64": 1e-14, "float32": 4e-6}
    name = jnp.dtype(dtype).name
    if name not in measured:
        refuse("dtype", "float32 or float64", name, "Lower precision voids the bound on the step's error.")
    return measured[name]


class _Search(NamedTuple):
    low: Array
    high: Array
    pull: Array
    done: Array
    steps: Array


class _Solution(NamedTuple):
    ratios: Array
    """rho (b, q), zero at the label."""
    total: Array
    """R1 (b,)."""
    length: Array
    """S (b,)."""
    pull: Array
    """a (b,); zero where nothing is clipped."""
    lead: Array
    """D (b,)."""
    clip: Array
    """c (b,), undercut by `rounding_slack`, and at most sqrt 2, which no residual exceeds."""


def _solve(logits: Array, labels: Array, clip: ArrayLike) -> _Solution:
    others = ~label_mask(logits, labels)
    top = jnp.max(logits, axis=-1, where=others, initial=-jnp.inf)
    lead = top - jnp.sum(jnp.where(others, 0, logits), axis=-1)
    gaps = jnp.where(others, top[..., None] - logits, 0)
    # The whole problem is solved for a slightly smaller clip, so that a final scaling need not spoil its solution.
    slack = rounding_slack(logits.shape[-1], logits.dtype)
    c = jnp.minimum(jnp.asarray(clip, logits.dtype), math.sqrt(2)) * (1 - slack) * jnp.ones_like(lead)
    pull = _pull(gaps, others, lead, c)
    return _Solution(*_shape(gaps, others, pull), pull, lead, c)


@jax.jit
def _pull(gaps: Array, others: Array, lead: Array, clip: Array) -> Array:
    """Root of (2), or 0 where none is positive, by Newton's method in a bracket that each evaluation shrinks."""
    tolerance = 32 * _epsilon(gaps.dtype)

    def running(state: _Search) -> Array:
        return (state.steps < _MOST_STEPS) & jnp.any(~state.done)

    def advance(state: _Search) -> _Search:
        value, step = _newton(gaps, others, lead, clip, state.pull)
        low = jnp.where(value < 0, state.pull, state.low)
        high = jnp.where(value < 0, state.high, state.pull)
        target = state.pull + step
        inside = (target >= low) & (target <= high) & (state.steps < _NEWTON_STEPS)
        # At the level of rounding the sign of (2) is noise: a row that has come this far must not be sent back to the
        # middle of its bracket, neither now nor while it waits for the others.
        close = (jnp.abs(step) <= tolerance * (1 + state.pull)) | (jnp.abs(value) <= tolerance / 8)
        target = jnp.where(inside, target, jnp.where(close, state.pull, (low + high) / 2))
        pull = jnp.where(state.done, state.pull, target)
        done = state.done | close | (high - low <= tolerance * (1 + low))
        return _Search(low, high, pull, done, state.steps + 1)

    # (2) asks for 2 a - D <= A <= log(S / c), and S <= q.
    high = jnp.maximum((lead + math.log(gaps.shape[-1]) - jnp.log(clip)) / 2, 0)
    low = jnp.zeros_like(high)
    start = _Search(low, high, low, jnp.zeros_like(low, dtype=bool), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(running, advance, start).pull


def _newton(gaps: Array, others: Array, lead: Array, clip: Array, pull: Array) -> tuple[Array, Array]:
    """Log of the quotient of the sides of (2), and a step towards its root."""
    ratios, total, length = _shape(gaps, others, pull)
    slopes = ratios * (1 - ratios) / (1 + pull[..., None] * ratios)
    total_slope = jnp.sum(slopes, axis=-1)
    length_slope = (total * total_slope + jnp.sum(ratios * slopes, axis=-1)) / length
    label = pull * (1 + total) - lead
    label_slope = 1 + total + pull * total_slope
    share = jax.nn.sigmoid(label - jnp.log(total))

    value = jnp.logaddexp(jnp.log(total), label) - jnp.log(length / clip)
    slope = (1 - share) * total_slope / total + share * label_slope - length_slope / length
    # The same equation, solved for e^A: nearly linear where the first form is flat, but undefined where the others
    # alone exceed S / c. Together they serve everywhere if the smaller step is taken.
    rest = length / clip - total
    defined = rest > 0
    safe = jnp.where(defined, rest, 1)
    other = -(label - jnp.log(safe)) / (label_slope - (length_slope / clip - total_slope) / safe)
    step = -value / slope
    return value, jnp.where(defined, jnp.minimum(step, other), step)


def _shape(gaps: Array, others: Array, pull: Array) -> tuple[Array, Array, Array]:
    """Evaluate rho (b, q), R1 (b,) and S (b,) at a given a (b,)."""
    ratios = jnp.where(others, _ratios(gaps, pull[..., None]), 0)
    total = jnp.sum(ratios, axis=-1)
    return ratios, total, jnp.sqrt(total * total + jnp.sum(ratios * ratios, axis=-1))


def _ratios(gaps: Array, pull: Array) -> Array:
    """Solve (1) for rho by Newton's method in u = -log rho, on u + a (1 - e^-u) = gap.

    The left side is concave and increasing, so iterates that start below the root rise to it. The start is the largest
    of three lower bounds, from 1 - e^-u <= 1, from 1 - e^-u <= u and, with v = a e^-u and v + log v = x, from
    v <= max(x, 1); from there four steps reach the last digits of float64.
    """
    log_pull = jnp.log(pull)
    crossing = jnp.maximum(pull + log_pull - gaps, 1)
    start = jnp.maximum(jnp.maximum(gaps - pull, gaps / (1 + pull)), log_pull - jnp.log(crossing))

    def step(_: int, u: Array) -> Array:
        fall = -jnp.expm1(-u)
        return u - (u + pull * fall - gaps) / (1 + pull * (1 - fall))

    return jnp.exp(-jax.lax.fori_loop(0, _RATIO_STEPS, step, start))


def _epsilon(dtype: DTypeLike) -> float:
    return float(np.finfo(jnp.dtype(dtype)).eps)
