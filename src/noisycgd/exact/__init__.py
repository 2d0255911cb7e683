"""Exact training of small two-layer ReLU networks as convex programs; the private models are their relaxation.

`enumerate_arrangements` lists activation patterns exactly and `sample_arrangements` draws some; `solve_relu_program`
and `solve_gated_program` solve the program with and without sign constraints and certify the answer;
`recover_network` gives the network that no training can beat. Nothing here is private: see docs/exact.md.
"""

from noisycgd.exact.arrangements import cover_count, enumerate_arrangements, sample_arrangements
from noisycgd.exact.networks import ReLUNetwork, network_objective, recover_network
from noisycgd.exact.picture import exact_fit_figure
from noisycgd.exact.programs import (
    ConvexSolution,
    GatedSolution,
    MissingExtraError,
    ReLUSolution,
    SolverError,
    solve_gated_program,
    solve_relu_program,
)

__all__ = [
    "ConvexSolution",
    "GatedSolution",
    "MissingExtraError",
    "ReLUNetwork",
    "ReLUSolution",
    "SolverError",
    "cover_count",
    "enumerate_arrangements",
    "exact_fit_figure",
    "network_objective",
    "recover_network",
    "sample_arrangements",
    "solve_gated_program",
    "solve_relu_program",
]
