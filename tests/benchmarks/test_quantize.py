"""The quantization benchmark's own arithmetic, and a peer in an environment of its own."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks.figures import Interval
from benchmarks.quantizing import page, scoring, speed
from benchmarks.quantizing.cost import Cost
from benchmarks.quantizing.figures import OURS, Figures
from benchmarks.quantizing.peers import Peer, prepared
from benchmarks.quantizing.scoring import Score

PYTHON = Path(sys.executable)


def scaled(path: Path, factor: float) -> Path:
    """A model y = factor * x of [1, 4]."""
    of = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "scaled",
        [of("x", onnx.TensorProto.FLOAT, [1, 4])],
        [of("y", onnx.TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.float32(factor), "factor")],
    )
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def convolution(path: Path) -> Path:
    """A convolution of random filters and Relu, in opset 11."""
    random, of = np.random.RandomState(0), helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        "convolution",
        [of("x", onnx.TensorProto.FLOAT, [1, 3, 16, 16])],
        [of("y", onnx.TensorProto.FLOAT, [1, 8, 16, 16])],
        [
            numpy_helper.from_array(random.standard_normal((8, 3, 3, 3)).astype(np.float32), "w"),
            numpy_helper.from_array(random.standard_normal(8).astype(np.float32), "b"),
        ],
    )
    onnx.save(helper.make_model(graph, ir_version=7, opset_imports=[helper.make_opsetid("", 11)]), path)
    return path


def written(folder: Path, shape: tuple[int, ...], count: int) -> list[Path]:
    folder.mkdir()
    random = np.random.RandomState(1)
    for number in range(count):
        np.savez(folder / f"{number}.npz", x=random.standard_normal(shape).astype(np.float32))
    return sorted(folder.iterdir())


def test_an_error_of_a_hundredth_is_40_dB(tmp_path: Path) -> None:
    samples = written(tmp_path / "samples", (1, 4), 3)
    reference = scoring.answers(scaled(tmp_path / "a.onnx", 1.0), samples)
    found = scoring.score(scaled(tmp_path / "b.onnx", 1.01), reference, samples)
    assert found.sqnr == pytest.approx(40, abs=0.01)
    assert found.agreement == 1
    assert scoring.score(scaled(tmp_path / "c.onnx", -1.0), reference, samples).agreement == 0


def test_a_file_that_does_not_run_has_no_score(tmp_path: Path) -> None:
    samples = written(tmp_path / "samples", (1, 4), 1)
    reference = scoring.answers(scaled(tmp_path / "a.onnx", 1.0), samples)
    (tmp_path / "b.onnx").write_bytes(b"no model")
    assert scoring.score(tmp_path / "b.onnx", reference, samples).said.startswith("does not run")


@pytest.mark.slow
def test_a_peer_quantizes_a_copy_and_its_imports_are_not_counted(tmp_path: Path) -> None:
    source = convolution(tmp_path / "model.onnx")
    samples = written(tmp_path / "samples", (1, 3, 16, 16), 4)
    ready = prepared(PYTHON, source, tmp_path / "prepared.onnx")
    before = sorted(tmp_path.iterdir())
    cost = Peer("ort-minmax", PYTHON).quantize(ready, tmp_path / "samples", tmp_path / "out.onnx", 4)
    assert not cost.said
    assert 0 < cost.cpu < 5
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out.onnx"])
    score = scoring.score(tmp_path / "out.onnx", scoring.answers(source, samples), samples)
    assert 20 < score.sqnr < 60
    (ratio,) = speed.speed_ups(samples[0], [source, tmp_path / "out.onnx"], 5)
    assert ratio.median > 0


def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    written(tmp_path / "samples", (1, 4), 1)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    cost = Peer("ort-minmax", PYTHON).quantize(
        tmp_path / "model.onnx", tmp_path / "samples", tmp_path / "out.onnx", 1
    )
    assert "exit 1" in cost.said


def record(ours: float, sqnr: float) -> dict[str, object]:
    """MobileNetV2 where the peer takes 2 s and reaches 14 dB."""
    mine = Figures(
        "mobilenetv2", OURS, 64, [Cost(ours, 9, 100, 4)] * 3, Score(sqnr, sqnr, 0.9), Interval(2, 1, 3)
    )
    its = Figures(
        "mobilenetv2", "ort-minmax", 64, [Cost(2, 9, 100, 4)] * 3, Score(14, 14, 0.9), Interval(2, 1, 3)
    )
    mine.peaks, its.peaks = {"16": 100.0, "256": 104.0}, {"16": 110.0, "256": 111.0}
    return {
        "versions": {"onnxruntime": "1"},
        "missing": ["quark"],
        "cores": 2,
        "load": [(1, 1, 1)],
        "figures": [asdict(mine), asdict(its)],
    }


def test_targets_that_are_met_are_told_from_those_that_are_not() -> None:
    good, bad = page.page(record(1.0, 18.5)), page.page(record(2.5, 17.5))
    assert "| ours / ort-minmax | 0.50 [0.50, 0.50] | at most 1.0 | yes |" in good
    assert "| ours / ort-minmax | 1.25 [1.25, 1.25] | at most 1.0 | **no** |" in bad
    assert "at least 18.0 | yes" in good
    assert "at least 18.0 | **no**" in bad
    assert "left out: quark" in good
    assert "| mobilenetv2 | ours | 100 | 104 | 1.040 | at most 1.05, below ORT MinMax's | yes |" in good
