"""The float arithmetic of dynamically quantized models, by NumPy's arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxport
from onnxport.formats.model import Model
from onnxport.optimizers.dynamic_quantization import take_out_dynamic_quantization
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.float_arithmetic import in_float_arithmetic
from tests.dynamic_models import FORMS


@pytest.mark.parametrize("form", FORMS)
def test_the_reference_in_float_arithmetic_leaves_no_rounding(form: str) -> None:
    proto, x, y = FORMS[form](np.random.default_rng(7))
    model = Model(ir.from_proto(proto))
    floats = in_float_arithmetic(model)
    assert floats is not None
    with OrtRuntime.of_model(floats) as runtime, OrtRuntime.of_model(model) as source:
        np.testing.assert_allclose(runtime.run({"x": x})["y"], y, atol=1e-5)
        assert np.abs(source.run({"x": x})["y"] - y).max() > 1e-4, "the source itself rounds"


@pytest.mark.parametrize("form", FORMS)
def test_conversion_takes_run_time_quantization_out(form: str) -> None:
    proto, x, y = FORMS[form](np.random.default_rng(8))
    model = Model(ir.from_proto(proto))
    take_out_dynamic_quantization(model)
    with OrtRuntime.of_model(model) as runtime:
        np.testing.assert_allclose(runtime.run({"x": x})["y"], y, atol=1e-5)


def test_a_product_with_another_end_keeps_its_rounding() -> None:
    """The integer product itself is an output."""
    proto, *_ = FORMS["matmul"](np.random.default_rng(9))
    proto.graph.output.append(helper.make_tensor_value_info("product", TensorProto.INT32, [3, 5]))
    assert in_float_arithmetic(Model(ir.from_proto(proto))) is None


def _replace_input(form: str, op: str, place: int, name: str, array: np.ndarray) -> onnx.ModelProto:
    """A form whose operator reads a constant in the place of an input that DynamicQuantizeLinear measured."""
    proto, *_ = FORMS[form](np.random.default_rng(12))
    node = next(each for each in proto.graph.node if each.op_type == op)
    node.input[place] = name
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


@pytest.mark.parametrize(
    ("form", "op", "place", "array"),
    [
        ("dequantized", "DequantizeLinear", 1, np.array(0.5, np.float32)),
        ("dequantized", "DequantizeLinear", 2, np.array(7, np.uint8)),
        ("matmul", "MatMulInteger", 2, np.array(7, np.uint8)),
        ("convolution", "ConvInteger", 2, np.array(7, np.uint8)),
        ("squares", "MatMulInteger", 3, np.array(7, np.uint8)),
        ("to_float", "MatMulIntegerToFloat", 2, np.array(0.5, np.float32)),
        ("to_float", "MatMulIntegerToFloat", 4, np.array(7, np.uint8)),
        ("biased", "Div", 1, np.array(0.5, np.float32)),
    ],
)
def test_integers_with_another_scale_or_zero_point_stand_for_other_floats(
    form: str, op: str, place: int, array: np.ndarray
) -> None:
    """Both the judge and the conversion leave such a product as it is."""
    model = Model(ir.from_proto(_replace_input(form, op, place, "own", array)))
    assert in_float_arithmetic(model) is None
    take_out_dynamic_quantization(model)
    assert any(node.op_type == "DynamicQuantizeLinear" for node in model.graph)
    assert any(
        node.op_type == op
        for node in model.graph
        if node.outputs[0].uses() or node.outputs[0].is_graph_output()
    )


def stored(form: str, folder: Path, seed: int = 11) -> Path:
    proto, *_ = FORMS[form](np.random.default_rng(seed))
    onnx.save(proto, folder / f"{form}{seed}.onnx")
    return folder / f"{form}{seed}.onnx"


@pytest.mark.parametrize(
    ("form", "to"), [("matmul", "tflite"), ("lstm", "tflite"), ("matmul_per_channel", "coreml")]
)
def test_a_dynamic_source_is_converted_and_proven(form: str, to: str, tmp_path: Path) -> None:
    output = tmp_path / ("m.mlpackage" if to == "coreml" else "m.tflite")
    report = onnxport.convert_model(stored(form, tmp_path), to, output=output).report
    assert report.verdict == "proven"
    assert report.judgements[0].against == "the reference without its run-time quantization"
    assert any("it was compared with the reference in float arithmetic" in note for note in report.notes)
    loss = report.judgements[1]
    assert (loss.question, loss.verdict, loss.against) == ("quality", "measured", "the reference itself")
    assert 30 < (loss.outputs[0].sqnr_db or 0) < 60, "8 bits"


def test_other_weights_are_found_behind_run_time_quantization(tmp_path: Path) -> None:
    """One weight of 80 that is 5 steps off: 3 % of the output, within what run-time quantization moves."""
    source = stored("matmul", tmp_path)
    wrong = onnx.load(source)
    weights = onnx.numpy_helper.to_array(wrong.graph.initializer[0]).copy()
    weights[3, 2] += 5 if weights[3, 2] < 100 else -5
    wrong.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(wrong, tmp_path / "wrong.onnx")
    onnxport.convert_model(tmp_path / "wrong.onnx", "tflite", output=tmp_path / "wrong.tflite")
    report = onnxport.validate_model(source, tmp_path / "wrong.tflite")
    assert report.verdict == "not equivalent"


EMULATED = """<ir_version: 9, opset_import: ["" : 17]> g (float[3, 16] x) => (float[3, 5] y)
    <float zero = {0}, float levels = {255}, float least = {1e-30}> {
        low0 = ReduceMin <keepdims = 0> (x) low = Min (low0, zero)
        high0 = ReduceMax <keepdims = 0> (x) high = Max (high0, zero)
        span = Sub (high, low) scale0 = Div (span, levels) scale = Max (scale0, least)
        offset = Div (low, scale) shift0 = Round (offset)
        steps0 = Div (x, scale) steps = Round (steps0) moved = Sub (steps, shift0) codes = Clip (moved, zero, levels)
        back0 = Add (codes, shift0) back = Mul (back0, scale) y = MatMul (back, w) }"""


def test_a_candidate_that_rounds_at_run_time_is_compared_with_the_source(tmp_path: Path) -> None:
    """As other converters write it, in small operators; 8 bits in both, so it is held to the source's own noise."""
    source = stored("matmul", tmp_path)
    held = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(source).graph.initializer}
    emulated = onnx.parser.parse_model(EMULATED)
    weights = (held["w"].astype(np.float32) - held["w_zero"]) * held["w_scale"]
    emulated.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(emulated, tmp_path / "emulated.onnx")
    report = onnxport.validate_model(source, tmp_path / "emulated.onnx")
    assert report.verdict == "proven"
    assert [each.question for each in report.judgements] == ["fidelity", "quality"]
    assert report.judgements[0].against == "the reference itself"
