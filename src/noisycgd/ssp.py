"""Sufficient-statistics perturbation: private least squares in one pass (Wang 2018, AdaSSP; THEORY section 4).

The Gram matrix X'X, its smallest eigenvalue and X'Y get Gaussian noise; the model is a function of the three.
Replace-one sensitivities for rows of norm at most R and targets of norm at most B (1 for one-hot labels), where
AdaSSP's R^2, R^2 and R B are for adding or removing a record:

- X'X moves by xx' - ww', of squared Frobenius norm |x|^4 + |w|^4 - 2 (x.w)^2 <= 2 R^4, hence by sqrt(2) R^2, reached by
  orthogonal rows. Independent noise of standard deviation s on all D^2 entries hides that, and its symmetric part is a
  function of the result: noise s (A + A') / 2, of standard deviation s on the diagonal and tau = s / sqrt(2) beside it.
  (AdaSSP mirrors an upper triangle of noise of one standard deviation, which would have to be s everywhere: rows along
  two axes move the diagonal alone.)
- The smallest eigenvalue moves by at most the largest |eigenvalue| of xx' - ww' (Weyl), hence by R^2.
- X'Y moves by x y' - w v', hence by 2 R B, reached by w = -x, v = y. Different one-hot labels give sqrt(2) R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigvalsh
from scipy.special import ndtri

from noisycgd._validation import DataError, check_choice, check_integer, check_real, refuse, rounded_down
from noisycgd.accounting import GaussianProfile, calibrate_noise, composition_mu
from noisycgd.planning.settings import check_settings
from noisycgd.training.noise import Randomness, double_normal
from noisycgd.types import GaussianMu, Order, Target

LARGEST_N_FEATURES = 8192
RIDGES = ("adassp", "spectral")
RELEASES = 3

_BLOCK_ROWS = 4096
_UNIT = 2.0**-53
# Sensitivities are for norms larger by twice this share, so that the rounding of a norm cannot break a bound.
_NORM_SLACK = 5e-12


@dataclass(frozen=True)
class SSPPlan:
    """All that a release needs, fixed before it sees a record.

    Attributes
    ----------
    n_records, n_features, n_outputs : int
        n, D, q.
    classification : bool
        Whether targets are class indices, taken as one-hot vectors.
    feature_norm, target_norm : float
        R and B, public bounds on the norms of a row and of its target.
    noise_multiplier : float
        nm: each release has noise of nm / 2 times its sensitivity and is 2 / nm-GDP, like a step of gradient descent.
    gram_std : float
        s: standard deviation of the noise on the Gram matrix's diagonal; s / sqrt(2) beside it.
    eigenvalue_std, moments_std : float
        Standard deviations of the noise on its smallest eigenvalue and on the entries of X'Y.
    eigenvalue_tail : float
        What is taken off the noisy eigenvalue; its noise exceeds that with probability `rho`.
    ridge : float
        What the smallest eigenvalue is brought up to.
    rho : float
        AdaSSP's failure probability, which bears on usefulness alone; not the norm that THEORY calls rho.
    profile : GaussianProfile
        Privacy of all three releases together, 2 sqrt(3) / nm-GDP under replace-one.
    delta, epsilon : float
        Where the guarantee is stated, and the stated epsilon.
    """

    n_records: int
    n_features: int
    n_outputs: int
    classification: bool
    feature_norm: float
    target_norm: float
    noise_multiplier: float
    gram_std: float
    eigenvalue_std: float
    moments_std: float
    eigenvalue_tail: float
    ridge: float
    rho: float
    profile: GaussianProfile
    delta: float
    epsilon: float

    @property
    def mu(self) -> float:
        """GDP parameter of all three releases together."""
        return self.profile.mu


class NoisyStatistics(NamedTuple):
    """What an adversary may see: the three releases."""

    gram: NDArray[np.float64]  # (D, D), symmetric
    smallest_eigenvalue: float
    moments: NDArray[np.float64]  # (D, q)


class Statistics:
    """Sums over the records, in one pass over chunks of any size; all of it is private.

    Sums are in float64, where the products of float32 rows are exact; the rounding that is left is counted in the
    sensitivities. Memory: D (D + q) numbers, and as many again while a chunk is added.

    Parameters
    ----------
    n_features, n_outputs : int
        D, at most 8192, and q, the number of classes or of targets.
    classification : bool
        Whether targets are class indices.

    Attributes
    ----------
    gram, moments : ndarray of shape (D, D) and (D, q), float64
        X'X and X'Y.
    n_records, largest_row_norm, largest_target_norm : int, float, float
        Over the rows seen. A plan made from the two norms is not private.
    """

    def __init__(self, n_features: int, n_outputs: int, classification: bool) -> None:
        D, q = _check_shape(n_features, n_outputs)
        self.classification = bool(classification)
        self.gram = np.zeros((D, D))
        self.moments = np.zeros((D, q))
        self.n_records = 0
        self.largest_row_norm = self.largest_target_norm = 0.0

    def add(self, rows: NDArray[Any], targets: ArrayLike) -> None:
        """Add a chunk of records.

        Parameters
        ----------
        rows : ndarray of shape (c, D)
            Bounded, mapped rows, float32 or float64.
        targets : array_like of shape (c,) or (c, q)
            Class indices in 0 ... q - 1, or values.

        Raises
        ------
        ParameterError, DataError
            If shapes do not fit; if a number is not finite or a class unknown. Nothing was added.
        """
        D, q = self.moments.shape
        if rows.ndim != 2 or rows.shape[1] != D:
            refuse("rows", f"of shape (records, {D})", rows.shape)
        values = self._encoded(np.asarray(targets), len(rows), q)
        if not (np.isfinite(rows).all() and np.isfinite(values).all()):
            raise DataError("rows and targets must be finite; got NaN or infinity. Remove or fill those values first.")
        for start in range(0, len(rows), _BLOCK_ROWS):
            x = rows[start : start + _BLOCK_ROWS].astype(np.float64)
            y = values[start : start + _BLOCK_ROWS]
            self.gram += x.T @ x
            self.moments += x.T @ y
            self.largest_row_norm = max(self.largest_row_norm, _largest_norm(x))
            self.largest_target_norm = max(self.largest_target_norm, _largest_norm(y))
        self.n_records += len(rows)

    def _encoded(self, targets: NDArray[Any], c: int, q: int) -> NDArray[np.float64]:
        """(c, q): values as they are, or classes as one-hot vectors."""
        shapes: list[tuple[int, ...]] = [(c,)] if self.classification else [(c, q)] if q > 1 else [(c,), (c, 1)]
        if targets.shape not in shapes:
            refuse("targets", f"of shape {shapes[0]}", targets.shape)
        if not self.classification:
            return targets.reshape(c, q).astype(np.float64)
        if targets.dtype.kind not in "iu":
            refuse("targets", "integer class indices", targets.dtype)
        if ((targets < 0) | (targets >= q)).any():
            raise DataError(f"targets must be classes 0 to {q - 1}; got another. Count the classes, or encode them.")
        one_hot: NDArray[np.float64] = np.eye(q)[targets]
        return one_hot


def sensitivities(n: int, feature_norm: float, target_norm: float, n_features: int) -> tuple[float, float, float]:
    """Replace-one sensitivities of the Gram matrix, its smallest eigenvalue and X'Y, as computed in float64.

    Returns
    -------
    tuple of float
        sqrt(2) R^2 (Frobenius norm, all D^2 entries), R^2 and 2 R B (Frobenius norm, all outputs), each raised by the
        rounding of both data sets' sums.

    Notes
    -----
    A sum of n products, in any order and by any conventional matrix product, is off by at most gamma sum |a_i b_i|,
    gamma = n u / (1 - n u), u = 2^-53 (Higham 2002, section 3.1). So X'X is off by gamma n R^2 and X'Y by gamma n R B
    in Frobenius norm: less than 1e-6 of a sensitivity at n = 60 000, 2 % at n = 10^7. A backward stable eigenvalue is
    off by a small multiple of D^2 u ||X'X||, for which 10 is on the safe side.
    """
    R, B = (bound * (1 + 2 * _NORM_SLACK) for bound in (feature_norm, target_norm))
    gamma, solver = n * _UNIT / (1 - n * _UNIT), 10 * n_features**2 * _UNIT
    up = 1 + 16 * _UNIT
    gram, eigenvalue = math.sqrt(2) + 2 * n * gamma, 1 + 2 * n * (gamma + solver)
    return up * R * R * gram, up * R * R * eigenvalue, up * 2 * R * B * (1 + n * gamma)


def plan_ssp(
    n_records: int,
    feature_norm: float,
    target_norm: float,
    target: Target,
    n_features: int,
    n_outputs: int,
    classification: bool,
    rho: float = 0.05,
    ridge: str = "adassp",
) -> SSPPlan:
    """Split a privacy budget evenly over three Gaussian releases, and fix the ridge.

    Parameters
    ----------
    n_records, feature_norm, target_norm : int, float, float
        n, R and B: public, the latter two bounds on the norms of a row and of its target. B is 1 for classes.
    target : EpsilonDelta, GaussianMu or NoiseMultiplier
        What to calibrate the noise to.
    n_features, n_outputs, classification : int, int, bool
        As in `Statistics`. X'Y of all classes is one release.
    rho : float
        AdaSSP's failure probability, in (0, 1).
    ridge : {"adassp", "spectral"}
        What the smallest eigenvalue is brought up to. `adassp`: tau sqrt(D log(2 D^2 / rho)), as in the literature, tau
        the noise beside the diagonal. `spectral`: 2 tau (sqrt(D) + sqrt(log(1 / rho))), which the noise's largest
        eigenvalue exceeds with probability at most rho; half as much at D = 1000, more below D = 13 (at rho = 0.05).

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement, or no noise meets the target.

    Warns
    -----
    UserWarning
        If delta exceeds 1 / n: such a guarantee permits publishing a record outright.

    Notes
    -----
    The bound of `spectral`: the largest eigenvalue of s (A + A') / 2 is s-Lipschitz in the normals A, so it exceeds its
    mean by s sqrt(2 log(1 / rho)) with probability at most rho. The mean is at most 2 tau sqrt(D) by Sudakov-Fernique:
    on the sphere, s (v'Av - w'Aw) has variance s^2 ||vv' - ww'||^2 <= 4 tau^2 ||v - w||^2, that of 2 tau g'(v - w).
    """
    settings = check_settings(target, n_records, n_records, 1, 0.0)
    D, q = _check_shape(n_features, n_outputs)
    R = check_real("feature_norm", feature_norm, low=0, open_low=True)
    B = check_real("target_norm", target_norm, low=0, open_low=True)
    if classification and B != 1:
        refuse("target_norm", "1, the norm of a one-hot label", B)
    rho = check_real("rho", rho, low=0, high=1, open_low=True, open_high=True)
    check_choice("ridge", ridge, RIDGES)
    noise = calibrate_noise([composition_mu(RELEASES, 2.0)], settings.target, Order.GIVEN)
    profile = GaussianProfile(composition_mu(RELEASES, noise))
    if not math.isfinite(epsilon := profile.epsilon(settings.target.delta)):
        if isinstance(settings.target, GaussianMu):
            refuse("mu", "small enough for a finite epsilon", settings.target.mu, "Lower it.")
        refuse("noise_multiplier", "large enough for a finite epsilon", noise, "Raise it.")
    stds = [noise / 2 * s * (1 + 4 * _UNIT) for s in sensitivities(settings.n_records, R, B, D)]
    if not all(0 < std < math.inf for std in stds):
        refuse("feature_norm and target_norm", "numbers whose noise float64 can hold", (R, B))
    spectral = 2 * (math.sqrt(D) + math.sqrt(-math.log(rho)))
    height = spectral if ridge == "spectral" else math.sqrt(D * math.log(2 * D**2 / rho))
    return SSPPlan(
        n_records=settings.n_records,
        n_features=D,
        n_outputs=q,
        classification=bool(classification),
        feature_norm=R,
        target_norm=B,
        noise_multiplier=noise,
        gram_std=stds[0],
        eigenvalue_std=stds[1],
        moments_std=stds[2],
        eigenvalue_tail=stds[1] * -float(ndtri(rho)),
        ridge=stds[0] / math.sqrt(2) * height,
        rho=rho,
        profile=profile,
        delta=settings.target.delta,
        epsilon=epsilon,
    )


def release(statistics: Statistics, plan: SSPPlan, randomness: Randomness) -> NoisyStatistics:
    """Add the planned noise to the three sums. Every call is a release of its own: call it once.

    Raises
    ------
    ParameterError
        If the statistics are not those that the plan accounts for.
    """
    _check_fits(statistics, plan)
    D, q = statistics.moments.shape
    # float64: a single release shows each draw, and its sums are in float64.
    A, z, Z = (double_normal(randomness.key(), shape) for shape in ((D, D), (1,), (D, q)))
    gram = A + A.T
    gram *= plan.gram_std / 2
    gram += statistics.gram
    smallest = eigvalsh(statistics.gram, subset_by_index=(0, 0), check_finite=False) + plan.eigenvalue_std * z
    return NoisyStatistics(gram, float(smallest[0]), statistics.moments + plan.moments_std * Z)


def solve_noisy(released: NoisyStatistics, plan: SSPPlan) -> NDArray[np.float64]:
    """AdaSSP's ridge regression (Wang 2018, algorithm 2), a function of the release alone.

    Returns
    -------
    ndarray of shape (D, q)
        (noisy X'X + lambda I)^-1 noisy X'Y, lambda = max(0, ridge - max(0, noisy eigenvalue - tail)). Where that matrix
        is not positive definite, lambda is raised to the ridge, then doubled, until it is.
    """
    shift = max(0.0, plan.ridge - max(0.0, released.smallest_eigenvalue - plan.eigenvalue_tail))
    diagonal = np.diagonal(released.gram)
    while True:
        matrix = released.gram.copy()
        np.fill_diagonal(matrix, diagonal + shift)
        try:
            factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            shift = plan.ridge if shift < plan.ridge else 2 * shift
            continue
        solution: NDArray[np.float64] = cho_solve(factor, released.moments, check_finite=False)
        return solution


def solve_ssp(statistics: Statistics, plan: SSPPlan, randomness: Randomness) -> NDArray[np.float64]:
    """Release the statistics and return the (D, q) weights, float64; see `release` and `solve_noisy`."""
    return solve_noisy(release(statistics, plan, randomness), plan)


def _check_shape(n_features: object, n_outputs: object) -> tuple[int, int]:
    way_out = "The Gram matrix has D^2 entries: use fewer features, or a method that learns in steps."
    D = check_integer("n_features", n_features, high=LARGEST_N_FEATURES, way_out=way_out)
    return D, check_integer("n_outputs", n_outputs)


def _largest_norm(rows: NDArray[np.float64]) -> float:
    return math.sqrt(float(np.einsum("nd,nd->n", rows, rows).max(initial=0.0)))


def _check_fits(statistics: Statistics, plan: SSPPlan) -> None:
    """Refuse sums whose sensitivity the plan's noise was not calibrated to; no message tells a private number."""
    found = (statistics.n_records, *statistics.moments.shape, statistics.classification)
    planned = (plan.n_records, plan.n_features, plan.n_outputs, plan.classification)
    if found != planned:
        refuse("records, features, outputs, classification", f"as planned {planned}", found, "Plan with these.")
    if statistics.largest_row_norm > plan.feature_norm * (1 + _NORM_SLACK):
        refuse(
            "rows",
            f"of norm at most {rounded_down(plan.feature_norm)}",
            "a longer one",
            "Bound them before they are added.",
        )
    if statistics.largest_target_norm > plan.target_norm * (1 + _NORM_SLACK):
        refuse(
            "targets",
            f"of norm at most {rounded_down(plan.target_norm)}",
            "a larger one",
            "Clip them before they are added.",
        )
