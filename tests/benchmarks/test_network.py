"""The benchmark's own code at toy size; where PyTorch and Opacus are installed, that they solve the same problem."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from benchmarks.network import PEERS, QUICK, NetworkSizes, main, make_network_problem, make_peers, make_steps, table

TOY = NetworkSizes(n=120, d=12, W=9, q=3, b=40)


def our_steps(problem):
    return {step.name: step for step in make_steps(problem)}


def run(step):
    step.run()
    return jax.tree.map(np.asarray, step.parameters)


def opacus_steps(problem):
    pytest.importorskip("torch")
    pytest.importorskip("opacus")
    peers, notes = make_peers(problem, threads=1)
    assert not notes
    return {peer.name: peer for peer in peers}


def one_pass(peer):
    for j in range(TOY.k):
        peer.step(j)
    return [parameter.detach().numpy() for parameter in peer.model.parameters()]


def distance(found, expected):
    return np.sqrt(sum(np.sum((np.asarray(f) - e) ** 2) for f, e in zip(found, expected, strict=True)))


def test_json_has_every_promised_key(tmp_path, capsys):
    out = tmp_path / "network.json"
    assert main(["--quick", "--json", "--rounds=2", "--without-peers", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert out.read_text() == printed
    result = json.loads(printed)
    assert result["sizes"] == dataclasses.asdict(QUICK)
    assert result["speedup"] == dict.fromkeys(PEERS)
    assert 0 < result["ratio_to_non_private"] < 1e3
    assert 0 < result["ratio_of_poisson"] < 1e3
    assert set(result["step_ms"]) == {"noisycgd", "noisycgd_poisson", "non_private"}
    for ms in result["step_ms"].values():
        assert 0 < ms["q1"] <= ms["median"] <= ms["q3"]
    assert result["allocator_keeps_memory"] is False
    assert {"machine", "versions", "notes", "quartiles_of_ratios"} <= set(result)
    assert "ratio to non private" in table(result)


def test_peers_are_counted_where_they_are_installed(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("opacus")
    assert main(["--quick", "--json", "--rounds=1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["speedup"]) == {"opacus_hooks", "opacus_ghost"}
    assert all(value > 0 for value in result["speedup"].values())


def test_sizes_are_whole_batches():
    with pytest.raises(ValueError, match="n must be a multiple of b; got n=100, b=30"):
        NetworkSizes(n=100, b=30)


def test_without_clipping_and_noise_the_private_step_is_the_plain_one():
    free = our_steps(make_network_problem(TOY, noise_multiplier=0.0, clipping_norm=1e3))
    private, plain = run(free["noisycgd"]), run(free["non_private"])
    assert distance(private, make_network_problem(TOY).start) > 0.1
    assert distance(private, plain) < 1e-5
    # Negative control: clipping is seen.
    clipped = our_steps(make_network_problem(TOY, noise_multiplier=0.0, clipping_norm=0.1))["noisycgd"]
    assert distance(run(clipped), plain) > 0.05


def test_a_poisson_batch_of_all_records_is_the_fixed_one():
    problem = make_network_problem(dataclasses.replace(TOY, b=TOY.n), noise_multiplier=0.0)
    steps = our_steps(problem)
    assert distance(run(steps["noisycgd"]), run(steps["noisycgd_poisson"])) < 1e-6


@pytest.mark.parametrize("clipping_norm", [0.1, 0.8, 1e3])
def test_opacus_takes_the_same_steps(clipping_norm):
    problem = make_network_problem(TOY, noise_multiplier=0.0, clipping_norm=clipping_norm)
    peers = opacus_steps(problem)
    assert set(peers) == set(PEERS)
    expected = run(our_steps(problem)["noisycgd"])
    moved = distance(expected, problem.start)
    assert moved > 0.01
    for name, peer in peers.items():
        assert distance(one_pass(peer), expected) < 2e-4 * moved, name


def test_every_contender_adds_the_same_noise():
    # std of N numbers is off by 1 / sqrt(2 N) = 6 % (N = 147 here); 5 sigma, fixed seed. Half the noise is refused.
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    noisy, calm = (make_network_problem(TOY, nm, clipping_norm=1e-3) for nm in (5e3, 0.0))
    expected = noisy.learning_rate * noisy.noise_std * np.sqrt(TOY.k)
    found = {
        name: (run(our_steps(noisy)[name]), run(our_steps(calm)[name])) for name in ("noisycgd", "noisycgd_poisson")
    }
    peers, still = opacus_steps(noisy), opacus_steps(calm)
    found |= {name: (one_pass(peers[name]), one_pass(still[name])) for name in PEERS}
    for name, (moved, unmoved) in found.items():
        size = sum(leaf.size for leaf in noisy.start)
        std = distance(moved, unmoved) / np.sqrt(size)
        assert std == pytest.approx(expected, rel=0.3), name
        assert std != pytest.approx(expected / 2, rel=0.3), name
