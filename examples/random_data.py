"""The utility theorem on random data: `python examples/random_data.py [--quick] [--out FILE.png]`.

The theorem (arXiv 2407.04884) takes rows x_i ~ N(0, I_d), any labels, P = O(n log n / d) hyperplanes and noisy
projected gradient descent, and bounds the training loss by O~(1 / (sqrt(n) epsilon)). Three experiments look at its
three steps; docs/random_data.md says what they show. All noise is seeded: a picture to repeat, not a private release.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from random_data_figure import figure_png
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from threadpoolctl import threadpool_limits

from noisycgd.accounting import GaussianProfile, gaussian_mu
from noisycgd.data import RowBounds
from noisycgd.features import make_gates

Array = NDArray[Any]
DELTA, GAMMA = 1e-5, 0.05  # of (epsilon, delta); probability with which the lemma on P may fail
MOST_PLANES = 128  # at which a record has no open gate with probability 2^-128
GATES = ("iid", "antithetic")
RATIO = 2  # c = n/d of the third experiment
RADII = {"constant": lambda n: 1.0, "interpolating": lambda n: 3.0 * math.sqrt(n)}

# Medians over seeds, with their range. `lemma` is 2 kappa log(n / GAMMA); the errors are those of least squares on
# random labels, the smallest with one step of P less and the largest at P.
Planes = namedtuple("Planes", "c n gates P low high lemma error_before error")
Conditioning = namedtuple("Conditioning", "c d kappa low high bound")
# Loss above the best in the ball (mean over noise draws), the same of the zero model, and what is proved of the two.
PrivateRun = namedtuple("PrivateRun", "radius n p steps epsilon mu excess zero proof floor")


class Sizes(NamedTuple):
    """What is run."""

    ratios: tuple[int, ...] = (1, 2, 4)
    records: tuple[int, ...] = (48, 96, 192, 384)
    widths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)  # d of the second experiment
    most: int = 512  # its largest n
    seeds: int = 10
    epsilons: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0, 256.0)
    draws: int = 4


FULL, QUICK = Sizes(), Sizes(records=(48, 96, 192), most=256, seeds=4, epsilons=(1.0, 8.0, 64.0), draws=2)


def draw_rows(n: int, d: int, seed: int) -> Array:
    """(n, d) float32, iid standard normal. Raises ValueError if n < d: the theorem wants c = n/d >= 1."""
    if not 1 <= d <= n:
        raise ValueError(f"d must be between 1 and n for the theorem's c = n/d >= 1; got n={n}, d={d}.")
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def smallest_planes(rows: Array, kind: str, seed: int) -> tuple[int, float, float]:
    """Smallest P with rank [D_1 X, ..., D_P X] = n over growing sets of hyperplanes, "iid" or "antithetic" pairs.

    The rank is that of the Gram matrix (XX') * (GG'), G the (n, M) gates. Also returns the least-squares error on
    random labels, relative to their norm, with one hyperplane (one pair) less and with P. Raises ValueError if rows are
    not in general position, or for other kinds.
    """
    if kind not in GATES:
        raise ValueError(f"kind must be one of {GATES}; got {kind!r}.")
    (n, d), step = rows.shape, 1 if kind == "iid" else 2
    patterns = make_gates(kind, d, MOST_PLANES, seed).patterns(rows).astype(float)
    products, labels = rows.astype(float) @ rows.T, np.random.default_rng(seed).standard_normal(n)
    rounding = n * np.finfo(float).eps

    def gram(P: int) -> Array:
        gates = patterns[:, :P] if kind == "iid" else patterns[:, : P // 2 + 1]
        return products * (gates @ gates.T) * (P > 0)

    def error(P: int) -> float:
        solution = np.linalg.lstsq(gram(P), labels, rcond=rounding)[0]
        return float(np.linalg.norm(gram(P) @ solution - labels) / np.linalg.norm(labels))

    for P in range(step * math.ceil(n / (d * step)), MOST_PLANES + 1, step):  # P d columns have rank P d at most
        values = np.linalg.eigvalsh(gram(P))
        if values[0] > rounding * values[-1]:
            return P, error(P - step), error(P)
    raise ValueError(f"rows must be in general position; got rank below {n} with {MOST_PLANES} hyperplanes.")


def expected_gram(rows: Array) -> Array:
    """Sigma = E_g[D XX' D], D = diag(1(Xg >= 0)), g ~ N(0, I): two gates are both open with (pi - angle) / (2 pi)."""
    products = rows.astype(float) @ rows.T
    norms = np.sqrt(np.diag(products))
    cosines = np.clip(products / np.outer(norms, norms), -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return products * (math.pi - np.arccos(cosines)) / (2.0 * math.pi)


def condition_number(rows: Array) -> float:
    """Kappa = lambda_max(XX') / lambda_min(Sigma); infinite if rows are parallel up to the rounding of an angle."""
    sigma = np.linalg.eigvalsh(expected_gram(rows))
    top = float(np.linalg.norm(rows.astype(float), 2)) ** 2
    return top / float(sigma[0]) if sigma[0] > 1e-8 * len(rows) * sigma[-1] else math.inf


def unit_features(n: int, d: int, P: int, seed: int) -> Array:
    """(n, P d) float32 features [1(u_i.x >= 0) x]_i / sqrt(P d) of rows brought to norm sqrt d: never longer than 1."""
    rows = RowBounds(row_norm=math.sqrt(d))(draw_rows(n, d, seed))
    gates = make_gates("iid", d, P, seed).patterns(rows).astype(np.float32)
    return (gates[:, :, None] * rows[:, None, :]).reshape(n, -1) / np.float32(math.sqrt(P * d))


def huber(residuals: Array) -> Array:
    """Mean over records of (z - y)^2 / 2 with its derivative clipped at 1, as `noisycgd.losses.ClippedSquared(1)`."""
    size = np.abs(residuals)
    inner = np.minimum(size, 1.0)
    return (inner * (size - inner / 2)).mean(axis=0)


def best_in_ball(features: Array, labels: Array, radius: float) -> float:
    """Lower bound, within 1e-4 of itself, on the loss over ||theta|| <= radius; ValueError where that is about zero."""
    theta = np.zeros(features.shape[1], np.float32)
    step = len(labels) / np.linalg.norm(features, 2) ** 2
    for _ in range(10_000):
        residuals = features @ theta - labels
        slope = features.T @ np.clip(residuals, -1, 1) / len(labels)
        # By convexity no point of the ball is better by more than this.
        gap = float(slope @ theta + radius * np.linalg.norm(slope))
        if gap <= 1e-4 * (loss := float(huber(residuals))):
            return loss - gap
        theta -= step * slope
        theta *= min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-30))
    raise ValueError(f"radius must be too small to interpolate; got {radius:g}.")


def noise_std(mu: float, steps: int, n: int) -> float:
    """Of the mean gradient's noise: each record's gradient has norm <= L = 1, so nm = 2 sqrt(T) / mu is mu-GDP."""
    return 2.0 * math.sqrt(steps) / (mu * n)


def private_descent(features: Array, labels: Array, radii: Array, mu: float, steps: int, seed: int) -> Array:
    """(K,) losses of the paper's reference algorithm, one run in each of the balls `radii` (K,).

    theta <- projection of theta - eta (gradient + N(0, noise^2 I)), from zero; the output is the average iterate. The
    step size is the proof's, eta = radius / sqrt(T (L^2 + p noise^2)); nothing is tuned.
    """
    (n, p), rng = features.shape, np.random.default_rng(seed)
    noise = np.float32(noise_std(mu, steps, n))
    rates = (radii / math.sqrt(steps * (1.0 + p * noise**2))).astype(np.float32)
    theta = np.zeros((p, len(radii)), np.float32)
    total = np.zeros_like(theta)
    for _ in range(steps):
        slope = features.T @ np.clip(features @ theta - labels[:, None], -1, 1) / np.float32(n)
        theta -= rates * (slope + noise * rng.standard_normal(theta.shape, dtype=np.float32))
        norms = np.sqrt(np.einsum("pk,pk->k", theta, theta))
        theta *= np.minimum(1.0, radii / np.maximum(norms, 1e-30)).astype(np.float32)
        total += theta
    return huber(features @ (total / np.float32(steps)) - labels[:, None])


def proof_bound(radius: float, n: int, p: int, mu: float, steps: int) -> float:
    """Expected excess loss is at most radius L (sqrt(1/T + 4 p / (n mu)^2) + 1/T), here with L = 1."""
    return radius * (math.sqrt(1.0 / steps + 4.0 * p / (n * mu) ** 2) + 1.0 / steps)


def privacy_floor(mu: float) -> float:
    """No mu-GDP algorithm has a smaller expected Huber loss on labels +-1 drawn by fair coins, whatever n, d and P.

    Seen as a test, min(loss, 3/2) of a record tells it from its replacement, on which it is at least 1/2 on average.
    """
    return 1.5 * float(GaussianProfile(mu).tradeoff(2.0 / 3.0))


def interpolation(c: int, n: int, gates: str, seeds: int) -> list[Planes]:
    """First experiment."""
    rows = [draw_rows(n, n // c, seed) for seed in range(seeds)]
    lemma = np.median([2.0 * condition_number(x) * math.log(n / GAMMA) for x in rows])
    P, before, after = np.array([smallest_planes(x, gates, seed) for seed, x in enumerate(rows)]).T
    return [Planes(c, n, gates, np.median(P), P.min(), P.max(), lemma, before.min(), after.max())]


def conditioning(c: int, d: int, seeds: int) -> list[Conditioning]:
    """Second experiment."""
    kappas = [condition_number(draw_rows(c * d, d, seed)) for seed in range(seeds)]
    bound = 10.0 * math.sqrt(2.0) * (math.sqrt(c) + 1.0) ** 2
    return [Conditioning(c, d, np.median(kappas), min(kappas), max(kappas), bound)]


def private_runs(n: int, epsilon: float, draws: int) -> list[PrivateRun]:
    """Third experiment: P = 2 c log n iid hyperplanes, labels +-1 by fair coins, both radii, one data set per n."""
    d, P = n // RATIO, math.ceil(2 * RATIO * math.log(n))
    features, labels = unit_features(n, d, P, n), np.random.default_rng([n, 1]).choice(np.float32([-1, 1]), n)
    solution = np.linalg.lstsq(features, labels, rcond=None)[0]
    if np.linalg.norm(solution) > RADII["interpolating"](n) or huber(features @ solution - labels) > 1e-6:
        raise ValueError(f"n must give a ball that holds an interpolating solution; got n={n}. Use more records.")
    p, mu = P * d, gaussian_mu(epsilon, DELTA)
    # The proof wants the second number; more steps only cost time.
    steps = max(n, math.ceil((n * mu) ** 2 / (4 * p)))
    radii = np.array([radius(n) for radius in RADII.values()])
    losses = private_descent(features, labels, np.repeat(radii, draws), mu, steps, n).reshape(-1, draws).mean(axis=1)
    least = best_in_ball(features, labels, radii[0]), 0.0
    return [
        PrivateRun(
            name, n, p, steps, epsilon, mu, loss - low, 0.5 - low, proof_bound(R, n, p, mu, steps), privacy_floor(mu)
        )
        for name, R, loss, low in zip(RADII, radii, losses, least, strict=True)
    ]


def jobs(sizes: Sizes) -> list[tuple[float, Callable[[], list[Any]]]]:
    """The experiments in small parts: a rough cost of each part, and the part."""
    made: list[tuple[float, Callable[[], list[Any]]]] = []
    for c in sizes.ratios:
        for n in sizes.records:
            made += [(2.0 * sizes.seeds * n**3, partial(interpolation, c, n, kind, sizes.seeds)) for kind in GATES]
        for d in (d for d in sizes.widths if c * d <= sizes.most):
            made.append((0.5 * sizes.seeds * (c * d) ** 3, partial(conditioning, c, d, sizes.seeds)))
    for n in sizes.records:
        made += [((10.0 + e) * n**3, partial(private_runs, n, e, sizes.draws)) for e in sizes.epsilons]
    return made


def table(rows: Sequence[Any]) -> Table:
    """One column per field."""
    made = Table(*rows[0]._fields, box=None, pad_edge=False)
    for row in rows:
        made.add_row(*(v if isinstance(v, str) else f"{v:.3g}" for v in row))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the numbers and draw the picture."""
    parser = argparse.ArgumentParser(description="The utility theorem on random data: three experiments and a picture.")
    parser.add_argument("--quick", action="store_true", help="small sizes: seconds")
    parser.add_argument("--out", type=Path, default=Path("random_data.png"), metavar="FILE.png", help="the picture")
    options = parser.parse_args(arguments)
    if options.out.suffix != ".png" or options.out.is_dir():
        parser.error(f"--out must be a file that ends in .png; got {options.out}.")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    parts, console = jobs(QUICK if options.quick else FULL), Console(stderr=True)
    results: dict[type, list[Any]] = {Planes: [], Conditioning: [], PrivateRun: []}
    columns = BarColumn(), TimeElapsedColumn(), TextColumn("elapsed ·"), TimeRemainingColumn(), TextColumn("left")
    show = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    # Matrices are small: more threads than free cores would wait for each other most of the time.
    with threadpool_limits(1), show as bar:
        task = bar.add_task("", total=sum(cost for cost, _ in parts))
        for cost, part in parts:
            rows = part()
            results[type(rows[0])] += rows
            bar.advance(task, cost)
    for rows in results.values():
        Console(width=100).print(table(rows), "")
    unfinished = options.out.with_name(options.out.name + ".part")  # a reader never finds half a picture
    unfinished.write_bytes(figure_png(*results.values()))
    os.replace(unfinished, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
