import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisycgd._validation import ParameterError
from noisycgd.exact.datafits import datafit

LOSSES = ["squared", "logistic"]
Y = np.array([1.0, -1.0, -1.0, 1.0])
outputs = st.lists(st.floats(-30, 30), min_size=4, max_size=4).map(np.array)


def slope(loss, f):
    """Twin: central differences of the value, one output at a time."""
    fit, h = datafit(loss), 1e-5
    return np.array([(fit.value(f + h * e, Y) - fit.value(f - h * e, Y)) / (2 * h) for e in np.eye(4)])


@pytest.mark.parametrize("loss", LOSSES)
@given(f=outputs, g=outputs)
def test_conjugate_satisfies_fenchels_inequality_and_attains_it(loss, f, g):
    fit = datafit(loss)
    dual = fit.nearest_dual(slope(loss, f), Y)
    assert fit.conjugate(dual, Y) + fit.value(g, Y) >= dual @ g - 1e-9
    assert fit.conjugate(dual, Y) + fit.value(f, Y) == pytest.approx(dual @ f, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@given(dual=outputs, share=st.floats(0, 1))
def test_conjugate_is_finite_from_the_nearest_dual_point_down_to_zero(loss, dual, share):
    fit = datafit(loss)
    nearest = fit.nearest_dual(dual, Y)
    assert np.isfinite(fit.conjugate(share * nearest, Y))
    np.testing.assert_array_equal(fit.nearest_dual(nearest, Y), nearest)
    assert np.linalg.norm(dual - nearest) <= np.linalg.norm(dual) + 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_value_is_that_of_its_expression_and_does_not_overflow(loss):
    cvxpy = pytest.importorskip("cvxpy")
    fit = datafit(loss)
    f = np.array([0.3, -2.0, 1.5, 40.0])
    assert fit.value(f, Y) == pytest.approx(fit.expression(cvxpy, cvxpy.Constant(f), Y).value, rel=1e-12)
    assert np.isfinite(fit.value(1e4 * Y, Y))
    assert np.isfinite(fit.value(-1e4 * Y, Y))


@pytest.mark.parametrize("loss", LOSSES)
def test_scale_is_one_that_the_loss_has(loss):
    fit = datafit(loss)
    targets = 1e3 * np.array([1.0, -2.0, 0.5, 0.0]) if loss == "squared" else Y
    b, f = fit.scale(targets), np.array([0.1, 0.2, -0.3, 0.4])
    assert fit.value(b * f, targets) == pytest.approx(b**2 * fit.value(f, targets / b), rel=1e-12)
    assert fit.scale(0 * targets) == 1.0


def test_targets():
    datafit("squared").check(np.array([0.3]))
    datafit("logistic").check(Y)
    with pytest.raises(ParameterError, match="y must be -1 or 1 everywhere for the logistic loss"):
        datafit("logistic").check(np.array([1.0, 0.5]))
    with pytest.raises(ParameterError, match="The exact programs have one output"):
        datafit("softmax")
