"""`python -m benchmarks.network`: a private step of a two-layer ReLU network beside its plain step and beside Opacus.

All contenders run in one process and take turns, as in `benchmarks.step`. Ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.problem import Contender
from benchmarks.step import (
    PACKAGES,
    QUIET_LOAD,
    _keep_freed_memory,
    _version,
    describe_machine,
    quartiles,
    race,
    write_whole,
)
from noisycgd.training.network import NetworkParameters, NetworkRecords, ReLUNetworkModel, start_network
from noisycgd.training.noise import system_randomness
from noisycgd.training.poisson import Settings, State, default_chunk, normal_like, run_poisson_epoch

PEERS = ("opacus_hooks", "opacus_ghost")


@dataclass(frozen=True)
class NetworkSizes:
    """n records of d columns, W hidden units, q classes, batches of b; n is a multiple of b."""

    n: int = 60_000
    d: int = 784
    W: int = 500
    q: int = 10
    b: int = 1_000

    def __post_init__(self) -> None:
        if self.n % self.b:
            raise ValueError(f"n must be a multiple of b; got n={self.n}, b={self.b}.")

    @property
    def k(self) -> int:
        """Batches in an epoch."""
        return self.n // self.b


FULL = NetworkSizes()
QUICK = NetworkSizes(n=2_000, d=32, W=40, q=4, b=200)


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """Synthetic records in batches and the constants of a private step; Opacus' contenders read the same names.

    Attributes
    ----------
    start : NetworkParameters
        Where every contender begins.
    rows : ndarray of shape (k, b, d), float32
        Rows of norm 1.
    labels : ndarray of shape (k, b), int32
        Classes.
    open_gates : ndarray of shape (k, b, 0), float32
        A network has none.
    learning_rate, noise_multiplier, clipping_norm : float
        eta, nm, C.
    """

    sizes: NetworkSizes
    start: NetworkParameters
    rows: NDArray[np.float32]
    labels: NDArray[np.int32]
    open_gates: NDArray[np.float32]
    learning_rate: float
    noise_multiplier: float
    clipping_norm: float

    @property
    def noise_std(self) -> float:
        """Noise standard deviation of a step after the division by b, nm C / b."""
        return self.noise_multiplier * self.clipping_norm / self.sizes.b

    @property
    def batches(self) -> NetworkRecords:
        """The records with a leading axis of k batches."""
        return NetworkRecords(jnp.asarray(self.rows), jnp.asarray(self.labels))


def make_network_problem(
    sizes: NetworkSizes, noise_multiplier: float = 5.0, clipping_norm: float = 1.0, seed: int = 0
) -> NetworkProblem:
    """Gaussian rows scaled to norm 1, labels of a random linear teacher."""
    rng = np.random.default_rng(seed)
    n, d, W, q = sizes.n, sizes.d, sizes.W, sizes.q
    rows = rng.standard_normal((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows @ rng.standard_normal((d, q), dtype=np.float32)).argmax(axis=1).astype(np.int32)
    return NetworkProblem(
        sizes=sizes,
        start=start_network(d, W, q, seed),
        rows=rows.reshape(sizes.k, sizes.b, d),
        labels=labels.reshape(sizes.k, sizes.b),
        open_gates=np.zeros((sizes.k, sizes.b, 0), np.float32),
        learning_rate=0.5,
        noise_multiplier=noise_multiplier,
        clipping_norm=clipping_norm,
    )


@partial(jax.jit, donate_argnums=0)
def private_epoch(
    parameters: NetworkParameters,
    batches: NetworkRecords,
    model: ReLUNetworkModel,
    learning_rate: jax.Array,
    noise_std: jax.Array,
    key: jax.Array,
) -> NetworkParameters:
    """`ReLUNetworkModel.clipped_sum`, noise and update over k batches of equal size."""
    k, b = batches.targets.shape

    def step(theta: NetworkParameters, now: tuple[jax.Array, NetworkRecords]) -> tuple[NetworkParameters, None]:
        place, batch = now
        gradient = model.clipped_sum(theta, batch, jnp.ones(b, bool))
        noise = normal_like(jax.random.fold_in(key, place), theta)
        return jax.tree.map(lambda v, g, z: v - learning_rate * (g / b + noise_std * z), theta, gradient, noise), None

    return jax.lax.scan(step, parameters, (jnp.arange(k), batches))[0]


@partial(jax.jit, donate_argnums=0)
def plain_epoch(parameters: NetworkParameters, batches: NetworkRecords, learning_rate: jax.Array) -> NetworkParameters:
    """SGD without privacy: the same loop around `jax.grad` of the mean cross-entropy."""

    def loss(theta: NetworkParameters, batch: NetworkRecords) -> jax.Array:
        hidden = jax.nn.relu(batch.rows @ theta.hidden_weights.T + theta.hidden_bias)
        logits = hidden @ theta.output_weights.T + theta.output_bias
        is_label = batch.targets[:, None] == jnp.arange(logits.shape[1])
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.sum(jnp.where(is_label, logits, 0), axis=1))

    def step(theta: NetworkParameters, batch: NetworkRecords) -> tuple[NetworkParameters, None]:
        return jax.tree.map(lambda v, g: v - learning_rate * g, theta, jax.grad(loss)(theta, batch)), None

    return jax.lax.scan(step, parameters, batches)[0]


class NetworkStep:
    """A contender of this package or of plain JAX; one turn is one epoch.

    Parameters
    ----------
    epoch : callable
        Parameters -> parameters after k steps; it may consume its argument.
    """

    def __init__(
        self, name: str, problem: NetworkProblem, epoch: Callable[[NetworkParameters], NetworkParameters]
    ) -> None:
        self.name, self.steps = name, problem.sizes.k
        self._epoch = epoch
        self.parameters: NetworkParameters = jax.tree.map(jnp.array, problem.start)

    def rouse(self) -> None:
        """Nothing: a turn of a whole epoch rouses itself, at its own cost."""

    def run(self) -> None:
        """One epoch."""
        self.parameters = jax.block_until_ready(self._epoch(self.parameters))


def make_steps(problem: NetworkProblem) -> list[NetworkStep]:
    """Our step on fixed batches and on Poisson batches, and the plain step."""
    sizes, batches = problem.sizes, problem.batches
    records = jax.tree.map(lambda leaf: leaf.reshape(sizes.n, *leaf.shape[2:]), batches)
    model, randomness = ReLUNetworkModel(problem.clipping_norm), system_randomness()
    rate, std = jnp.float32(problem.learning_rate), jnp.float32(problem.noise_std)
    settings = Settings(jnp.float32(sizes.b), jnp.float32(0), std, None)

    def private(theta: NetworkParameters) -> NetworkParameters:
        with jax.enable_x64(True):  # as `train_poisson` does
            return private_epoch(theta, batches, model, rate, std, randomness.key())

    def poisson(theta: NetworkParameters) -> NetworkParameters:
        with jax.enable_x64(True):  # as `train_poisson` does
            return run_poisson_epoch(
                State(theta, None),
                records,
                model,
                settings,
                jnp.full(sizes.k, rate),
                randomness.key(),
                sampling_rate=sizes.b / sizes.n,
                chunk_size=default_chunk(sizes.n, sizes.b),
            ).parameters

    def plain(theta: NetworkParameters) -> NetworkParameters:
        return plain_epoch(theta, batches, rate)

    epochs = {"noisycgd": private, "noisycgd_poisson": poisson, "non_private": plain}
    return [NetworkStep(name, problem, epoch) for name, epoch in epochs.items()]


def make_peers(problem: NetworkProblem, threads: int) -> tuple[list[Any], list[str]]:
    """Opacus with per-sample gradients and with ghost clipping, and a note if the first does not fit in memory."""
    import psutil
    import torch
    from torch import Tensor, nn

    from benchmarks.peers import OpacusStep

    class Network(nn.Sequential):
        def forward(self, rows: Tensor, gates: Tensor) -> Tensor:
            return super().forward(rows)

    torch.set_num_threads(threads)
    sizes = problem.sizes
    d, W, q = sizes.d, sizes.W, sizes.q

    def opacus(name: str, ghost: bool, steps: int) -> OpacusStep:
        model = Network(nn.Linear(d, W), nn.ReLU(), nn.Linear(W, q))
        peer = OpacusStep(problem, name, model, ghost=ghost, steps=steps)
        with torch.no_grad():
            for parameter, start in zip(model.parameters(), problem.start, strict=True):
                parameter.copy_(torch.from_numpy(start))
        return peer

    peers = [opacus("opacus_ghost", ghost=True, steps=10)]
    # Opacus copies the per-sample gradients once while it makes them.
    needed = 3 * 4 * sizes.b * sum(leaf.size for leaf in problem.start)
    if psutil.virtual_memory().available < needed:
        return peers, [f"opacus_hooks left out: needs about {needed / 1e9:.1f} GB of free memory"]
    return [*peers, opacus("opacus_hooks", ghost=False, steps=1)], []


def measure(sizes: NetworkSizes, rounds: int, *, with_peers: bool = True, keep_memory: bool = False) -> dict[str, Any]:
    """Every number of the benchmark as one JSON-ready dictionary; README.md says what each key means."""
    machine = describe_machine()
    keeps_memory = keep_memory and _keep_freed_memory()
    problem = make_network_problem(sizes)
    contenders: list[Contender] = [*make_steps(problem)]
    notes = []
    if with_peers:
        try:
            peers, notes = make_peers(problem, machine["cores"])
            contenders += peers
        except ModuleNotFoundError as error:
            notes = [f"peers left out: {error.name} is not installed (pip install '.[bench]')"]
    times = {name: np.array(turns) for name, turns in race(contenders, rounds).items()}
    ours = times["noisycgd"]
    ratios = {"ratio_to_non_private": quartiles(ours / times["non_private"])}
    ratios["ratio_of_poisson"] = quartiles(times["noisycgd_poisson"] / ours)
    ratios |= {name: quartiles(times[name] / ours) for name in PEERS if name in times}
    return {
        "benchmark": "network",
        "sizes": asdict(sizes),
        "rounds": rounds,
        "speedup": {name: ratios[name]["median"] if name in ratios else None for name in PEERS},
        "ratio_to_non_private": ratios["ratio_to_non_private"]["median"],
        "ratio_of_poisson": ratios["ratio_of_poisson"]["median"],
        "quartiles_of_ratios": ratios,
        "step_ms": {c.name: quartiles(1e3 * times[c.name]) | {"steps_per_turn": c.steps} for c in contenders},
        "allocator_keeps_memory": keeps_memory,
    } | circumstances(machine, notes)


def circumstances(machine: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """Where and with what a result was measured, and whether the machine was quiet before."""
    notes = list(notes)
    if (load := machine["load_before"]) is not None and load > QUIET_LOAD * machine["cores"]:
        notes.append(f"the machine was not quiet: load {load:.2f} on {machine['cores']} cores before the run")
    found = {name: _version(name) for name in PACKAGES}
    versions = {name: v for name, v in found.items() if v is not None} | {"python": platform.python_version()}
    return {"machine": machine, "versions": versions, "notes": notes}


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'contender':<24}{'ms per step':>12}{'quartiles':>20}"]
    for name, ms in result["step_ms"].items():
        spread = f"{ms['q1']:.4g} - {ms['q3']:.4g}"
        lines.append(f"{name:<24}{ms['median']:>12.4g}{spread:>20}")
    lines.append("")
    for name in ("ratio_to_non_private", "ratio_of_poisson"):
        lines.append(f"{name.replace('_', ' '):<32}{result[name]:>8.3g}")
    lines += [f"{'speedup over ' + name:<32}{s:>8.3g}" for name, s in result["speedup"].items() if s is not None]
    return "\n".join(lines + [f"note: {note}" for note in result["notes"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write to a file if asked to."""

    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--without-peers", action="store_true", help="leave PyTorch and Opacus out")
        parser.add_argument("--keep-memory", action="store_true", help="tell the C library to keep freed memory")

    def measured(options: argparse.Namespace) -> dict[str, Any]:
        peers, keep = not options.without_peers, options.keep_memory
        return measure(QUICK if options.quick else FULL, options.rounds, with_peers=peers, keep_memory=keep)

    return run_command("network", __doc__, measured, table, arguments, extend)


def run_command(
    name: str,
    description: str | None,
    measured: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    arguments: Sequence[str] | None,
    extend: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Parse the options that benchmarks have in common, measure, print, and write to a file if asked to."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=(description or "").split("\n\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--out", type=Path, help="write the JSON to this file as well, whole or not at all")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, says nothing about speed")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: 7)")
    extend(parser)
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1; got {options.rounds}.")
    result = measured(options)
    text = json.dumps(result, indent=2)
    if options.out is not None:
        write_whole(options.out, text + "\n")
    print(text if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
