"""The benchmark's own code at toy size; where PyTorch and Opacus are installed, that they solve the same problem."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.kernel import Limit, PackageStep, limit_epoch
from benchmarks.problem import QUICK, Sizes, make_problem
from benchmarks.step import COUNTED, compare, main, race, table

from noisycgd.training.noise import standard_normal

TOY = Sizes(n=120, d=12, P=6, q=3, b=40)


def test_json_has_every_promised_key_and_the_fit_is_measured_without_its_parent(tmp_path, capsys):
    ballast = np.ones(10**8)  # 800 MB in this process, which the fit's own process must not be charged for
    out = tmp_path / "results" / "step.json"
    assert main(["--quick", "--json", "--rounds=2", "--without-peers", "--out", str(out)]) == 0
    assert ballast.nbytes == 8e8
    printed = capsys.readouterr().out
    result = json.loads(printed)
    assert out.read_text() == printed
    assert [p.name for p in out.parent.iterdir()] == ["step.json"]
    assert result["sizes"] == dataclasses.asdict(QUICK)
    assert 0 < result["ratio_to_limit"] < 1e3
    assert result["speedup"] == dict.fromkeys(COUNTED)
    assert result["notes"][0] == "peers left out on request"
    assert result["data_mb"] == pytest.approx(4e-6 * QUICK.n * QUICK.d)
    if sys.platform == "linux":
        assert 30 < result["peak_rss_mb"] < 700
    assert result["compile_s"] > 0
    assert result["allocator_keeps_memory"] is False
    assert set(result["step_ms"]) == {"noisycgd", "limit"}
    for ms in result["step_ms"].values():
        assert 0 < ms["q1"] <= ms["median"] <= ms["q3"]
    assert {"cpu", "cores", "system"} <= set(result["machine"])
    assert "node" not in json.dumps(result["machine"])
    assert "ratio to the limit" in table(result)


def test_at_least_one_round_is_needed(capsys):
    with pytest.raises(SystemExit):
        main(["--rounds", "0"])
    assert "--rounds must be at least 1; got 0." in capsys.readouterr().err


class Recorder:
    def __init__(self, name, log):
        self.name, self.steps, self.log = name, 2, log

    def rouse(self):
        pass

    def run(self):
        self.log.append(self.name)


def test_rounds_start_with_another_contender_and_give_each_one_turn():
    log: list[str] = []
    times = race([Recorder(name, log) for name in "abc"], rounds=3, pause_s=0)
    assert log[:9] == list("aaabbbccc")
    assert log[9:] == list("abcbcacab")
    assert {name: len(t) for name, t in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_ratios_pair_turns_of_one_round_and_the_fastest_form_of_a_peer_counts():
    times = {
        "noisycgd": [1.0, 2.0, 4.0],  # the machine slows down for everyone
        "limit": [0.5, 1.0, 2.0],
        "opacus_ghost_one_layer": [30.0, 60.0, 120.0],
        "opacus_ghost_many_layers": [20.0, 40.0, 80.0],
    }
    ratios = compare(times)
    assert ratios["ratio_to_limit"] == {"median": 2.0, "q1": 2.0, "q3": 2.0}
    assert ratios["opacus_ghost"]["median"] == 20.0
    assert "opacus_hooks" not in ratios


def test_limit_does_both_products_and_the_noise_of_every_batch():
    problem = make_problem(TOY)
    limit = Limit(problem)
    shape = limit.weights.shape
    assert shape[1] == TOY.d
    key = jax.random.key(3, impl="threefry2x32")
    rows, position = jnp.asarray(problem.rows), jnp.arange(TOY.k, dtype=jnp.int32)
    rate, std = jnp.float32(0.1), jnp.float32(0.5)
    start = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected = start.astype(np.float64)
    for x, place in zip(problem.rows, range(TOY.k), strict=True):
        noise = np.asarray(standard_normal(jax.random.fold_in(key, place), shape))
        expected = expected - 0.1 * ((x @ expected.T).T @ x / TOY.b + 0.5 * noise)
    compiled = limit_epoch.lower(jnp.asarray(start), rows, position, rate, std, key).compile()
    found = compiled(jnp.asarray(start), rows, position, rate, std, key)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # The loop's body is counted once: two products of 2 b d M q operations each, not fewer.
    assert compiled.cost_analysis()["flops"] >= 4 * TOY.b * limit.weights.size


def _pairs(weights, P, q):
    """(d, M q) weights of the package -> (P, d, q) weights of the hyperplanes u_i, then -u_i (THEORY section 3)."""
    theta = np.asarray(weights).reshape(len(weights), -1, q).transpose(1, 0, 2)
    shared, signed = theta[:1] / np.sqrt(P), theta[1:] / np.sqrt(2)
    return np.concatenate([shared + signed, shared - signed])


def _peers(problem):
    pytest.importorskip("opacus")
    peers = pytest.importorskip("benchmarks.peers")
    made, notes = peers.make_peers(problem, threads=1)
    assert not notes
    return {peer.name: peer for peer in made}


def test_every_peer_takes_the_same_steps_as_the_package():
    problem = make_problem(TOY, noise_multiplier=0.0)
    peers = _peers(problem)
    ours = PackageStep(problem)
    ours.run()
    expected = _pairs(ours.weights, TOY.P, TOY.q)
    assert np.abs(expected).max() > 1e-2
    for name, peer in peers.items():
        for j in range(TOY.k):
            peer.step(j)
        found = peer.weights()
        if name == "torch_closed_form_antithetic":
            found = _pairs(found.transpose(1, 0, 2).reshape(TOY.d, -1), TOY.P, TOY.q)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)


def test_every_peer_adds_the_noise_of_the_package():
    # std of N numbers is off by 1 / sqrt(2 N) = 5 % (N = 216 here); 5 sigma, fixed seed. Half the noise is refused.
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    noisy, plain = (_peers(make_problem(TOY, noise_multiplier=nm)) for nm in (5.0, 0.0))
    problem = make_problem(TOY, noise_multiplier=5.0)
    for name, peer in noisy.items():
        peer.step(0)
        plain[name].step(0)
        noise = (peer.weights() - plain[name].weights()) / problem.learning_rate
        assert noise.std() == pytest.approx(problem.noise_std, rel=0.25), name
        assert noise.std() != pytest.approx(problem.noise_std / 2, rel=0.25), name


def test_opacus_clips():
    problem = make_problem(TOY, noise_multiplier=0.0)
    bound = problem.clipping_norm / 100
    free, clipped = _peers(problem), _peers(dataclasses.replace(problem, clipping_norm=bound))
    opacus = [name for name in free if name.startswith("opacus")]
    assert len(opacus) == 5
    for name in opacus:
        free[name].step(0)
        clipped[name].step(0)
        step, clipped_step = (np.linalg.norm(p[name].weights()) / problem.learning_rate for p in (free, clipped))
        assert 0 < clipped_step <= bound * 1.0001 < step, name
