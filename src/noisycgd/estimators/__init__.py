"""scikit-learn estimators: they store parameters, check them in `fit`, and stay thin."""

from noisycgd.estimators.classifiers import ConvexReLUClassifier, LinearClassifier
from noisycgd.estimators.network import ReLUNetworkClassifier
from noisycgd.estimators.persistence import load_model, save_model
from noisycgd.estimators.regressor import ConvexReLURegressor
from noisycgd.estimators.ssp import SSPClassifier, SSPRegressor

__all__ = [
    "ConvexReLUClassifier",
    "ConvexReLURegressor",
    "LinearClassifier",
    "ReLUNetworkClassifier",
    "SSPClassifier",
    "SSPRegressor",
    "load_model",
    "save_model",
]
