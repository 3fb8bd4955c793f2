"""Weights of float models in fewer bits: what the file stores, and what its kernels make of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import helper, numpy_helper

from onnxport.converters.params import Precision, TfliteParams
from onnxport.converters.result import Compiled
from onnxport.converters.tflite.compiler import TfliteConverter
from onnxport.core.errors import UsageError
from onnxport.formats.manifest import Manifest
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from tests.conformance.tflite import Array
from tests.converters.tflite.models import model_of, run_onnx

MANIFEST = Manifest(source="", made_by={}, options={}, validation="skipped")
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def layer(op: str, x: Array, w: Array, b: Array | None = None, **attributes: object) -> Model:
    """One operator with its weights."""
    constants = {"w": w} if b is None else {"w": w, "b": b}
    inputs = ["w", "x"] if op == "Gather" else ["x", *constants]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    return model_of([helper.make_node(op, inputs, ["y"], "layer", **attributes)], {"x": x}, tensors)


IMAGE, PADS = normal(2, 16, 9, 10), {"pads": [1, 1, 1, 1]}
MODELS: dict[str, tuple[Model, Array]] = {
    "Conv": (layer("Conv", IMAGE, normal(24, 16, 3, 3), normal(24), **PADS), IMAGE),
    "Conv, dilated": (layer("Conv", IMAGE, normal(24, 16, 3, 3), dilations=[2, 2]), IMAGE),
    "Conv, grouped": (layer("Conv", IMAGE, normal(24, 8, 3, 3), group=2), IMAGE),
    "Conv, depthwise": (
        layer("Conv", normal(1, 128, 8, 8), normal(128, 1, 3, 3), group=128),
        normal(1, 128, 8, 8),
    ),
    "Conv, 1-D": (layer("Conv", normal(1, 16, 30), normal(24, 16, 3)), normal(1, 16, 30)),
    "Conv, 3-D": (layer("Conv", normal(1, 8, 5, 6, 7), normal(24, 8, 2, 2, 2)), normal(1, 8, 5, 6, 7)),
    "ConvTranspose": (layer("ConvTranspose", IMAGE, normal(16, 20, 2, 2), strides=[2, 2]), IMAGE),
    "Gemm": (layer("Gemm", normal(5, 63), normal(63, 97), normal(97)), normal(5, 63)),
    "MatMul": (layer("MatMul", normal(2, 5, 64), normal(64, 48)), normal(2, 5, 64)),
    "MatMul, batched": (layer("MatMul", normal(3, 5, 32), normal(3, 32, 24)), normal(3, 5, 32)),
    "Gather": (
        layer("Gather", RANDOM.integers(0, 90, (2, 5)), normal(90, 32)),
        RANDOM.integers(0, 90, (2, 5)),
    ),
}
# The least signal to noise, in dB: white noise on white noise, no real model's figure.
LEAST = {"fp16": 70.0, "int8-weights": 40.0, "int8-dynamic": 38.0, "int4-weights": 17.0}
STORED = {"fp16": "FLOAT16", "int8-weights": "INT8", "int8-dynamic": "INT8", "int4-weights": "INT4"}
# Without a kernel for float activations and integer weights; they stay behind DEQUANTIZE.
NO_HYBRID = {"Conv, 3-D", "Gather", "MatMul, batched"}
PRECISIONS: tuple[Precision, ...] = ("fp16", "int8-weights", "int8-dynamic", "int4-weights")


@pytest.fixture(scope="module")
def converter() -> Iterator[TfliteConverter]:
    with TfliteConverter() as running:
        yield running


def convert(converter: TfliteConverter, model: Model, output: Path, precision: Precision | None) -> Compiled:
    prepared = prepare(model, shapes={}, native=converter.native_ops).model
    return converter.convert(prepared, output, TfliteParams(precision=precision), MANIFEST, model)


def run(path: Path, x: Array, *, xnnpack: bool = True) -> Array:
    resolver = OpResolverType.BUILTIN if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=str(path), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def decibels(found: Array, wanted: Array) -> float:
    return float(10 * np.log10(np.square(wanted).sum() / max(float(np.square(found - wanted).sum()), 1e-30)))


def constants(path: Path) -> list[tuple[str, int]]:
    """Type and number of elements of every constant of the file with 64 elements or more."""
    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    names = {value: name for name, value in vars(schema.TensorType).items() if isinstance(value, int)}
    return [
        (names[tensor.type], int(np.prod(tensor.shape)))
        for tensor in model.subgraphs[0].tensors
        if model.buffers[tensor.buffer].data is not None and np.prod(tensor.shape) >= 64
    ]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", MODELS)
def test_every_weighted_operator_is_near_with_and_without_xnnpack(
    converter: TfliteConverter, tmp_path: Path, name: str, precision: Precision
) -> None:
    model, x = MODELS[name]
    compiled = convert(converter, model, tmp_path / "net.tflite", precision)
    expected = run_onnx(model, {"x": x})["y"]
    for xnnpack in (True, False):
        assert decibels(run(tmp_path / "net.tflite", x, xnnpack=xnnpack), expected) > LEAST[precision]
    kinds = {kind for kind, size in constants(tmp_path / "net.tflite") if size >= 1000}
    stored = "INT8" if (name, precision) == ("Conv, depthwise", "int4-weights") else STORED[precision]
    assert kinds == {stored}, "no float32 copy stays in the file"
    hybrid = precision == "int8-dynamic" and name not in NO_HYBRID
    assert ("DEQUANTIZE" in compiled.operators) != hybrid


# Operator, shapes of the input and the weights, and the weights' axis of output channels (ONNX Conv, ConvTranspose).
CHANNELS = {
    "Conv, 2-D": ("Conv", (1, 16, 9, 9), (16, 16, 3, 3), 0),
    "Conv, 3-D": ("Conv", (1, 16, 5, 6, 7), (16, 16, 2, 2, 2), 0),
    "ConvTranspose, 2-D": ("ConvTranspose", (1, 16, 9, 9), (16, 16, 3, 3), 1),
    "ConvTranspose, 3-D": ("ConvTranspose", (1, 16, 5, 6, 7), (16, 16, 2, 2, 2), 1),
}


@pytest.mark.parametrize(("op", "shape", "weights", "axis"), CHANNELS.values(), ids=CHANNELS)
def test_a_small_output_channel_beside_large_ones_is_near(
    converter: TfliteConverter,
    tmp_path: Path,
    op: str,
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    axis: int,
) -> None:
    sizes = np.logspace(0, -4, weights[axis], dtype=np.float32)
    w = normal(*weights) * sizes.reshape([-1 if each == axis else 1 for each in range(len(weights))])
    x = normal(*shape)
    model = layer(op, x, w)
    convert(converter, model, tmp_path / "net.tflite", "int8-weights")
    found, expected = run(tmp_path / "net.tflite", x), run_onnx(model, {"x": x})["y"]
    for channel in range(weights[axis]):
        assert decibels(found[:, channel], expected[:, channel]) > LEAST["int8-weights"]


def test_normalization_is_folded_before_weights_are_rounded(
    converter: TfliteConverter, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    arrays = {
        "w": normal(24, 16, 3, 3),
        "s": normal(24),
        "b": normal(24),
        "m": normal(24),
        "v": np.exp(normal(24)),
    }
    model = model_of(nodes, {"x": IMAGE}, [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    compiled = convert(converter, model, tmp_path / "net.tflite", "int8-dynamic")
    assert not {"MUL", "ADD", "RELU", "DEQUANTIZE"} & set(compiled.operators)


def test_what_stays_float32_is_told(converter: TfliteConverter, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "vast"),
        helper.make_node("Add", ["a", "table"], ["b"]),
        helper.make_node("MatMul", ["b", "small"], ["y"]),
    ]
    arrays = {"w": normal(40, 30) * 1e6, "table": normal(40, 30), "small": normal(30, 3)}
    model = model_of(nodes, {"x": normal(40, 40)}, [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    (note,) = convert(converter, model, tmp_path / "net.tflite", "fp16").notes
    assert note == (
        "stayed float32: 1 weight of fewer than 1024 elements; 1 constant (0.0 MB) that not only products read; "
        "weights with numbers beyond the type's range: 'a'"
    )
    assert not convert(converter, model, tmp_path / "net.tflite", None).notes
    assert "4 bits" in convert(converter, model, tmp_path / "net.tflite", "int4-weights").notes[-1]


def test_a_table_that_is_looked_up_and_multiplied_by_is_stored_once(
    converter: TfliteConverter, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Gather", ["w", "x"], ["e"]),
        helper.make_node("Gemm", ["e", "w"], ["y"], transB=1),
    ]
    model = model_of(nodes, {"x": np.arange(6)}, [numpy_helper.from_array(normal(90, 32), "w")])
    convert(converter, model, tmp_path / "net.tflite", "int8-weights")
    assert constants(tmp_path / "net.tflite") == [("INT8", 90 * 32)]
    assert (
        decibels(run(tmp_path / "net.tflite", np.arange(6)), run_onnx(model, {"x": np.arange(6)})["y"]) > 30
    )


def half_model(x: Array, w: Array) -> Model:
    """float16 weights behind Cast."""
    nodes = [helper.make_node("Cast", ["h"], ["w"], to=1), helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model_of(nodes, {"x": x}, [numpy_helper.from_array(w.astype(np.float16), "h")])


def test_float16_weights_stay_so_unless_asked_otherwise(converter: TfliteConverter, tmp_path: Path) -> None:
    x, w = normal(5, 64), normal(64, 48)
    model = half_model(x, w)
    convert(converter, model, tmp_path / "kept.tflite", None)
    assert constants(tmp_path / "kept.tflite") == [("FLOAT16", 64 * 48)]
    assert decibels(run(tmp_path / "kept.tflite", x), run_onnx(model, {"x": x})["y"]) > 120
    convert(converter, model, tmp_path / "wide.tflite", "fp32")
    assert constants(tmp_path / "wide.tflite") == [("FLOAT32", 64 * 48)]


def weight_only(kind: str) -> Model:
    """A product with a quantized matrix of 64 by 48, as exporters write it."""
    scales = RANDOM.uniform(1e-3, 3e-3, 48).astype(np.float32)
    numbers = RANDOM.integers(-127, 128, (64, 48)).astype(np.int8)
    x = {"x": normal(5, 64)}
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    if kind == "MatMulNBits":
        arrays = {
            "q": RANDOM.integers(0, 256, (48, 2, 16)).astype(np.uint8),
            "s": RANDOM.uniform(1e-2, 3e-2, 96).astype(np.float32),
            "z": RANDOM.integers(0, 256, 48).astype(np.uint8),
        }
        node = helper.make_node(
            kind, ["x", "q", "s", "z"], ["y"], domain="com.microsoft", K=64, N=48, bits=4, block_size=32
        )
        return model_of([node], x, [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    if kind == "per row":
        arrays = {"q": numbers, "s": RANDOM.uniform(1e-3, 3e-3, 64).astype(np.float32)}
        node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0)
    elif kind == "blocks of int4":
        packed = helper.make_tensor("q", onnx.TensorProto.INT4, (64, 48), (numbers // 16).ravel().tolist())
        node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32)
        blocks = numpy_helper.from_array(np.stack([scales, 2 * scales]), "s")
        return model_of([node, product], x, [packed, blocks])
    elif kind == "uint8 with zero points":
        points = RANDOM.integers(120, 136, 48).astype(np.uint8)
        arrays = {"q": (numbers.astype(np.int16) + 128).astype(np.uint8), "s": scales, "z": points}
        node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1)
    else:
        arrays = {"q": numbers, "s": scales}
        node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1)
    return model_of([node, product], x, [numpy_helper.from_array(a, n) for n, a in arrays.items()])


WEIGHT_ONLY: dict[str, tuple[str, Precision]] = {
    "per column": ("INT8", "int8-weights"),
    "per row": ("INT8", "int8-weights"),
    "uint8 with zero points": ("INT8", "int8-weights"),
    "blocks of int4": ("INT4", "int4-weights"),
    "MatMulNBits": ("INT4", "int4-weights"),
}


@pytest.mark.parametrize("asks", [False, True], ids=["plain", "asked for as many bits"])
@pytest.mark.parametrize("kind", WEIGHT_ONLY)
def test_quantized_weights_keep_their_own_integers(
    converter: TfliteConverter, tmp_path: Path, kind: str, asks: bool
) -> None:
    model, x = weight_only(kind), normal(5, 64)
    bits, precision = WEIGHT_ONLY[kind]
    convert(converter, model, tmp_path / "net.tflite", precision if asks else None)
    assert constants(tmp_path / "net.tflite") == [(bits, 64 * 48)]
    expected = run_onnx(model, {"x": x})["y"]
    for xnnpack in (True, False):
        # 120 dB: these very integers, and not others that are near.
        assert decibels(run(tmp_path / "net.tflite", x, xnnpack=xnnpack), expected) > 120


def activations_quantized(dtype: type[np.generic]) -> Model:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    arrays = {"s": np.float32(0.1), "z": np.zeros((), dtype)}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    return model_of(nodes, {"x": normal(5, 64)}, tensors)


@pytest.mark.parametrize(
    ("model", "precision", "said"),
    [
        (MODELS["Gemm"][0], "int8", "no integer scales for its activations"),
        (MODELS["Gemm"][0], "int16x8", "no integer scales for its activations"),
        (
            activations_quantized(np.int8),
            "int16x8",
            "quantized to other types; give .* or leave --precision out",
        ),
        (activations_quantized(np.uint8), "fp32", "is quantized to int8"),
        (activations_quantized(np.int16), "int8-weights", "is quantized to int16x8"),
    ],
)
def test_a_precision_that_the_artefact_would_not_have_is_refused(
    converter: TfliteConverter, tmp_path: Path, model: Model, precision: Precision, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        convert(converter, model, tmp_path / "net.tflite", precision)


def test_two_processes_make_the_same_bytes_in_every_precision(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"]),
    ]
    arrays = {"w": normal(24, 16, 3, 3), "g": normal(24, 50)}
    model = model_of(nodes, {"x": IMAGE}, [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    source = tmp_path / "net.onnx"
    onnx.save(onnx.load_from_string(model.to_bytes() or b""), source)
    seeds = ("1", "2")
    for seed in seeds:
        (tmp_path / seed).mkdir()
        subprocess.run(
            [sys.executable, "-c", _CONVERT, str(source), str(tmp_path / seed)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            timeout=120,
        )
    first, second = (sorted((tmp_path / seed).glob("*.tflite")) for seed in seeds)
    assert [file.name for file in first] == [file.name for file in second]
    assert len(first) == 6
    assert len({file.read_bytes() for file in first}) >= 5
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


_CONVERT = """
import sys
from pathlib import Path
from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite.compiler import TfliteConverter
from onnxport.core.errors import UsageError
from onnxport.formats.manifest import Manifest
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
source, folder = sys.argv[1:]
with TfliteConverter() as converter:
    for precision in (None, "fp32", "fp16", "int8-weights", "int8-dynamic", "int4-weights"):
        prepared = prepare(Model.load(source), shapes={}, native=converter.native_ops).model
        manifest = Manifest(source="", made_by={}, options={}, validation="skipped")
        output = Path(folder, f"{precision}.tflite")
        converter.convert(prepared, output, TfliteParams(precision=precision), manifest)
"""
