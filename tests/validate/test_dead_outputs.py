"""An output that no input moves is named with the node at which the inputs' changes end."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxport.formats.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams


def notes(text: str, path: Path) -> str:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'), path)
    with Judge(Artifact.open(path), ValidateParams()) as judge:
        return " ".join(judge.reference.notes)


@pytest.mark.parametrize(
    ("body", "node"),
    [
        ("a = Neg (x) b = Clip (a, high, higher) c = Mul (b, b) y = Exp (c)", "Clip of 'b'"),
        ("a = Sin (x) b = Mul (a, zero) y = Cos (b)", "Mul of 'b'"),
    ],
)
def test_the_node_that_lets_nothing_through_is_named(body: str, node: str, tmp_path: Path) -> None:
    text = f"""g (float[4, 8] x) => (float[4, 8] y) <float high = {{1e9}}, float higher = {{2e9}}, float zero = {{0}}>
        {{ {body} }}"""
    assert f"'y' stays the same because {node} gives one result" in notes(text, tmp_path / "m.onnx")


def test_an_output_that_moves_has_no_such_note(tmp_path: Path) -> None:
    assert "stays the same" not in notes(
        "g (float[4] x) => (float[4] y) { y = Sin (x) }", tmp_path / "m.onnx"
    )
