import inspect
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import noisycgd
from noisycgd import ConvexReLUClassifier, ConvexReLURegressor, LinearClassifier
from noisycgd.data.datasets import DATASETS

ESTIMATORS = [ConvexReLUClassifier, LinearClassifier, ConvexReLURegressor]
HEAVY = ("jax", "sklearn", "pyarrow", "matplotlib", "noisycgd.estimators", "noisycgd.data.datasets")


def loaded_after(code: str) -> set[str]:
    code += f"\nimport json, sys\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


class TestNames:
    def test_none_is_loaded_before_it_is_used(self):
        assert loaded_after("import noisycgd; dir(noisycgd); noisycgd.__version__") == set()

    def test_the_vocabulary_needs_no_training_library(self):
        assert loaded_after("from noisycgd import Guarantee; Guarantee.from_dict") == set()

    def test_an_estimator_is_loaded_on_use_and_no_named_data_set_with_it(self):
        loaded = loaded_after("import noisycgd; noisycgd.LinearClassifier")
        assert {"jax", "sklearn", "noisycgd.estimators"} <= loaded
        assert "noisycgd.data.datasets" not in loaded

    def test_all_of_them_exist(self):
        for name in noisycgd.__all__:
            assert getattr(noisycgd, name) is not None
        assert dir(noisycgd) == sorted(noisycgd.__all__)

    def test_a_wrong_name(self):
        with pytest.raises(AttributeError, match=r"module 'noisycgd' has no attribute 'train'"):
            noisycgd.train  # noqa: B018

    def test_star_import(self):
        assert "jax" in loaded_after("from noisycgd import *; LinearClassifier")


@pytest.mark.parametrize("cls", ESTIMATORS)
class TestDefaults:
    def test_are_constants_that_name_no_data_set(self, cls):
        for parameter in inspect.signature(cls).parameters.values():
            assert isinstance(parameter.default, bool | int | float | str | None), parameter
            assert parameter.default not in DATASETS

    def test_are_those_that_the_docstring_states(self, cls):
        signature = inspect.signature(cls).parameters
        doc = inspect.getdoc(cls)
        section = doc[doc.index("Parameters\n") : doc.index("Attributes\n")]
        stated = {}
        for names, kinds in re.findall(r"^(\w[\w, ]*) : (.*)$", section, re.MULTILINE):
            values = re.search(r"default (.*)$", kinds).group(1).split(" and ")
            for i, name in enumerate(names.split(", ")):
                stated[name] = values[i] if len(values) > 1 else values[0]
        assert stated.keys() == signature.keys()
        for name, value in stated.items():
            assert repr(signature[name].default).replace("'", '"') in (value, repr(eval(value)).replace("'", '"')), name

    def test_of_a_plan_follow_from_the_number_of_records_alone(self, cls):
        rng = np.random.default_rng(0)
        one = rng.standard_normal((30, 2)), np.arange(30) % 2
        other = 1e6 * rng.exponential(size=(30, 2)), np.arange(30) // 15
        first, second = (
            cls(epochs=1, n_hyperplanes=2) if "n_hyperplanes" in inspect.signature(cls).parameters else cls(epochs=1)
            for _ in range(2)
        )
        plans = [first.fit(*one).plan_, second.fit(*other).plan_]
        for name in ("batch_size", "l2", "noise_multiplier", "logit_noise", "epsilon", "feature_norm"):
            assert getattr(plans[0], name) == getattr(plans[1], name)
        np.testing.assert_array_equal(plans[0].learning_rates, plans[1].learning_rates)
