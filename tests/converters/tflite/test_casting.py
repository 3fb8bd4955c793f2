"""Casts: through float64 and float8, to integers that are too small, and what no TFLite tensor can hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite.compiler import TfliteConverter
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from tests.conformance.tflite import MANIFEST, Array, Conformance
from tests.converters.tflite.models import model_of, run_onnx

FLOAT8 = "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ".split()


def model_of_casts(x: Array, ways: dict[str, list[dict[str, Any]]]) -> Model:
    """Casts of x one after the other, a chain for each output; opset 25 has the types of 2 bits."""
    nodes, outputs = [], []
    for name, steps in ways.items():
        values = ["x", *(f"{name}.{i}" for i in range(len(steps) - 1)), name]
        nodes += [
            helper.make_node("Cast", [source], [result], **step)
            for source, result, step in zip(values, values[1:], steps, strict=False)
        ]
        outputs.append(helper.make_tensor_value_info(name, steps[-1]["to"], x.shape))
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    return Model(
        onnx_ir.from_proto(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
        )
    )


def unlike_onnx_runtime(conformance: Conformance, model: Model, x: Array) -> list[str]:
    expected = run_onnx(model, {"x": x})
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    return [name for name in expected if not np.array_equal(answer[name], expected[name], equal_nan=True)]


def floats(largest: float) -> Array:
    """Numbers on, between and halfway between those of small formats, of every size."""
    random = np.random.default_rng(0)
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 448, 463, 464, 480, 240, 247, 57344, 61439, 1e-40, 3e38]
    ties = np.ldexp(random.integers(-64, 64, 600), random.integers(-24, 14, 600))
    anywhere = random.normal(0, 1, 300) * 2.0 ** random.integers(-20, 18, 300)
    every = np.concatenate([special, ties, anywhere]).astype(np.float32)
    return every[~(np.abs(every) > largest)]


@pytest.mark.parametrize("source", ["float32", "float16", "float64"])
def test_small_floats_are_rounded_as_onnx_runtime_rounds(conformance: Conformance, source: str) -> None:
    with np.errstate(over="ignore"):
        x = floats(np.inf).astype(source)
    back = {"to": TensorProto.FLOAT}
    ways = {kind: [{"to": getattr(TensorProto, kind)}, back] for kind in (*FLOAT8, "BFLOAT16", "FLOAT16")}
    assert unlike_onnx_runtime(conformance, model_of_casts(x, ways), x) == []


def test_small_floats_without_saturation_overflow(conformance: Conformance) -> None:
    x = floats(np.inf)
    back = {"to": TensorProto.FLOAT}
    ways = {
        kind: [{"to": getattr(TensorProto, kind), "saturate": 0}, back] for kind in FLOAT8 if "UZ" in kind
    }
    assert unlike_onnx_runtime(conformance, model_of_casts(x, ways), x) == []
    # Of the others ONNX Runtime is at odds with ONNX between the largest number and twice it.
    x = np.concatenate([floats(448.0), np.float32([2e3, -2e3])])
    ways = {"FLOAT8E4M3FN": [{"to": TensorProto.FLOAT8E4M3FN, "saturate": 0}, back]}
    assert unlike_onnx_runtime(conformance, model_of_casts(x, ways), x) == []


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"])
def test_activations_are_quantized_to_small_types(conformance: Conformance, kind: str) -> None:
    x = floats(3e4)[:200]
    x = x[~np.isnan(x)]  # of which no integer is defined
    zero = onnx.TensorProto(data_type=getattr(TensorProto, kind), dims=[], raw_data=b"\0", name="zero")
    scale = numpy_helper.from_array(np.array(0.375, np.float32), "scale")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, [scale, zero])
    assert unlike_onnx_runtime(conformance, model, x) == []


@pytest.mark.parametrize("source", ["float32", "float16", "float64", "int32", "int64", "uint8"])
def test_small_integers_wrap_around(conformance: Conformance, source: str) -> None:
    steps = np.arange(0, 40, 1 if source[0] != "f" else 0.5)
    x = np.concatenate([steps, -steps] if source != "uint8" else [steps]).astype(source)
    back = {"to": TensorProto.FLOAT}
    ways = {kind: [{"to": getattr(TensorProto, kind)}, back] for kind in "INT4 UINT4 INT2 UINT2".split()}
    assert unlike_onnx_runtime(conformance, model_of_casts(x, ways), x) == []


@pytest.mark.parametrize("source", ["float32", "float16", "float64"])
def test_integers_too_small_for_a_float_wrap_as_in_onnx_runtime(
    conformance: Conformance, source: str
) -> None:
    x = np.array([300.7, -300.7, 255.5, -1.5, 0.99, -0.99, 40000, -40000, 128], source)
    ways = {
        kind: [{"to": getattr(TensorProto, kind)}]
        for kind in "INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64".split()
    }
    assert unlike_onnx_runtime(conformance, model_of_casts(x, ways), x) == []


def test_unsigned_64_bits_round_to_the_nearest_float(conformance: Conformance) -> None:
    random = np.random.default_rng(0)
    x = np.frombuffer(random.bytes(8 * 500), np.uint64) >> random.integers(0, 40, 500).astype(np.uint64)
    halfway = np.uint64(2**63) + np.arange(64, dtype=np.uint64) * np.uint64(2**39)
    x = np.concatenate([x, halfway, halfway + np.uint64(1), halfway - np.uint64(1)])
    x = np.append(x, np.array([0, 1, 2**63 - 1, 2**64 - 1], np.uint64))
    kinds = "FLOAT INT64 INT32 UINT32 UINT8 INT16 BOOL".split()
    ways = {kind: [{"to": getattr(TensorProto, kind)}] for kind in kinds}
    assert unlike_onnx_runtime(conformance, model_of_casts(x, ways), x) == []
    y = np.array([0, 1, 2**63, 1.5 * 2**63, 2**62, 3e9, 1.9e19, 1.8446742974197924e19], np.float32)[:6]
    assert unlike_onnx_runtime(conformance, model_of_casts(y, {"y": [{"to": TensorProto.UINT64}]}), y) == []


def test_integers_go_through_float64_unharmed(conformance: Conformance) -> None:
    x = np.array(
        [2**62 + 1, 2**53 + 1, 2**53 + 3, -(2**53) - 1, 2**24 + 1, -1, np.iinfo(np.int64).min], np.int64
    )
    model = model_of_casts(x, {"y": [{"to": TensorProto.DOUBLE}, {"to": TensorProto.INT64}]})
    assert unlike_onnx_runtime(conformance, model, x) == []


def float64_model(nodes: list[onnx.NodeProto], source: int, result: int, **constants: Array) -> Model:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", source, ["n", 4])],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return Model(
        onnx_ir.from_proto(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        )
    )


@pytest.fixture(scope="module")
def converter() -> Any:
    with TfliteConverter() as converter:
        yield converter


def test_float64_is_computed_in_float32_without_casts_in_between_and_says_so(
    converter: TfliteConverter, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Exp", ["c"], ["d"]),
        helper.make_node("Reshape", ["d", "shape"], ["y"]),
    ]
    model = float64_model(
        nodes, TensorProto.DOUBLE, TensorProto.DOUBLE, w=np.eye(4), b=np.full(4, 0.1), shape=np.array([-1, 2])
    )
    prepared = prepare(model, shapes={}, native=converter.native_ops).model
    compiled = converter.convert(prepared, tmp_path / "model.tflite", TfliteParams(), MANIFEST)
    assert compiled.operators["CAST"] == 2
    assert compiled.notes == ("float64 is computed in float32, in TFLite the widest type of arithmetic",)


def test_float16_is_rounded_where_onnx_runtime_rounds_it(conformance: Conformance) -> None:
    """Products beyond 65504 and a mask of twice -65504 stay finite; two Casts of the model's own round."""
    x = np.array([[1.1, 700.0, 60000.0]], np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["h", "large"], ["a"]),
        helper.make_node("Concat", ["a", "a"], ["b"], axis=1),
        helper.make_node("Mul", ["b", "small"], ["c"]),
        helper.make_node("Cast", ["c"], ["product"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["h", "mask"], ["d"]),
        helper.make_node("Add", ["d", "mask"], ["e"]),
        helper.make_node("Softmax", ["e"], ["s"]),
        helper.make_node("Cast", ["s"], ["masked"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["g"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["g"], ["rounded"], to=TensorProto.FLOAT),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.float16), name)
        for name, value in {"large": 100.0, "small": 0.01, "mask": [0.0, -65504.0, -65504.0]}.items()
    ]
    model = model_of(nodes, {"x": x}, constants, outputs=["product", "masked", "rounded"], opset=17)
    expected = run_onnx(model, {"x": x})
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    for name, value in expected.items():
        assert np.isfinite(value).all(), name
        np.testing.assert_allclose(answer[name], value, rtol=1e-6, err_msg=name)
    assert expected["rounded"][0, 0] == np.float16(1.1)


MUL = helper.make_node("Mul", ["x", "k"], ["y"])
TO_DOUBLE = helper.make_node("Cast", ["x"], ["d"], "to double", to=TensorProto.DOUBLE)


@pytest.mark.parametrize(
    ("nodes", "source", "result", "constant", "why"),
    [
        ([MUL], TensorProto.DOUBLE, TensorProto.DOUBLE, 1e300, "does not hold its constant 1e+300"),
        ([MUL], TensorProto.DOUBLE, TensorProto.DOUBLE, 1e-300, "does not hold its constant 1e-300"),
        ([MUL], TensorProto.DOUBLE, TensorProto.DOUBLE, 2.0**24 + 1, "does not hold its constant 16777217"),
        (
            [
                TO_DOUBLE,
                helper.make_node("Mul", ["d", "k"], ["e"]),
                helper.make_node("Cast", ["e"], ["y"], "to int", to=TensorProto.INT64),
            ],
            TensorProto.INT64,
            TensorProto.INT64,
            0.5,
            "holds integers up to 2^24 only",
        ),
        (
            [TO_DOUBLE, helper.make_node("Less", ["d", "k"], ["y"])],
            TensorProto.INT32,
            TensorProto.BOOL,
            0.5,
            "holds integers up to 2^24 only",
        ),
    ],
)
def test_what_needs_float64_is_refused(
    conformance: Conformance, nodes: list[onnx.NodeProto], source: int, result: int, constant: float, why: str
) -> None:
    model = float64_model(nodes, source, result, k=np.array(constant))
    with pytest.raises(CannotConvertError, match=re.escape(why)):
        conformance.convert_and_run(model, [])


def test_constants_beyond_float32_pass_where_nothing_computes(conformance: Conformance) -> None:
    nodes = [helper.make_node("Concat", ["x", "k"], ["y"], axis=0)]
    model = float64_model(
        nodes, TensorProto.DOUBLE, TensorProto.DOUBLE, k=np.array([[1e300, 0.1, -1e-300, np.nan]])
    )
    x = np.array([[np.pi, -1e200, np.inf, 2.0**53 - 1]])
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert np.array_equal(answer["y"], run_onnx(model, {"x": x})["y"], equal_nan=True)


def test_sums_of_float64_have_its_range_and_precision(conformance: Conformance) -> None:
    random = np.random.default_rng(0)
    special = np.array([0.0, np.inf, -np.inf, np.nan, 1.7e308, -1.7e308, 1e300, 1, -1, 2.0**53])
    left, right = (grid.ravel() for grid in np.meshgrid(special, special))
    sizes = np.concatenate([random.integers(-280, 300, 200), random.integers(-3, 3, 200)])
    x, y = (random.normal(size=400) * 10.0 ** random.permutation(sizes) for _ in range(2))
    a, b = np.concatenate([left, x, x]), np.concatenate([right, y, -x * (1 + 1e-13)])
    nodes = [helper.make_node(op, ["a", "b"], [op]) for op in ("Add", "Sub")]
    model = model_of(nodes, {"a": a, "b": b}, outputs=["Add", "Sub"])
    (answer,) = conformance.convert_and_run(model, [{"a": a, "b": b}])
    with np.errstate(all="ignore"):
        for name, expected in (("Add", a + b), ("Sub", a - b)):
            # One unit in the last place, where a tie is rounded twice.
            near = np.abs(answer[name] - expected) <= np.spacing(np.abs(expected))
            assert (near | (answer[name] == expected) | (np.isnan(answer[name]) & np.isnan(expected))).all()


def test_constants_of_bfloat16_are_no_numbers_that_onnx_runtime_hands_over(conformance: Conformance) -> None:
    x = np.array([-3.0, -0.5, 0.0, 2.0]).astype("bfloat16")
    nodes = [
        helper.make_node("CastLike", ["k", "x"], ["narrow"]),
        helper.make_node("Mul", ["x", "narrow"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    model = model_of(nodes, {"x": x}, [numpy_helper.from_array(np.array(1.5, np.float32), "k")])
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert answer["y"].tolist() == [-4.5, -0.75, 0.0, 3.0]


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "INT4", "UINT4", "FLOAT8E8M0"])
def test_ports_that_the_interpreter_cannot_fill_are_refused(conformance: Conformance, kind: str) -> None:
    model = model_of_casts(np.ones(4, np.float32), {"y": [{"to": getattr(TensorProto, kind)}]})
    with pytest.raises(CannotConvertError, match="that it does not carry"):
        conformance.convert_and_run(model, [])
