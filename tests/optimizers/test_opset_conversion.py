"""Models converted to an opset: those too old or too new, their functions, and the newest opset that runs."""

from __future__ import annotations

import re

import onnx
import onnx.parser
import onnx.shape_inference
import onnx.version_converter
import onnx_ir as ir
import pytest

from onnxport.formats.model import Model
from onnxport.optimizers.opset import CANONICAL_OPSET, LiftError, convert_opset, lift
from onnxport.optimizers.opset.ort_support import newest_opset
from onnxport.optimizers.params import NEWEST_OPSET
from tests.optimizers.graphs import assert_same, build, check, feeds, run


def test_opsets_before_seven_are_refused() -> None:
    with pytest.raises(LiftError, match="opset 6, older than 7"):
        lift(ir.from_proto(build(6, "(float[2] x) => (float[] y) { y = Abs(x) }")))


FUNCTIONS = """<ir_version: 8, opset_import: ["": 16, "own": 1]>
    graph (float[2,3] x) => (float[] y) { a = own.squared<power=2.0>(x) y = own.ranked(a) }
    <opset_import: ["": 16], domain: "own"> squared<power: float = 3.0>(a) => (b)
        { p = Constant<value_float: float = @power>() c = Pow(a, p) b = own.total(c) }
    <opset_import: ["": 12], domain: "own"> total(a) => (b) { b = ReduceSum<axes = [0]>(a) }
    <opset_import: ["": 18], domain: "own"> ranked(a) => (b) { n = Constant<value_ints = [1]>() b = ReduceMax(a, n) }
"""


def test_functions_are_inlined_whatever_their_opsets() -> None:
    model = onnx.parser.parse_model(FUNCTIONS)
    for function in model.functions:
        function.opset_import.add(domain="own", version=1)
    fed = feeds(model)
    expected = [
        (fed["x"] ** 2).sum(0, keepdims=True).max(1, keepdims=True)
    ]  # ONNX Runtime refuses mixed opsets
    for to in (CANONICAL_OPSET, NEWEST_OPSET):
        brought = convert_opset(Model(ir.from_proto(model)), to)
        result = ir.to_proto(brought.model.ir)
        check(result)
        assert not result.functions
        assert_same(run(result, fed), expected)
        assert brought.notes == ("its functions were inlined: ranked, squared, total",)


def test_functions_must_be_inlined_before_a_lift() -> None:
    with pytest.raises(LiftError, match="ranked, squared, total must be inlined"):
        lift(ir.from_proto(onnx.parser.parse_model(FUNCTIONS)))


def test_a_function_whose_parameter_determines_its_form_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "own": 1]> graph (float[2,3] x) => (float[] y)
        { y = own.total<over=[1]>(x) }
        <opset_import: ["": 12], domain: "own"> total<over>(a) => (b) { b = ReduceSum<axes: ints = @over>(a) }"""
    with pytest.raises(LiftError, match="'axes' is a parameter of the function"):
        convert_opset(Model(ir.from_proto(onnx.parser.parse_model(text))), 21)


def test_operators_that_onnx_never_had_are_left_alone() -> None:
    model = build(13, "(float[2,3] x, float[3] s) => (float[] y) { y = SimplifiedLayerNormalization(x, s) }")
    graph = ir.from_proto(model)
    assert lift(graph) == []
    assert_same(run(ir.to_proto(graph), feeds(model)), run(model, feeds(model)))


def test_there_is_no_lift_beyond_the_adapters() -> None:
    with pytest.raises(ValueError, match="adapters exist for opset 7 to 26"):
        lift(ir.from_proto(build(9, "(float[2] x) => (float[] y) { y = Abs(x) }")), NEWEST_OPSET + 1)


def test_latest_is_what_onnx_runtime_has_kernels_for() -> None:
    text = """(float[1,1,8,8] x) => (float[] y) <float[1,4] r = {0.0, 0.0, 5.0, 5.0}, int64[1] i = {0}>
        { y = RoiAlign(x, r, i) }"""
    brought = convert_opset(Model(ir.from_proto(build(17, text))), "latest")
    assert brought.model.opset == 21
    assert [re.sub("Runtime [0-9.]+", "Runtime", note) for note in brought.notes] == [
        "its newest opset is 21, not 26: ONNX Runtime lacks RoiAlign-22"
    ]
    with pytest.raises(LiftError, match="1 of 1 nodes do not run at opset 24") as caught:
        convert_opset(Model(ir.from_proto(build(17, text))), 24)
    assert [(refusal.op, refusal.node) for refusal in caught.value.refusals] == [("RoiAlign", "y")]
    assert "has no kernel for RoiAlign-22" in str(caught.value)


def test_no_opset_is_newer_than_onnx_runtime_loads() -> None:
    assert newest_opset(onnx.defs.onnx_opset_version()) == NEWEST_OPSET
    assert newest_opset(NEWEST_OPSET - 3) == NEWEST_OPSET - 3
    model = Model(ir.from_proto(build(21, "(float[2] x) => (float[] y) { y = Abs(x) }")))
    with pytest.raises(LiftError, match="know opsets up to 26; give --opset 26"):
        convert_opset(model, NEWEST_OPSET + 1)


def test_a_node_that_did_not_run_before_does_not_limit_the_opset() -> None:
    model = build(20, "(uint8[9] x) => (uint8[] y) { y = ImageDecoder(x) }")
    assert convert_opset(Model(ir.from_proto(model)), "latest").model.opset == NEWEST_OPSET
