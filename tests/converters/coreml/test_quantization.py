"""Quantized models keep their numbers and scales: weights in the file, activations on ONNX Runtime's grid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.converters.params import CoremlParams
from onnxport.formats.mlpackage.reader import read_package
from onnxport.formats.model import Model
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array, difference
from tests.converters.coreml.packages import convert, evaluate
from tests.converters.tflite.models import model_of, run_onnx

RANDOM = np.random.default_rng(0)
TARGETS = ("iOS15", "iOS16", "iOS17", "iOS18")
# Every tie between two numbers of 8 bits at the scale 1/4, what saturates, and what a model may meet besides.
TIES = np.concatenate([np.arange(-300, 300) / 8, [1e9, -1e9, 3e38, -0.0]]).astype(np.float32).reshape(4, -1)
_ONNX = {
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
    **{
        name: helper.np_dtype_to_tensor_dtype(np.dtype(name))
        for name in ("int8", "uint8", "int16", "uint16", "int32")
    },
}


def tensor(name: str, array: Array, dtype: str = "") -> TensorProto:
    if dtype in ("int4", "uint4"):
        return helper.make_tensor(name, _ONNX[dtype], array.shape, array.reshape(-1).tolist())
    return numpy_helper.from_array(array.astype(dtype) if dtype else array, name)


def check(
    coreml: CoremlConformance, model: Model, feeds: Mapping[str, Array], noise: float = 0, **params: Any
) -> Path:
    """Converts, compares with ONNX Runtime, and gives the package."""
    before, coreml.params = coreml.params, CoremlParams(**params)
    try:
        (answer,) = coreml.convert_and_run(model, [dict(feeds)])
    finally:
        coreml.params = before
    for name, value in run_onnx(model, feeds).items():
        scale = float(np.abs(value.astype(np.float64)).max())
        assert not difference(value, answer[name], atol=noise * scale), name
    return Path(coreml._folder.name, "model.mlpackage")


def operators(package: Path) -> set[str]:
    return {each.type for each in read_package(package).functions["main"].block.operations}


# ---- activations


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8", "int16", "uint16"])
def test_floats_are_put_on_the_grid_of_onnx_runtime(
    coreml: CoremlConformance, dtype: str, target: str
) -> None:
    point = {"int4": -3, "uint4": 9, "int8": -5, "uint8": 130, "int16": 300, "uint16": 40000}[dtype]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = [tensor("s", np.array(0.25, np.float32)), tensor("z", np.array(point), dtype)]
    package = check(coreml, model_of(nodes, {"x": TIES}, constants), {"x": TIES}, minimum_target=target)
    takes_bytes = dtype in ("int8", "uint8") and target in ("iOS17", "iOS18")
    assert ({"quantize", "dequantize"} <= operators(package)) == takes_bytes


@pytest.mark.parametrize("target", ["iOS15", "iOS17"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_numbers_are_given_to_others_as_integers(coreml: CoremlConformance, dtype: str, target: str) -> None:
    """Per axis; the numbers are an output, and computed with."""
    x = (RANDOM.standard_normal((2, 3, 5)) * 40).astype(np.float32)
    points = np.array([3, 0, 7])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        helper.make_node("Cast", ["q"], ["i"], to=TensorProto.INT32),
        helper.make_node("Add", ["i", "i"], ["y"]),
    ]
    constants = [tensor("s", np.array([0.5, 0.3, 0.7], np.float32)), tensor("z", points, dtype)]
    model = model_of(nodes, {"x": x}, constants, outputs=["q", "y"])
    check(coreml, model, {"x": x}, minimum_target=target)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scales_of_the_run_are_taken(coreml: CoremlConformance, axis: int) -> None:
    x = (RANDOM.standard_normal((3, 4, 5)) * 40).astype(np.float32)
    size = x.shape[axis]
    feeds = {
        "x": x,
        "s": RANDOM.uniform(0.1, 1, size).astype(np.float32),
        "z": RANDOM.integers(0, 200, size).astype(np.uint8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    check(coreml, model_of(nodes, feeds, outputs=["q", "y"]), feeds)


@pytest.mark.parametrize("constant", [True, False])
def test_blocks_have_scales_of_their_own(coreml: CoremlConformance, constant: bool) -> None:
    x = (RANDOM.standard_normal((2, 10)) * 40).astype(np.float32)
    scales = {"s": RANDOM.uniform(0.1, 1, (2, 4)).astype(np.float32)}  # blocks of 3, the last one not full
    node = helper.make_node(
        "QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=3, output_dtype=TensorProto.INT8
    )
    back = helper.make_node("DequantizeLinear", ["q", "s"], ["y"], axis=1, block_size=3)
    feeds = {"x": x} | ({} if constant else scales)
    constants = [tensor("s", scales["s"])] if constant else []
    check(coreml, model_of([node, back], feeds, constants, outputs=["q", "y"]), feeds)


# ---- weights


def weighted(
    dtype: str, axis: int | None, block: int = 0, *, rows: int = 32
) -> tuple[Model, dict[str, Array]]:
    """x times a quantized matrix, and its transpose in a Gemm."""
    low, high = {"int4": (-8, 8), "uint4": (0, 16)}.get(dtype) or (
        np.iinfo(dtype).min,
        np.iinfo(dtype).max + 1,
    )
    numbers = RANDOM.integers(low, high, (rows, 16))
    shape = [] if axis is None else [numbers.shape[axis]]
    if block:
        shape = [-(-size // block) if i == axis else size for i, size in enumerate(numbers.shape)]
    largest = 0.1 if dtype != "int16" else 0.0004
    scale = np.asarray(RANDOM.uniform(largest / 100, largest, shape), np.float32)
    points = RANDOM.integers(low // 2, high // 2, shape)
    given: dict[str, Any] = {} if axis is None else {"axis": axis}
    if block:
        given["block_size"] = block
    x = RANDOM.standard_normal((5, rows)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], **given),
        helper.make_node("MatMul", ["x", "f"], ["a"]),
        helper.make_node("Gemm", ["a", "f"], ["y"], transB=1),
    ]
    constants = [tensor("w", numbers, dtype), tensor("s", scale), tensor("z", points, dtype)]
    return model_of(nodes, {"x": x}, constants, outputs=["a", "y"]), {"x": x}


# (type, axis, block) -> the first target that stores it so, and by which operator.
STORED = {
    ("int8", None, 0): ("iOS16", "constexpr_affine_dequantize"),
    ("uint8", None, 0): ("iOS16", "constexpr_affine_dequantize"),
    ("int8", 0, 0): ("iOS16", "constexpr_affine_dequantize"),
    ("int8", 1, 0): ("iOS16", "constexpr_affine_dequantize"),
    ("uint8", 1, 0): ("iOS16", "constexpr_affine_dequantize"),
    ("int8", 0, 8): ("iOS18", "constexpr_blockwise_shift_scale"),
    ("int4", None, 0): ("iOS18", "constexpr_blockwise_shift_scale"),
    ("uint4", 1, 0): ("iOS18", "constexpr_blockwise_shift_scale"),
    ("int4", 0, 16): ("iOS18", "constexpr_blockwise_shift_scale"),
    ("uint4", 0, 16): ("iOS18", "constexpr_blockwise_shift_scale"),
    ("uint4", 0, 12): ("iOS18", "constexpr_blockwise_shift_scale"),  # the last block is not full
    ("int4", 0, 9): ("iOS99", ""),
    ("int16", None, 0): ("iOS99", ""),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", STORED, ids=str)
def test_weights_stay_quantized_where_the_target_can(
    coreml: CoremlConformance, kind: tuple[str, int | None, int], precision: str, target: str
) -> None:
    model, feeds = weighted(*kind)
    noise = 1e-5 if precision == "fp32" else 4e-3
    package = check(coreml, model, feeds, noise, minimum_target=target, precision=precision)
    since, operator = STORED[kind]
    found = {each for each in operators(package) if each.startswith("constexpr")}
    assert found == ({operator} if target >= since else set())


def test_the_file_is_as_small_as_its_numbers(coreml: CoremlConformance) -> None:
    model, feeds = weighted("int8", 1, rows=4096)
    package = check(coreml, model, feeds, 1e-5)
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    assert size < 2.3 * 4096 * 16  # for MatMul as it is, for Gemm turned


def test_scales_are_those_of_the_model(coreml: CoremlConformance) -> None:
    model, feeds = weighted("int8", 0)
    package = check(coreml, model, feeds, 1e-5)
    wanted = model.graph.initializers["s"].const_value.numpy()  # type: ignore[union-attr]
    (found, *_) = (
        each
        for each in read_package(package).functions["main"].block.operations
        if each.type == "constexpr_affine_dequantize"
    )
    held = found.attributes.get("scale") or found.inputs["scale"][0]
    assert np.array_equal(np.sort(np.asarray(held.value).reshape(-1)), np.sort(wanted))  # type: ignore[union-attr]


# ---- integers


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("size", [5, 300, 3000])
@pytest.mark.parametrize("constant", [True, False])
def test_integer_products_are_exact(
    coreml: CoremlConformance, constant: bool, size: int, precision: str
) -> None:
    """3,000 products of bytes pass 2^24, which float32 does not hold."""
    a = RANDOM.integers(200, 256, (2, size)).astype(np.uint8)
    b = RANDOM.integers(-128, -100, (size, 4)).astype(np.int8)
    a[0], b[:, 0] = 255, -128
    points = [tensor("za", np.array(3), "uint8"), tensor("zb", RANDOM.integers(0, 100, 4), "int8")]
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    feeds = {"a": a} if constant else {"a": a, "b": b}
    model = model_of([node], feeds, [*points, *([tensor("b", b)] if constant else [])])
    check(coreml, model, feeds, precision=precision)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_table_of_bytes_stays_one(dtype: type, tmp_path: Path) -> None:
    """Embeddings whose rows have scales of their own: Gather of the bytes, Cast, Mul."""
    random = np.random.default_rng(0)
    table = random.integers(0, 127, (400, 64)).astype(dtype)
    rows = np.array([[3, 399, 0], [7, 7, 12]], np.int64)
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["bytes"]),
        helper.make_node("Cast", ["bytes"], ["y"], to=TensorProto.FLOAT),
    ]
    model = model_of(nodes, {"i": rows}, [numpy_helper.from_array(table, "table")])
    package = tmp_path / "m.mlpackage"
    convert(model, package)
    assert sum(each.stat().st_size for each in package.rglob("*") if each.is_file()) < 1.5 * table.nbytes
    np.testing.assert_array_equal(evaluate(package, {"i": rows})["y"], table[rows].astype(np.float32))
