"""What a translation adds to a report: a proof, a fault, or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.validate.report import Criterion, Judgement, Verdict, overall


def _judgement(question: Criterion, verdict: Verdict) -> Judgement:
    return Judgement(question=question, verdict=verdict, reason=f"{question} {verdict}", against="")


@pytest.mark.parametrize(
    ("quality", "translation", "expected"),
    [
        ("measured", "proven", "proven"),
        ("measured", "unproven", "measured"),
        ("measured", "not equivalent", "not equivalent"),
        ("over budget", "proven", "over budget"),
        ("over budget", "unproven", "over budget"),
    ],
)
def test_what_was_not_proven_leaves_the_verdict_as_it_was(
    quality: Verdict, translation: Verdict, expected: Verdict
) -> None:
    judgements = _judgement("quality", quality), _judgement("translation", translation)
    assert overall(judgements)[0] == expected


def _cell() -> onnx.ModelProto:
    """tanh(x W + h R), whose state h is the result of the step before."""
    draw = np.random.default_rng(0)
    weights = {"w": draw.standard_normal((4, 6)), "r": draw.standard_normal((6, 6)) / 2}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "read"),
        helper.make_node("MatMul", ["h", "r"], ["b"], "remember"),
        helper.make_node("Add", ["a", "b"], ["s"], "sum"),
        helper.make_node("Tanh", ["s"], ["hn"], "squash"),
    ]
    sizes = {"x": 4, "h": 6, "hn": 6}
    x, h, hn = (helper.make_tensor_value_info(name, 1, [1, size]) for name, size in sizes.items())
    constants = [numpy_helper.from_array(each.astype(np.float32), name) for name, each in weights.items()]
    graph = helper.make_graph(nodes, "g", [x, h], [hn], constants)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def _translation(source: Path, candidate: Path, samples: Path) -> Judgement:
    report = onnxport.validate_model(source, candidate, inputs=samples)
    return next(each for each in report.judgements if each.question == "translation")


def test_a_model_that_keeps_a_state_is_compared_at_each_step(tmp_path: Path) -> None:
    source, made, samples = tmp_path / "cell.onnx", tmp_path / "int8.onnx", tmp_path / "samples"
    onnx.save(_cell(), source)
    samples.mkdir()
    draw = np.random.default_rng(1)
    for number in range(24):
        feeds = {"x": draw.standard_normal((1, 4)), "h": draw.uniform(-1, 1, (1, 6))}
        np.savez(samples / f"{number}.npz", **{name: each.astype(np.float32) for name, each in feeds.items()})
    onnxport.quantize_model(source, "int8", made, calib=samples, latency=False)
    right = _translation(source, made, samples)
    assert right.verdict == "proven", right.reason
    # A state that a file forgets is a fault of the node that reads it.
    wrong = onnx.load(made)
    codes = next(each for each in wrong.graph.initializer if each.name.startswith("r"))
    codes.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(codes)), codes.name))
    onnx.save(wrong, made)
    found = _translation(source, made, samples)
    assert found.verdict == "not equivalent"
    assert "remember" in found.reason
