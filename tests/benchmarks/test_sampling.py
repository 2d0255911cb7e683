"""The benchmark's own code at toy size, and its shares beside a simulation."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.problem import QUICK, Sizes, make_problem
from benchmarks.sampling import main, make_contenders, slot_shares, step_arguments, table, truncated_epoch

from noisycgd.contrasts import contrast_basis, to_logit_weights
from noisycgd.losses import MarginSoftmax
from noisycgd.training.models import GatedRecords
from noisycgd.training.poisson import State, default_chunk, run_poisson_epoch

TOY = Sizes(n=120, d=12, P=6, q=3, b=40)


def test_json_has_every_promised_key(tmp_path, capsys):
    out = tmp_path / "sampling.json"
    assert main(["--quick", "--json", "--rounds=1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert out.read_text() == printed
    result = json.loads(printed)
    assert result["sizes"] == dataclasses.asdict(QUICK)
    rows = result["samplers"]
    assert {row["sampler"] for row in rows} == {"fixed", "exact", "truncated"}
    default = [row for row in rows if row["is_default"]]
    assert [row["chunk_size"] for row in default] == [result["default_chunk"]]
    assert default[0]["ratio_to_fixed"]["median"] == result["ratio_to_fixed"]
    for row in rows:
        assert row["records_per_s"]["median"] > 0
        assert (row["dropped"] > 0) == (row["sampler"] == "truncated")
        assert 0 <= row["wasted"] < 1
    assert rows[0]["ratio_to_fixed"]["median"] == 1
    assert "covers" not in table(result)
    assert "does not cover" in table(result)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("chunk_size", [7, 40, 50, 120])
def test_shares_are_those_of_a_simulation(chunk_size, truncated):
    steps = 100_000
    B = np.random.default_rng(3).binomial(TOY.n, TOY.b / TOY.n, steps)
    chunks = np.ones(steps) if truncated else np.ceil(B / chunk_size)
    used = np.minimum(B, chunks * chunk_size)
    found = slot_shares(TOY, chunk_size, truncated=truncated)
    # Means over 10^5 steps are off by at most 0.2 % (5 sigma: 0.8 %).
    assert found["stragglers"] == pytest.approx((chunk_size < B).mean(), abs=0.008)
    assert found["wasted"] == pytest.approx(1 - used.sum() / (chunks.sum() * chunk_size), abs=0.008)
    assert found["dropped"] == pytest.approx(1 - used.sum() / B.sum(), abs=0.008)


def epochs(chunk_size, learning_rate=0.3):
    """Weights after an epoch of exact and of truncated batches with the same key, and the same records."""
    problem = make_problem(TOY)
    records, model, settings, _ = step_arguments(problem)
    rates, key = jnp.full(TOY.k, learning_rate, jnp.float32), jax.random.key(4)
    options = {"sampling_rate": TOY.b / TOY.n, "chunk_size": chunk_size}
    assert isinstance(records, GatedRecords)
    shape = TOY.n_gates * (TOY.q - 1), TOY.d
    exact = run_poisson_epoch(State(jnp.zeros(shape), None), records, model, settings, rates, key, **options)
    cut = truncated_epoch(jnp.zeros(shape), records, model, settings, rates, key, **options)
    return np.asarray(exact.parameters), np.asarray(cut)


def test_truncated_batches_differ_by_the_records_they_drop():
    exact, cut = epochs(chunk_size=TOY.n)
    np.testing.assert_allclose(cut, exact, atol=1e-5)
    exact, cut = epochs(chunk_size=20)
    assert np.abs(cut - exact).max() > 1e-2


def test_every_contender_takes_the_same_step_on_all_records():
    sizes = Sizes(n=40, d=12, P=6, q=3, b=40)
    fixed, *others = make_contenders(make_problem(sizes, noise_multiplier=0.0))
    assert {c.name for c in others} == {f"exact_{c}" for c in (5, 10, 20, 40)} | {"truncated_40"}
    assert default_chunk(sizes.n, sizes.b) == 40
    fixed.run()
    basis = contrast_basis(MarginSoftmax(), sizes.q)
    assert np.abs(fixed.weights).max() > 0.01
    for contender in others:
        contender.run()
        found = to_logit_weights(np.asarray(contender.weights), basis)
        np.testing.assert_allclose(found, fixed.weights, atol=1e-5, err_msg=contender.name)
