"""Core ML asked by way of our conversion; which compute unit runs what is told on macOS alone."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxport.deployment.probes import ProbeOptions, coreml


def asked(text: str, folder: Path) -> coreml.Placement:
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return coreml.probe(folder / "model.onnx", ProbeOptions("coreml", "Core ML", folder, folder))


@pytest.mark.exhaustive  # coremltools takes its time to import
def test_a_node_without_an_equivalent_is_named_with_the_reason(tmp_path: Path) -> None:
    answer = asked(
        """<ir_version: 8, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) {
        a = Abs(x)
        [noise] n = RandomUniformLike(x)
        y = Add(a, n)
        }""",
        tmp_path,
    )
    assert (answer.extent, answer.nodes, answer.taken) == ("none", 3, 2)
    assert [(each.op, each.node) for each in answer.fallbacks] == [("RandomUniformLike", "noise")]
    assert "random" in answer.fallbacks[0].why


@pytest.mark.exhaustive
def test_compute_units_are_left_to_a_mac(tmp_path: Path) -> None:
    answer = asked(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Abs(x) }', tmp_path
    )
    assert (answer.extent, answer.nodes, answer.taken, answer.partitions) == ("all", 1, 1, None)
    assert "MLComputePlan" in answer.notes[0]
