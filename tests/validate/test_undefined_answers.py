"""Generated inputs on which a source's own answer is not defined are left out, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate import evaluation
from onnxport.validate.answered_set import AnsweredSet, Loader
from onnxport.validate.noise_runs import Answers
from onnxport.validate.reference import Reference
from onnxport.validate.undefined_answers import BEYOND_FLOAT16, why_undefined
from tests.validate.models import parsed, save, verdict


def scaled(first: float, second: float, divisor: float, path: Path) -> Artifact:
    """A float16 model of x * first * second / divisor."""
    nodes = [
        helper.make_node("Mul", ["x", "first"], ["a"]),
        helper.make_node("Mul", ["a", "second"], ["b"]),
        helper.make_node("Div", ["b", "divisor"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, (1, 8)) for name in ("x", "y")]
    numbers = {"first": first, "second": second, "divisor": divisor}
    constants = [numpy_helper.from_array(np.float16([each]), name) for name, each in numbers.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return save(model, path)


def test_a_source_that_is_finite_in_float32_alone_is_proven_where_float16_holds_it(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    source = scaled(300, 300, 60000, tmp_path / "m.onnx")
    made = onnxport.convert_model(source.path, "coreml", tmp_path / "m.mlpackage", latency=False)
    assert made.report.verdict == "proven", made.report.reason
    (left_out,) = (note for note in made.report.notes if "beyond float16" in note)
    assert "set 1" not in left_out


def test_infinities_that_the_source_does_not_explain_are_a_fault(tmp_path: Path) -> None:
    source, wrong = scaled(2, 2, 4, tmp_path / "m.onnx"), scaled(60000, 60000, 4, tmp_path / "wrong.onnx")
    report = verdict(source, wrong)
    assert report.verdict == "not equivalent"


class Overflowing:
    """A float16 reference whose values inside lie beyond float16 from the 100th on, of 200; counts its runs."""

    precision = "float16"

    def __init__(self) -> None:
        nodes = " ".join(f"v{number:03} = Relu (x)" for number in range(200))
        proto = parsed(f"g (float16[1] x) => (float16[1] y) {{ {nodes} y = Neg (x) }}")
        self.graph = Model(ir.from_proto(proto))
        self.most = 0

    def tap(self, feeds: Feeds, names: Sequence[str]) -> Answers:
        self.most = max(self.most, len(names))
        return {name: np.float16([np.inf if name >= "v100" else 1]) for name in names}


@pytest.mark.parametrize(("answer", "given"), [(np.nan, 3.0), (3.0, np.nan), (np.nan, np.nan)])
def test_where_the_source_or_the_artefact_overflows_nothing_is_compared(answer: float, given: float) -> None:
    """UKIS's cloud masks are NaN for pictures of 0 to 255; TFLite computes in float32 and has numbers there."""
    reference = Overflowing()
    why = why_undefined(
        cast(Reference, reference),
        AnsweredSet(cast(Loader, None), "set 1", "generated", {}, {}, None),
        {},
        {"y": np.float32([answer])},
        {"y": np.float32([given])},
    )
    assert why == BEYOND_FLOAT16
    assert reference.most < 100, "all values of a large network at a time take gigabytes"


def test_a_source_that_is_undefined_everywhere_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "is_finite", lambda answers: False)
    monkeypatch.setattr(evaluation, "why_undefined", lambda *given: BEYOND_FLOAT16)
    source = scaled(2, 2, 4, tmp_path / "m.onnx")
    report = verdict(source, source)
    assert report.verdict == "not equivalent"
    assert "undefined on all" in report.reason


def normalized(scale: float, path: Path) -> Artifact:
    """x / sum |x|, in 8 bits: 0 / 0 for zeros."""
    model = parsed(
        "g (float[1, 64] x) => (float[1, 64] y) { a = Abs (x) s = ReduceSum <keepdims = 1> (a) n = Div (x, s)"
        "q = QuantizeLinear (n, scale, zero) f = DequantizeLinear (q, scale, zero) y = Add (f, f) }"
    )
    numbers = {"scale": np.float32(scale), "zero": np.int8(0)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in numbers.items())
    return save(model, path)


@pytest.mark.parametrize("to", ["coreml", "tflite"])
def test_nan_that_becomes_an_integer_is_not_compared(to: str, tmp_path: Path) -> None:
    source = normalized(0.001, tmp_path / "m.onnx")
    output = tmp_path / {"coreml": "m.mlpackage", "tflite": "m.tflite"}[to]
    made = onnxport.convert_model(source.path, to, output, latency=False)
    assert made.report.verdict == "proven", made.report.reason
    assert any("integer of NaN" in note for note in made.report.notes) or to == "tflite"


def test_other_integers_are_a_fault_all_the_same(tmp_path: Path) -> None:
    source, wrong = normalized(0.001, tmp_path / "m.onnx"), normalized(0.0013, tmp_path / "wrong.onnx")
    assert verdict(source, wrong).verdict == "not equivalent"
