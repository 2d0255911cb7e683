"""The same model trained with PyTorch: Opacus in its two modes, and a closed-form step written by hand.

Importing this file needs the extra `bench`. README.md of this folder argues why each peer is at its best.
"""

from __future__ import annotations

import abc
import warnings
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from benchmarks.problem import Contender, Problem


class TorchStep(abc.ABC):
    """A peer that walks through the batches in order, step by step."""

    def __init__(self, problem: Problem, name: str, steps: int) -> None:
        self.name, self.steps, self.problem = name, steps, problem
        self.rows = torch.from_numpy(problem.rows)
        self.gates = torch.from_numpy(problem.open_gates)
        self.labels = torch.from_numpy(problem.labels).long()
        self._next = 0

    @abc.abstractmethod
    def step(self, j: int) -> None:
        """One private step on batch j."""

    @abc.abstractmethod
    def weights(self) -> NDArray[np.float32]:
        """(P, d, q): the model's parameters, gate by gate."""

    def rouse(self) -> None:
        """One untimed step."""
        self._advance(1)

    def run(self) -> None:
        """`steps` steps."""
        self._advance(self.steps)

    def _advance(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self._next)
            self._next = (self._next + 1) % self.problem.sizes.k


class OneLayer(nn.Module):
    """Logits = phi(x) W with phi(x) = [g_1(x) x, ..., g_P(x) x] written into one buffer that is used again."""

    def __init__(self, d: int, P: int, q: int, b: int) -> None:
        super().__init__()
        self.layer = nn.Linear(P * d, q, bias=False)
        self.features = torch.empty(b, P, d)

    def forward(self, rows: Tensor, gates: Tensor) -> Tensor:
        """(b, d) rows and (b, P) gates -> (b, q) logits."""
        with torch.no_grad():
            torch.mul(gates[:, :, None], rows[:, None, :], out=self.features)
        return self.layer(self.features.flatten(1))


class PrebuiltLayer(nn.Module):
    """`OneLayer` for features that are already in memory, as if P times the data fitted there."""

    def __init__(self, features: Tensor, q: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features[0, 0].numel(), q, bias=False)
        self.features = [part.flatten(1) for part in features]

    def forward(self, j: int) -> Tensor:
        """Logits of batch j modulo those built, each larger than any cache at full size."""
        return self.layer(self.features[j % len(self.features)])


class ManyLayers(nn.Module):
    """Logits = sum_p g_p(x) layer_p(x), with P layers on the rows themselves."""

    def __init__(self, d: int, P: int, q: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d, q, bias=False) for _ in range(P)])

    def forward(self, rows: Tensor, gates: Tensor) -> Tensor:
        """(b, d) rows and (b, P) gates -> (b, q) logits."""
        outputs = torch.stack([layer(rows) for layer in self.layers], dim=1)
        return (outputs * gates[:, :, None]).sum(dim=1)


class OpacusStep(TorchStep):
    """Forward, backward, clip to C, noise, SGD: the objects that `PrivacyEngine.make_private` would build.

    Parameters
    ----------
    model : nn.Module
        One of the models above; its weights are set to zero.
    ghost : bool
        Ghost clipping instead of per-sample gradients by hooks.
    """

    def __init__(self, problem: Problem, name: str, model: nn.Module, *, ghost: bool, steps: int) -> None:
        super().__init__(problem, name, steps)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        self.model = model
        C = problem.clipping_norm
        settings: dict[str, Any] = {
            "noise_multiplier": problem.noise_multiplier,
            "max_grad_norm": C,
            "expected_batch_size": problem.sizes.b,
        }
        sgd = torch.optim.SGD(model.parameters(), lr=problem.learning_rate)
        self._loss: Any = nn.CrossEntropyLoss()
        if ghost:
            self._module = GradSampleModuleFastGradientClipping(model, max_grad_norm=C)
            self._optimizer = DPOptimizerFastGradientClipping(sgd, **settings)
            self._loss = DPLossFastGradientClipping(self._module, self._optimizer, self._loss)
        else:
            self._module = GradSampleModule(model)
            self._optimizer = DPOptimizer(sgd, **settings)

    def step(self, j: int) -> None:
        """See `TorchStep.step`."""
        arguments = (j,) if isinstance(self.model, PrebuiltLayer) else (self.rows[j], self.gates[j])
        with warnings.catch_warnings():
            # Opacus hooks layers whose input needs no gradient; torch remarks on that.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            self._loss(self._module(*arguments), self.labels[j]).backward()
        self._optimizer.step()
        # At the end, so that gigabytes of per-sample gradients do not stay for the others' turns.
        self._optimizer.zero_grad(set_to_none=True)

    def weights(self) -> NDArray[np.float32]:
        """See `TorchStep.weights`."""
        sizes = self.problem.sizes
        stacked = torch.cat([p.detach().view(sizes.q, -1, sizes.d) for p in self.model.parameters()], dim=1)
        found: NDArray[np.float32] = stacked.permute(1, 2, 0).numpy()
        return found


class ClosedForm(TorchStep):
    """Two products, the softmax residual and a noise draw, without autograd and without new memory.

    Parameters
    ----------
    gates : ndarray of shape (k, b, M), optional
        Other gates than the 0/1 gates of all P hyperplanes.
    """

    def __init__(self, problem: Problem, name: str, steps: int, gates: NDArray[np.float32] | None = None) -> None:
        super().__init__(problem, name, steps)
        if gates is not None:
            self.gates = torch.from_numpy(gates)
        (_, b, M), q = self.gates.shape, problem.sizes.q
        # Classes outside, gates inside: the elementwise work then runs along contiguous gates.
        self._theta = torch.zeros(problem.sizes.d, q * M)
        self._update = torch.empty_like(self._theta)
        self._products = torch.empty(b, q * M)
        self._gated = torch.empty(b, q, M)
        self._everyone = torch.arange(b)

    @torch.inference_mode()
    def step(self, j: int) -> None:
        """See `TorchStep.step`."""
        problem, x, gates = self.problem, self.rows[j], self.gates[j][:, None, :]
        torch.mm(x, self._theta, out=self._products)
        torch.mul(self._products.view_as(self._gated), gates, out=self._gated)
        residual = torch.softmax(self._gated.sum(dim=2), dim=1)
        residual[self._everyone, self.labels[j]] -= 1
        torch.mul(gates, residual[:, :, None], out=self._gated)
        self._update.normal_(0, problem.noise_std)
        self._update.addmm_(x.T, self._gated.flatten(1), alpha=1 / problem.sizes.b)
        self._theta.add_(self._update, alpha=-problem.learning_rate)

    def weights(self) -> NDArray[np.float32]:
        """See `TorchStep.weights`; (M, d, q) for other gates."""
        theta = self._theta.view(self.problem.sizes.d, self.problem.sizes.q, -1)
        found: NDArray[np.float32] = theta.permute(2, 0, 1).numpy()
        return found


def make_peers(problem: Problem, threads: int) -> tuple[list[Contender], list[str]]:
    """Every peer that fits in memory, and a note on each one that does not."""
    torch.set_num_threads(threads)
    sizes = problem.sizes
    d, P, q, b = sizes.d, sizes.P, sizes.q, sizes.b
    peers: list[Contender] = [
        OpacusStep(problem, "opacus_ghost_one_layer", OneLayer(d, P, q, b), ghost=True, steps=3),
        OpacusStep(problem, "opacus_ghost_prebuilt", PrebuiltLayer(_prebuilt(problem), q), ghost=True, steps=3),
        OpacusStep(problem, "opacus_ghost_many_layers", ManyLayers(d, P, q), ghost=True, steps=1),
        ClosedForm(problem, "torch_closed_form", steps=20),
        ClosedForm(problem, "torch_closed_form_antithetic", 20, problem.patterns * problem.features.levels),
    ]
    # Opacus copies the per-sample gradients once while it makes them.
    needed = 3 * 4 * b * d * P * q
    if psutil.virtual_memory().available < needed:
        return peers, [f"opacus_hooks left out: needs about {needed / 1e9:.1f} GB of free memory"]
    for name, model in (("one_layer", OneLayer(d, P, q, b)), ("many_layers", ManyLayers(d, P, q))):
        peers.append(OpacusStep(problem, f"opacus_hooks_{name}", model, ghost=False, steps=1))
    return peers, []


def _prebuilt(problem: Problem, batches: int = 3) -> Tensor:
    """(batches, b, P, d) features of the first batches."""
    rows, gates = torch.from_numpy(problem.rows[:batches]), torch.from_numpy(problem.open_gates[:batches])
    return gates[:, :, :, None] * rows[:, :, None, :]
