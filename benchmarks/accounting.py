"""What accounting costs, beside dp-accounting called directly: `python -m benchmarks.accounting [--json]`."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation

from noisycgd.accounting import (
    calibrate_poisson,
    constant_multipliers,
    hidden_state_profile,
    multipliers,
    poisson_profile,
)
from noisycgd.comparison import epsilon_against_epochs
from noisycgd.types import EpsilonDelta, Order

K, E, N, B, DELTA = 60, 400, 60_000, 1000, 1e-5


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Median time of a call after one that warms up imports and caches."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def direct() -> float:
    """The same DP-SGD epsilon by dp-accounting alone, at its default interval."""
    step = pld.from_gaussian_mechanism(15.0, sampling_prob=B / N, neighboring_relation=NeighboringRelation.REPLACE_ONE)
    return float(step.self_compose(K * E).get_epsilon_for_delta(DELTA))


def measure() -> dict[str, float]:
    """Seconds of each operation."""
    rates = np.linspace(1, 0.02, K * E)
    ones = np.ones(K * E)

    def closed(order: Order, epochs: int) -> float:
        return hidden_state_profile(constant_multipliers(K, epochs, 5.4e-5), 15.0, order).epsilon(DELTA)

    def picture() -> object:
        return epsilon_against_epochs(
            n_records=N,
            batch_size=B,
            noise_multiplier=15,
            delta=DELTA,
            epochs=E,
            mechanisms=["noisycgd-given", "dpsgd"],
            eta_l2=[0.0, 2e-5, 5e-5, 1e-4, 2e-4],
        )

    return {
        "closed_form_epsilon": seconds(lambda: closed(Order.GIVEN, E), 50),
        "closed_form_epsilon_permuted_million_epochs": seconds(lambda: closed(Order.PERMUTED, 10**6), 50),
        "plan_24000_steps_all_positions": seconds(lambda: multipliers(rates, ones, K), 5),
        "dpsgd_epsilon_24000_steps": seconds(lambda: poisson_profile(N, B, 15.0, epochs=E).epsilon(DELTA), 3),
        "dpsgd_epsilon_24000_steps_dp_accounting": seconds(direct, 3),
        "dpsgd_calibration": seconds(lambda: calibrate_poisson(N, B, EpsilonDelta(1.33, DELTA), epochs=E), 1),
        "picture_6_curves_400_epochs": seconds(picture, 1),
    }


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<48}{1000 * value:>12.3f} ms")


if __name__ == "__main__":
    main()
