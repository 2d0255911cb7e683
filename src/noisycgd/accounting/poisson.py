"""DP-SGD with Poisson-subsampled batches, every iterate released."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisycgd._validation import ParameterTypeError, check_integer, check_real, message, refuse
from noisycgd.accounting.adjacency import check_adjacency
from noisycgd.accounting.gaussian import Array, check_delta, check_epsilon
from noisycgd.accounting.hidden_state import composition_mu
from noisycgd.accounting.pld import PLDProfile, to_pld
from noisycgd.accounting.privacy_loss import TAIL, discretise, log_normal_masses
from noisycgd.accounting.profile import GaussianProfile
from noisycgd.types import Adjacency, EpsilonDelta, GaussianMu, NoiseMultiplier, Target

TOLERANCE = 2.5e-4
"""Width of the epsilon bracket aimed at, absolute below epsilon 1 and relative above."""
_MOST_STEPS = 10**6
_FEW_CELLS, _MOST_CELLS = 2**13, 2**18
_FINEST = 2**16
"""Most grid losses per standard deviation of the composed loss."""
_COARSE = 4.0
"""Factor on the interval in a first search."""
_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e9


@dataclass(frozen=True, slots=True)
class _Pair:
    """One step's dominating pair, in units of the noise: P has weight p at +shift, Q at -shift, the rest lies at 0.

    Only `in_p` or `in_q` of them may have the shifted part. The loss log(P / Q) increases with the output.
    """

    rate: float
    shift: float
    in_p: bool
    in_q: bool

    def _part(self, outputs: Array) -> Array:
        """log(1 - p + p e^(shift x - shift^2 / 2)), the log ratio of the mixture to the standard normal."""
        return np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + self.shift * (outputs - 0.5 * self.shift))

    def loss(self, outputs: Array) -> Array:
        """log(P / Q) at each output."""
        found = np.zeros_like(outputs)
        if self.in_p:
            found += self._part(outputs)
        if self.in_q:
            found -= self._part(-outputs)
        return found

    def output(self, losses: Array) -> Array:
        """Inverse of `loss`, infinite outside its range."""
        if not self.in_q:
            return self._inverse_part(losses)
        if not self.in_p:
            return -self._inverse_part(-losses)
        # sinh(shift x - loss / 2) = a sinh(loss / 2), a = (1 - p) / p e^(shift^2 / 2).
        half = 0.5 * np.abs(losses)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_sinh = half + np.log(-np.expm1(-2.0 * half)) - math.log(2.0)
            y = log_sinh + math.log1p(-self.rate) - math.log(self.rate) + 0.5 * self.shift**2
            inverse = np.where(y < 300.0, np.arcsinh(np.exp(np.minimum(y, 300.0))), y + math.log(2.0))
        return np.asarray(np.sign(losses) * (half + inverse) / self.shift)

    def _inverse_part(self, losses: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            small = np.log1p(np.expm1(np.minimum(losses, 1.0)) / self.rate)
            large = losses + np.log1p(-(1.0 - self.rate) * np.exp(-np.maximum(losses, 1.0))) - math.log(self.rate)
        found = np.where(losses < 1.0, small, large) / self.shift + 0.5 * self.shift
        return np.asarray(np.where(losses <= math.log1p(-self.rate), -np.inf, found))

    def log_masses(self, losses: Array) -> tuple[Array, Array]:
        """Logs of the masses of P and of Q between ascending losses."""
        outputs = self.output(losses)
        p = q = middle = log_normal_masses(outputs)
        rest, sampled = math.log1p(-self.rate), math.log(self.rate)
        if self.in_p:
            p = np.logaddexp(rest + middle, sampled + log_normal_masses(outputs - self.shift))
        if self.in_q:
            q = np.logaddexp(rest + middle, sampled + log_normal_masses(outputs + self.shift))
        return p, q

    @property
    def bounds(self) -> tuple[float, float]:
        """Losses between which P has all its mass but a negligible tail."""
        low, high = self.loss(np.array([-TAIL, TAIL + self.shift * self.in_p])).tolist()
        return low, high

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the loss under P, by quadrature: they only choose an interval."""
        z = np.linspace(-9.0, 9.0, 361)
        weights = np.exp(-0.5 * z * z)
        losses, weights = self.loss(z), weights / weights.sum()
        if self.in_p:
            losses = np.concatenate([losses, self.loss(z + self.shift)])
            weights = np.concatenate([(1.0 - self.rate) * weights, self.rate * weights])
        mean = float(weights @ losses)
        return mean, math.sqrt(float(weights @ np.square(losses - mean)))


@dataclass(frozen=True, slots=True)
class _Run:
    """T independent steps of dominating pairs, one per direction of a change."""

    pairs: tuple[_Pair, ...]
    steps: int
    adjacency: Adjacency

    @property
    def _width(self) -> float:
        return max(high - low for low, high in (pair.bounds for pair in self.pairs))

    def start_interval(self) -> float:
        """Interval whose bracket is likely within the tolerance at a delta of 1e-5."""
        mean, deviation = max((pair.moments for pair in self.pairs), key=lambda m: m[1])
        total = math.sqrt(self.steps) * deviation
        epsilon = max(1.0, self.steps * mean + 4.3 * total)
        # The roundings change the variance of a step by a sixth of interval^2, either way.
        expected = deviation * min(math.sqrt(3.0 * TOLERANCE * epsilon / (total * (total + 4.3))), 0.25)
        # Few steps cost nothing, so resolve their sum well.
        few_steps = max(total / 500.0, self._width / _FEW_CELLS)
        return max(min(expected, few_steps), self.least_interval())

    def least_interval(self) -> float:
        """Interval beyond which the arrays would grow too long."""
        deviation = max(pair.moments[1] for pair in self.pairs)
        return max(self._width / _MOST_CELLS, math.sqrt(self.steps) * deviation / _FINEST, 1e-9)

    def profile(self, interval: float, *, both: bool) -> PLDProfile:
        """Profile on an interval; without the lower bound unless `both`."""
        upper, lower = [], []
        for pair in self.pairs:
            up, down = discretise(pair.log_masses, *pair.bounds, interval)
            upper.append(up.power(self.steps))
            if both:
                lower.append(down.power(self.steps))
        return PLDProfile(tuple(upper), tuple(lower) if both else None, self.adjacency)

    def bracketed(self, delta: float) -> PLDProfile:
        """Profile whose bracket at `delta` is within the tolerance, unless the arrays would grow too long."""
        interval, least = self.start_interval(), self.least_interval()
        while True:
            profile = self.profile(interval, both=True)
            upper, lower = profile.epsilon(delta), profile.epsilon_lower(delta)
            gap = upper - lower if lower is not None and upper < math.inf else math.inf
            if gap <= TOLERANCE * max(1.0, upper) or interval <= least:
                return profile
            shrink = math.sqrt(TOLERANCE * max(1.0, upper) / gap) if gap < math.inf else 0.0
            interval = max(interval * min(max(0.8 * shrink, 0.125), 0.5), least)


def _run(
    n_records: int, batch_size: int, epochs: int | None, steps: int | None, noise: float, adjacency: Adjacency
) -> _Run | GaussianProfile:
    """Checked parameters as a run, or as the Gaussian that full batches compose to."""
    n = check_integer("n_records", n_records)
    b = check_integer("batch_size", batch_size, high=n, way_out="A batch holds at most all records.")
    adjacency = check_adjacency(adjacency)
    if (epochs is None) == (steps is None):
        given = "neither" if epochs is None else f"epochs={epochs} and steps={steps}"
        refuse("epochs or steps", "given, one of the two", given, "steps = epochs * ceil(n_records / batch_size).")
    if steps is None:
        steps = check_integer("epochs", epochs) * -(-n // b)
    steps = check_integer("steps", steps, high=_MOST_STEPS, way_out="Use larger batches or fewer epochs.")
    replace = adjacency is Adjacency.REPLACE_ONE
    if b == n:
        return GaussianProfile(composition_mu(steps, noise) / (1.0 if replace else 2.0), adjacency=adjacency)
    sides = [(True, True)] if replace else [(True, False), (False, True)]
    return _Run(tuple(_Pair(b / n, 1.0 / noise, *side) for side in sides), steps, adjacency)


def poisson_profile(
    n_records: int,
    batch_size: int,
    noise_multiplier: float,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    delta: float = 1e-5,
) -> PLDProfile:
    """Privacy profile of T steps of DP-SGD, each on a Poisson sample of rate p = b / n, with every iterate released.

    Parameters
    ----------
    n_records, batch_size : int
        n and the expected batch size b, 1 <= b <= n.
    noise_multiplier : float
        nm in [1e-3, 1e9]: noise standard deviation over the clipping norm C, as the sum of gradients sees it.
    epochs : int, optional
        E; then T = E ceil(n / b). Give it or `steps`.
    steps : int, optional
        T, at most 10^6.
    adjacency : Adjacency
        Replace-one by default, with sensitivity 2C; add-remove takes the worse of its two directions.
    delta : float
        In (0, 1): where the bracket is made tight. The profile holds at every delta.

    Returns
    -------
    PLDProfile
        Its `epsilon(delta) - epsilon_lower(delta)` is at most 2.5e-4, absolute below epsilon 1 and relative above: the
        interval is refined until it is, or until a step would need 2^18 grid cells, or the sum 2^16 per deviation. That
        limit matters for very small noise or rates, where losses differ by orders of magnitude; the bracket says so.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type.

    Notes
    -----
    THEORY section 4: the dominating pair of a step is (1-p) N(0, nm^2) + p N(1, nm^2) against the same with N(-1, nm^2)
    under replace-one; under add-remove one of the two is N(0, nm^2). A record can attain it, so the lower bound is
    tight. With p = 1 steps are Gaussian: mu = 2 sqrt(T) / nm, and sqrt(T) / nm under add-remove.

    Examples
    --------
    >>> profile = poisson_profile(60000, 1000, 15.0, epochs=400)
    >>> round(profile.epsilon(1e-5), 2), round(profile.epsilon_lower(1e-5), 2)
    (1.32, 1.32)
    """
    noise = check_real("noise_multiplier", noise_multiplier, low=_LEAST_NOISE, high=_MOST_NOISE)
    run = _run(n_records, batch_size, epochs, steps, noise, adjacency)
    delta = check_delta(delta)
    return to_pld(run) if isinstance(run, GaussianProfile) else run.bracketed(delta)


def calibrate_poisson(
    n_records: int,
    batch_size: int,
    target: Target,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
) -> float:
    """Smallest noise multiplier whose `poisson_profile` meets a target, rounded up.

    Parameters
    ----------
    n_records, batch_size, epochs, steps, adjacency
        As in `poisson_profile`.
    target : EpsilonDelta or NoiseMultiplier
        A noise multiplier is returned as it is.

    Returns
    -------
    float
        nm with `poisson_profile(..., nm, delta=target.delta).epsilon(target.delta) <= target.epsilon`. Epsilon is
        missed by about the width of the profile's bracket.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type, if no noise multiplier up to 1e9 meets the target, or if
        every one from 1e-3 does.

    Notes
    -----
    THEORY section 5: calibration returns a value that satisfies the target.
    """
    from scipy.optimize import brentq

    if isinstance(target, GaussianMu):
        way_out = "A subsampled mechanism is not Gaussian: give epsilon and delta."
        refuse("target", "an EpsilonDelta or NoiseMultiplier", target, way_out)
    if not isinstance(target, EpsilonDelta | NoiseMultiplier):
        raise ParameterTypeError(message("target", "an EpsilonDelta or NoiseMultiplier", target))
    delta = check_delta(target.delta)
    if isinstance(target, NoiseMultiplier):
        return check_real("noise_multiplier", target.value, low=_LEAST_NOISE, high=_MOST_NOISE)
    epsilon = check_epsilon(target.epsilon)

    def profile(noise: float, coarsening: float) -> PLDProfile:
        run = _run(n_records, batch_size, epochs, steps, noise, adjacency)
        if isinstance(run, GaussianProfile):
            return to_pld(run)
        if coarsening == 0.0:
            return run.bracketed(delta)
        return run.profile(coarsening * run.start_interval(), both=False)

    def excess(log_noise: float, coarsening: float) -> float:
        # Where the target is met comfortably delta may vanish; any floor keeps the sign.
        return math.log(max(float(profile(math.exp(log_noise), coarsening).delta(epsilon)), 1e-300)) - math.log(delta)

    low = high = 0.0
    if excess(0.0, _COARSE) > 0:
        while excess(high, _COARSE) > 0:
            low, high = high, high + 1.0
            if high > math.log(_MOST_NOISE):
                refuse("target", f"one that a noise multiplier up to {_MOST_NOISE:g} meets", target, "Raise epsilon.")
    else:
        while excess(low, _COARSE) <= 0:
            low, high = low - 1.0, low
            if low < math.log(_LEAST_NOISE):
                way_out = "A record is hardly ever sampled, or epsilon is very large: lower delta or epsilon."
                refuse("target", f"one that a noise multiplier of {_LEAST_NOISE:g} misses", target, way_out)
    # The coarse root is above the fine one, by little: finish next to it.
    high = float(brentq(excess, low, high, args=(_COARSE,), xtol=1e-4)) + 1e-3
    near, step = high - 0.03, 0.03
    while excess(near, 1.0) <= 0:
        near, step = near - step, 2.0 * step
    while excess(high, 1.0) > 0:
        high += 1e-3
    high = float(brentq(excess, near, high, args=(1.0,), xtol=1e-6))
    noise, nudge = math.exp(high), 1e-6
    while profile(noise, 0.0).epsilon(delta) > epsilon:
        noise, nudge = noise * (1.0 + nudge), 2.0 * nudge
    return noise
