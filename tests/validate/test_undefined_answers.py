"""Generated inputs on which a source's own answer is not defined are left out, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.core.errors import NotProvenError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate import undefined_answers
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.sessions import isolated
from onnxport.validate.undefined_answers import why_undefined
from tests.validate.models import parsed, save, verdict
from tests.validate.tflite_files import write


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


def overflowing(least: float, path: Path) -> Artifact:
    """A float16 model of (|x| + least) * 60000, which is infinite beyond 1.09, and a number in float32."""
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Add", ["size", "least"], ["above"]),
        helper.make_node("Mul", ["above", "factor"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, (1, 8)) for name in ("x", "y")]
    constants = [
        numpy_helper.from_array(np.float16([number]), name)
        for name, number in {"least": least, "factor": 60000}.items()
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return save(model, path)


def test_where_the_source_overflows_nothing_is_compared(tmp_path: Path) -> None:
    """UKIS's cloud masks are NaN for pictures of 0 to 255; TFLite computes in float32 and has numbers there."""
    source = overflowing(0, tmp_path / "m.onnx")
    made = onnxport.convert_model(source.path, "tflite", tmp_path / "m.tflite", latency=False)
    assert [note for note in made.report.notes if "not compared" in note and "beyond float16" in note]
    assert made.report.verdict == "measured", made.report.reason


def test_a_source_that_is_undefined_everywhere_proves_nothing(tmp_path: Path) -> None:
    source = overflowing(2, tmp_path / "m.onnx")
    with pytest.raises(NotProvenError, match=r"inconclusive: .*undefined on all generated inputs"):
        onnxport.convert_model(source.path, "tflite", tmp_path / "m.tflite", latency=False)


def test_values_inside_are_asked_for_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values of a network of 40 MB at a time fill a gigabyte; the last of these overflows."""
    pytest.importorskip("coremltools")
    monkeypatch.setattr(undefined_answers, "_AT_A_TIME", 1)
    source = scaled(300, 300, 60000, tmp_path / "m.onnx")
    made = onnxport.convert_model(source.path, "coreml", tmp_path / "m.mlpackage", latency=False)
    assert [note for note in made.report.notes if "beyond float16" in note]


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


def test_a_source_that_shows_no_values_inside_is_compared_as_it_answers(tmp_path: Path) -> None:
    """As a .tflite file whose export answers otherwise on an edge case: `export` asked for values of the export."""
    text = """module {
      func.func @main(%x: tensor<1x64xf32> loc("x")) -> tensor<1x64xf32> {
        %y = "tfl.abs"(%x) : (tensor<1x64xf32>) -> tensor<1x64xf32> loc("y")
        func.return %y : tensor<1x64xf32>
      }
    }"""
    source = Artifact(write(tmp_path / "m.tflite", text, ["x"], ["y"]), "tflite")
    exported = Model.load(normalized(0.001, tmp_path / "m.onnx").path)
    params = ValidateParams()
    with isolated(source, params, "reference") as runtime:
        reference = Reference(source, params, runtime, graph=exported)
        reference.prepare()
        answered = next(each for each in reference.sets if each.adversarial)
        feeds, answers = reference.answers(answered)
        far = {"y": answers["y"] + 100}
        assert why_undefined(reference, answered, feeds, answers, far) == ""
        reference.close()
