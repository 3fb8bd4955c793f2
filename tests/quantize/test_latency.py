"""Timing in rounds: the interval holds the true ratio as often as it says, and slower models come out slower."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.quantize.latency import (
    BUDGET,
    OPTIMIZED,
    Speedup,
    Times,
    measure_latency,
    speedup,
)

TRUE = 2.5


def simulated(random: np.random.Generator, rounds: int, noise: str) -> Times:
    """Rounds of two models, the first TRUE times as slow, on a machine that slows down and stalls."""
    drift = np.exp(0.3 * np.sin(np.linspace(0, 5, rounds) + random.uniform(0, 6)))
    times = []
    for share in (TRUE, 1.0):
        spread = np.exp(random.normal(0, 0.1, rounds))
        if noise == "stalls":
            spread *= np.where(random.random(rounds) < 0.15, random.pareto(1.5, rounds) + 1, 1)
        times.append(tuple(0.01 * share * drift * spread))
    return Times(times[0], times[1], "simulated")


@pytest.mark.parametrize("noise", ["calm", "stalls"])
@pytest.mark.parametrize("rounds", [4, 7, 30, 149])
def test_interval_holds_the_true_ratio_as_often_as_it_says(rounds: int, noise: str) -> None:
    random = np.random.default_rng([rounds, len(noise)])
    trials = 1500
    found = [speedup(simulated(random, rounds, noise)) for _ in range(trials)]
    covered = sum(each.low <= TRUE <= each.high for each in found) / trials
    said = found[0].confidence
    # Three standard deviations of a share of that many trials.
    assert abs(covered - said) < 3 * math.sqrt(said * (1 - said) / trials)
    assert said >= 0.95 or rounds < 6


def test_interval_is_as_narrow_as_its_confidence_allows() -> None:
    """The ranks are those of the tables for the sign test (Conover, Practical Nonparametric Statistics)."""
    for rounds, rank, confidence in ((6, 1, 0.9688), (10, 2, 0.9785), (20, 6, 0.9586), (30, 10, 0.9572)):
        times = Times(tuple(float(n) for n in range(1, rounds + 1)), (1.0,) * rounds, "")
        found = speedup(times)
        assert (found.low, found.high) == (rank, rounds + 1 - rank)
        assert found.confidence == pytest.approx(confidence, abs=5e-4)


def test_one_round_has_no_interval() -> None:
    assert speedup(Times((0.5,), (0.25,), "")) == Speedup(2.0, 2.0, 2.0, 0.0)


def products(path: Path, count: int, size: int = 256) -> Path:
    """A model of `count` matrix products one after the other."""
    weight = numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"]) for i in range(count)]
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size, size])
        for name in ("x0", f"x{count}")
    ]
    graph = helper.make_graph(nodes, "products", [ports[0]], [ports[1]], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_model_of_four_times_the_work_takes_longer(tmp_path: Path) -> None:
    before, after = products(tmp_path / "few.onnx", 2), products(tmp_path / "many.onnx", 8)
    times = measure_latency(before, after, {"x0": np.ones((256, 256), np.float32)}, tmp_path)
    assert len(times.before) == len(times.after) > 1
    # The shortest times, and the low end of the interval: other programs slow single runs down, and speed none up.
    assert speedup(times).low < 0.7
    assert min(times.before) < 0.7 * min(times.after)
    assert [node.op_type for node in onnx.load(tmp_path / OPTIMIZED).graph.node].count("MatMul") == 8


def test_a_slow_model_has_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxport.quantize import latency

    monkeypatch.setattr(latency, "BUDGET", 0.0)
    path = products(tmp_path / "slow.onnx", 1)
    times = measure_latency(path, path, {"x0": np.ones((256, 256), np.float32)}, tmp_path)
    assert (len(times.before), len(times.after)) == (1, 1)
    assert BUDGET <= 2
