"""Weights in few bits: what coremltools decompresses them to, the evaluator does as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.mlprogram.evaluator import Evaluator
from tests.runtimes.mlprogram.draws import Random, axis_of, flag, shape_of
from tests.runtimes.mlprogram.programs import save, target

Arguments = dict[str, Any]
COUNT = 20


def packed(numbers: Any, bits: int) -> Any:
    flags = (numbers.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(flags.astype(np.uint8), bitorder="little")


def floats(random: Random, *shape: int) -> Any:
    return random.uniform(0.1, 2, shape).astype(random.choice(["float16", "float32"]))


def affine(random: Random) -> Arguments:
    data = random.integers(0, 255, shape_of(random, 1, 4)).astype(random.choice(["int8", "uint8"]))
    axis = axis_of(random, data.ndim)
    shape = (data.shape[axis],) if flag(random) else ()
    zero_point = random.integers(0, 100, shape).astype(data.dtype)
    return {"quantized_data": data, "axis": axis, "scale": floats(random, *shape), "zero_point": zero_point}


def table(random: Random) -> Arguments:
    shape, bits = shape_of(random, 1, 4), int(random.choice([1, 2, 4, 6, 8]))
    indices = packed(random.integers(0, 2**bits, shape), bits)
    return {"indices": indices, "lut": floats(random, 2**bits), "shape": np.array(shape, np.uint32)}


def sparse(random: Random) -> Arguments:
    mask = random.integers(0, 2, shape_of(random, 1, 4))
    mask.flat[0] = 1
    shape = np.array(mask.shape, np.uint32)
    return {"mask": packed(mask, 1), "nonzero_data": floats(random, int(mask.sum())), "shape": shape}


def halves(random: Random) -> Arguments:
    data = random.standard_normal(shape_of(random, 1, 4)).astype(np.float16)
    return {"source_val": data, "output_dtype": "fp32"}


def narrow(random: Random, shape: Any, kinds: list[str]) -> Any:
    from coremltools.converters.mil.mil import types

    kind = str(random.choice(kinds))
    signed, bits = not kind.startswith("u"), int(kind.removeprefix("u").removeprefix("int"))
    low = -(2 ** (bits - 1)) if signed else 0
    numbers = random.integers(low, low + 2**bits, shape)
    return numbers.astype(types.nptype_from_builtin(types.string_to_builtin(kind)))


INTEGERS = ["int4", "uint4", "int8", "uint8"]


def blocked(random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and how many blocks each of its dimensions has."""
    blocks = shape_of(random, 1, 3, 3)
    return tuple(int(each * random.integers(1, 4)) for each in blocks), blocks


def blockwise(random: Random) -> Arguments:
    shape, blocks = blocked(random)
    data = narrow(random, shape, INTEGERS)
    given = {"data": data, "scale": floats(random, *blocks)}
    return given | ({"offset": np.resize(data, blocks)} if flag(random) else {})


def tables(random: Random) -> Arguments:
    shape, blocks = blocked(random)
    bits, vector = int(random.choice([1, 2, 3, 4, 6, 8])), int(random.choice([1, 2, 3]))
    indices, axis = narrow(random, shape, [f"uint{bits}"]), axis_of(random, len(shape)) % len(shape)
    given = {"indices": indices, "lut": floats(random, *blocks, 2**bits, vector)}
    return given | ({"vector_axis": axis} if vector > 1 else {})


def masked(random: Random, shape: Any) -> Any:
    mask = narrow(random, shape, ["uint1"])
    mask.flat[0] = 1
    return mask


def sparse_bits(random: Random) -> Arguments:
    mask = masked(random, shape_of(random, 1, 4))
    return {"mask": mask, "nonzero_data": floats(random, int(mask.astype(int).sum()))}


def sparse_tables(random: Random) -> Arguments:
    given = tables(random)
    indices = given.pop("indices")
    mask = masked(random, indices.shape)
    return given | {"indices_mask": mask, "indices_nonzero_data": indices[mask != 0]}


def sparse_blockwise(random: Random) -> Arguments:
    given = blockwise(random)
    data = given.pop("data")
    mask = masked(random, data.shape)
    return given | {"data_mask": mask, "nonzero_data": data[mask != 0]}


CASES: list[tuple[str, str, Callable[[Random], Arguments]]] = [
    ("constexpr_affine_dequantize", "iOS16", affine),
    ("constexpr_lut_to_dense", "iOS16", table),
    ("constexpr_sparse_to_dense", "iOS16", sparse),
    ("constexpr_cast", "iOS16", halves),
    ("constexpr_blockwise_shift_scale", "iOS18", blockwise),
    ("constexpr_lut_to_dense", "iOS18", tables),
    ("constexpr_sparse_to_dense", "iOS18", sparse_bits),
    ("constexpr_lut_to_sparse", "iOS18", sparse_tables),
    ("constexpr_sparse_blockwise_shift_scale", "iOS18", sparse_blockwise),
    ("constexpr_cast", "iOS18", halves),
]


@pytest.mark.parametrize(("operator", "opset", "draw"), CASES)
def test_decompressed_as_apple_does(
    operator: str, opset: str, draw: Callable[[Random], Arguments], tmp_path: Path
) -> None:
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.mil import Function, Placeholder, Program

    random = np.random.default_rng(crc32(f"{operator}{opset}".encode()))
    program, outputs, expected = Program(), [], []
    with Function({"unused": Placeholder((1,), name="unused")}, opset_version=target(opset)) as function:
        for _ in range(COUNT):
            made = getattr(Builder, operator)(**draw(random))
            given = made[0].op.materialized_val_inference() if isinstance(made, tuple | list) else None
            results = list(made) if given is not None else [made]
            expected += list(given) if given is not None else [made.op.materialized_val_inference()]
            outputs += results
    function.set_outputs(outputs)
    program.add_function("main", function)
    evaluator = Evaluator(read_package(save(program, tmp_path, opset)).functions["main"])
    first, found = (evaluator.run({"unused": np.zeros(1, np.float32)}) for _ in range(2))
    for output, wanted in zip(outputs, expected, strict=True):
        given, wanted = (np.asarray(each).astype(np.float32) for each in (found[output.name], wanted))
        assert given.shape == wanted.shape
        np.testing.assert_array_equal(first[output.name], found[output.name])
        np.testing.assert_allclose(given, wanted, 1e-3 if found[output.name].dtype == np.float16 else 1e-6)
