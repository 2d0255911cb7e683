"""scikit-learn estimators: they store parameters, check them in `fit`, and stay thin."""

from noisycgd.estimators.classifiers import ConvexReLUClassifier, LinearClassifier
from noisycgd.estimators.network import ReLUNetworkClassifier
from noisycgd.estimators.persistence import load_model, save_model
from noisycgd.estimators.regressor import ConvexReLURegressor

__all__ = [
    "ConvexReLUClassifier",
    "ConvexReLURegressor",
    "LinearClassifier",
    "ReLUNetworkClassifier",
    "load_model",
    "save_model",
]
