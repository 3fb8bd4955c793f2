"""The simplification benchmark's own counting and page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import onnx

from benchmarks.simplify import KEYS, Figures, nodes_of, page


def test_nodes_of_branches_count_and_constants_count_apart(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, bool c) => (float[N,4] y) '
        "{ y = If(c) <then_branch = t () => (float[N,4] p) { p = Relu(x) }, "
        "else_branch = e () => (float[N,4] q) { k = Constant<value = float {2.0}>() q = Mul(x, k) }> }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    assert nodes_of(tmp_path / "model.onnx") == (3, 1)


def test_the_page_says_where_a_peer_has_fewer_nodes_or_is_wrong() -> None:
    rows = [
        Figures("a", "", 10, 2, 1000),
        Figures("a", "onnxport", 6, 0, 900, [0.8], [0.1], "proven"),
        Figures("a", "onnxsim", 7, 1, 1000, [1.0], [0.2], "not equivalent"),
        Figures("b", "", 10, 0, 1000),
        Figures("b", "onnxport", 9, 0, 1000, [0.8], [0.1], "proven"),
        Figures("b", "onnxsim", 8, 0, 4000, [1.6], [0.4], "proven"),
    ]
    text = page(
        {
            "versions": {"onnxsim": "1"},
            "cores": 2,
            "load": [(1.0, 1.0, 1.0)],
            "figures": [asdict(each) for each in rows],
        }
    )
    assert "At most as many nodes as the better of the others: 1 of 2 models." in text
    assert "Not on b: 9 to 8; bytes to the source's: onnxport 1.00 times, onnxsim 4.00 times" in text
    assert "- onnxsim: 1 of 2 proven. Not proven: a (not equivalent)." in text
    assert "| a | 10 (2) | 6, 0.90 | 7 (1), 1.00, not equivalent |" in text
    assert "| a | 0.80 / 0.10 | 1.00 / 0.20 | 0.80 / 0.50 |" in text


def test_there_are_34_models() -> None:
    assert len(KEYS) == 34
