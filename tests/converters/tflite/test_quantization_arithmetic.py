"""Quantization by run-time scales, and integer products, to the bit as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.core.errors import CannotConvertError
from tests.conformance.tflite import Array, Conformance
from tests.converters.tflite.models import model_of, run_onnx

Random = np.random.Generator
# Op, its inputs in order (None is an absent one), attributes.
Drawn = tuple[str, list[Array | None], dict[str, Any]]
TYPES = (np.int8, np.uint8, np.int16, np.uint16)
SEEDS = 12  # for each op; hundreds were run when they were written


@pytest.fixture(scope="module")
def conformance() -> Iterator[Conformance]:
    with Conformance() as conformance:
        yield conformance


def whole(random: Random, dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scaling(random: Random, shape: list[int], dtype: Any) -> tuple[Array, Array | None, dict[str, Any]]:
    """A scale and perhaps a zero point, for the tensor, along an axis, or in blocks."""
    axis, how = int(random.integers(len(shape))), random.choice(["tensor", "axis", "blocks"])
    attributes: dict[str, Any] = (
        {} if how == "tensor" else {"axis": axis - len(shape) * int(random.integers(2))}
    )
    size: list[int] = [] if how == "tensor" else [shape[axis]]
    if how == "blocks":
        attributes["block_size"] = 2
        size = [-(-n // 2) if i == axis else n for i, n in enumerate(shape)]
    scale = random.choice([0.5, 0.25, 0.1, 0.03, 1.0], size).astype(np.float32)
    zero_point = whole(random, dtype, *size) if random.integers(2) or dtype != np.uint8 else None
    return scale, zero_point, attributes


def quantize(random: Random) -> Drawn:
    shape, dtype = random.integers(1, 5, random.integers(1, 5)).tolist(), random.choice(TYPES)
    scale, zero_point, attributes = scaling(random, shape, dtype)
    # Ties for scales that are powers of two, and what has to saturate; ONNX Runtime's blocks overflow instead.
    factors = [1, 1, 300, 1e6, *([] if "block_size" in attributes else [1e30])]
    x = (random.integers(-9, 10, shape) / 4 * random.choice(factors, shape)).astype(np.float32)
    return "QuantizeLinear", [x, scale, zero_point], attributes


def dequantize(random: Random) -> Drawn:
    shape, dtype = random.integers(1, 5, random.integers(1, 5)).tolist(), random.choice(TYPES)
    scale, zero_point, attributes = scaling(random, shape, dtype)
    return "DequantizeLinear", [whole(random, dtype, *shape), scale, zero_point], attributes


def dynamic_quantize(random: Random) -> Drawn:
    x = random.standard_normal(random.integers(1, 6, 2)).astype(np.float32) * random.choice([0, 1, 1e-3, 1e3])
    return "DynamicQuantizeLinear", [(x + random.choice([0, 0, 2, -2])).astype(np.float32)], {}


def matmul_integer(random: Random) -> Drawn:
    types = [random.choice(TYPES[:2]) for _ in range(2)]
    rows, inner, columns = random.integers(1, 6), int(random.choice([1, 3, 300, 5000])), random.integers(1, 6)
    leading = [((), ()), ((2,), ()), ((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), ()), ((), (2,))]
    left, right = leading[random.integers(len(leading))]
    a, b = whole(random, types[0], *left, rows, inner), whole(random, types[1], *right, inner, columns)
    za = [None, whole(random, types[0]), whole(random, types[0], 1)][random.integers(3)]
    zb = [None, whole(random, types[1]), whole(random, types[1], columns)][random.integers(3)]
    return "MatMulInteger", [a, b, za, zb], {}


def conv_integer(random: Random) -> Drawn:
    groups, kernel = int(random.choice([1, 1, 2])), random.integers(1, 4, 2).tolist()
    inner, outer = groups * int(random.choice([1, 3, 600])), groups * int(random.integers(1, 3))
    x, w = whole(random, np.uint8, 1, inner, 5, 6), whole(random, np.uint8, outer, inner // groups, *kernel)
    if random.integers(3) == 0:  # sums as large as they come
        x, w = np.full_like(x, 255), np.full_like(w, 255)
    points = [whole(random, np.uint8) if random.integers(2) else None for _ in range(2)]
    attributes = {"group": groups, "pads": [1, 0, 0, 1], "strides": random.integers(1, 3, 2).tolist()}
    return "ConvInteger", [x, w, *points], attributes


FAMILIES: list[Callable[[Random], Drawn]] = [
    quantize,
    dequantize,
    dynamic_quantize,
    matmul_integer,
    conv_integer,
]


@pytest.mark.parametrize("bound", [False, True], ids=["fed", "bound"])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_nodes_answer_to_the_bit(
    conformance: Conformance, family: Callable[[Random], Drawn], bound: bool
) -> None:
    results = [check(conformance, family, seed, bound) for seed in range(SEEDS)]
    assert not [result for result in results if result not in ("", "refused")]
    assert results.count("refused") <= SEEDS // 5


def check(conformance: Conformance, family: Callable[[Random], Drawn], seed: int, bound: bool) -> str:
    """Return how the answers differ; empty if they do not, or if ONNX Runtime does not take the node."""
    random = np.random.default_rng(seed)
    op, inputs, attributes = family(random)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True) if x is not None}
    feeds = {"x0": given["x0"]} if bound else given
    constants = [numpy_helper.from_array(x, name) for name, x in given.items() if name not in feeds]
    outputs = ["y", "scale", "point"] if op.startswith("Dynamic") else ["y"]
    node = helper.make_node(op, names, outputs, op, **attributes)
    is_open = (
        op in ("QuantizeLinear", "MatMulInteger") and "axis" not in attributes and bool(random.integers(2))
    )
    model = model_of(
        [node], feeds, constants, open_dims={"x0": [None, *feeds["x0"].shape[1:]]} if is_open else {}
    )
    try:
        expected = run_onnx(model, feeds)
    except Exception:
        return ""
    try:
        answer = conformance.convert_and_run(model, [feeds])[0]
    except CannotConvertError:
        return "refused"
    found = [
        name for name, x in expected.items() if x.dtype != answer[name].dtype or (x != answer[name]).any()
    ]
    return (
        f"{seed}: {helper.printable_node(node)} {[x.shape for x in given.values()]}: {found}" if found else ""
    )


@pytest.mark.parametrize("inner", [1032, 1041])
def test_large_sums_with_a_constant_matrix_are_exact(conformance: Conformance, inner: int) -> None:
    """Floats hold the sum of 1,032 products of -127, and not the odd one of 1,041."""
    a, b = np.full((2, inner), -127, np.int8), np.full((inner, 3), -127, np.int8)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    model = model_of([node], {"a": a}, [numpy_helper.from_array(b, "b")])
    answer = conformance.convert_and_run(model, [{"a": a}])[0]["y"]
    assert (answer == inner * 127 * 127).all()
