import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from noisycgd.accounting.reach import delta_of_reach


def lost(shifts, reach):
    """Probability, exactly, that of draws below `reach` one has no partner: those of the last `shift` before it."""
    kept = 1.0
    for shift in shifts:
        inside = ndtr(reach) - ndtr(-reach)
        kept *= 1 - (ndtr(reach) - ndtr(reach - shift)) / inside
    return 1 - kept


@pytest.mark.parametrize("reach", [3.0, 4.0, 5.0])
@pytest.mark.parametrize("n", [1, 5, 400])
@pytest.mark.parametrize("shift", [0.05, 0.3, 1.0, 2.0])
def test_bounds_what_is_lost_however_a_shift_is_spread(reach, n, shift):
    rng = np.random.default_rng(0)
    ways = [np.eye(n)[0], np.ones(n), *(rng.standard_normal((20, n)) ** p for p in (1, 3, 7))]
    for way in np.vstack(ways):
        shifts = shift * np.abs(way) / np.linalg.norm(way)
        # Truncation raises a density by at most 0.3 % here.
        assert lost(shifts, reach) <= 1.003 * delta_of_reach(shift, reach, n)


def test_one_draw_loses_about_what_is_bounded():
    assert delta_of_reach(2.0, 9.0, 1) == pytest.approx(stats.norm.sf(7.0), rel=0.01)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("mu", [0.3, 1.0, 1.9])
def test_truncated_noise_has_at_most_that_much_more_delta(epsilon, mu):
    # The divergence of two truncated normals by the sum over a fine grid, beside that of whole ones.
    reach = 3.0
    x = np.linspace(-reach - mu, reach + mu, 400_001)
    inside = ndtr(reach) - ndtr(-reach)
    p = np.where(np.abs(x - mu) <= reach, stats.norm.pdf(x - mu), 0) / inside
    q = np.where(np.abs(x) <= reach, stats.norm.pdf(x), 0) / inside
    truncated = np.maximum(p - np.exp(epsilon) * q, 0).sum() * (x[1] - x[0])
    whole = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    assert truncated <= (whole + delta_of_reach(mu, reach, 1)) / inside + 1e-5
    if epsilon == 5.0:
        # Negative control: without it the bound would be broken.
        assert truncated > 1.5 * whole / inside


def test_grows_with_the_shift_and_the_draws_and_falls_with_the_reach():
    shifts = np.linspace(0, 12, 500)
    found = np.array([[delta_of_reach(s, r, n) for s in shifts] for r in (7.0, 9.155) for n in (1, 1e6, 1e12)])
    assert (np.diff(found, axis=1) >= 0).all()
    assert (found[:, 0] == 0).all()
    assert (found[:, -1] == 1).all()
    assert (found[:3] >= found[3:]).all()
    assert (np.diff(found[:3], axis=0) >= 0).all()
