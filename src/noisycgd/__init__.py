"""Differentially private training when only the final model is released.

Names are loaded on first use, so that the accountant and the command line start without JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisycgd.estimators import (
        ConvexReLUClassifier,
        ConvexReLURegressor,
        LinearClassifier,
        ReLUNetworkClassifier,
        SSPClassifier,
        SSPRegressor,
        load_model,
    )
    from noisycgd.guarantee import Guarantee
    from noisycgd.tuning import PrivateSelection

__version__ = "0.1.0"

_HOMES = {
    "ConvexReLUClassifier": "noisycgd.estimators",
    "ConvexReLURegressor": "noisycgd.estimators",
    "LinearClassifier": "noisycgd.estimators",
    "ReLUNetworkClassifier": "noisycgd.estimators",
    "SSPClassifier": "noisycgd.estimators",
    "SSPRegressor": "noisycgd.estimators",
    "load_model": "noisycgd.estimators",
    "PrivateSelection": "noisycgd.tuning",
    "Guarantee": "noisycgd.guarantee",
}

__all__ = [
    "ConvexReLUClassifier",
    "ConvexReLURegressor",
    "Guarantee",
    "LinearClassifier",
    "PrivateSelection",
    "ReLUNetworkClassifier",
    "SSPClassifier",
    "SSPRegressor",
    "__version__",
    "load_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
