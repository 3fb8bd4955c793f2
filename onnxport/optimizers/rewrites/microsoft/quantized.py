"""Products and lookups of quantized matrices with float ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.registry import Rewrite, refuse, rewrites


@rewrites("com.microsoft::QuantizeLinear", "com.microsoft::DequantizeLinear")
def linear(node: Rewrite) -> None:
    """Rewrite as ONNX's own operators of these names."""
    node.emit(node.op(node.node.op_type, *node.inputs(), axis=node.attribute("axis")))


@rewrites("com.microsoft::DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: Rewrite) -> None:
    """Quantize A over its own range, multiply by B, and scale back."""
    a, scale, zero_point = node.op("DynamicQuantizeLinear", node.input(0), outputs=3)
    b = node.input(1), node.input(2), node.optional(3)
    _scaled_product(node, (a, scale, zero_point), b, node.optional(4))


@rewrites("com.microsoft::MatMulIntegerToFloat")
def matmul_integer_to_float(node: Rewrite) -> None:
    """Multiply two quantized matrices and scale the product back to float."""
    a, b = ((node.input(i), node.input(i + 2), node.optional(i + 4)) for i in (0, 1))
    _scaled_product(node, a, b, node.optional(6))


Quantized = tuple[ir.Value, ir.Value, ir.Value | None]


def _scaled_product(node: Rewrite, a: Quantized, b: Quantized, bias: ir.Value | None) -> None:
    product = node.op("Cast", node.op("MatMulInteger", a[0], b[0], a[2], b[2]), to=ir.DataType.FLOAT)
    result = node.op("Mul", product, node.op("Mul", a[1], b[1]))
    node.emit(result if bias is None else node.op("Add", result, bias))


@rewrites("com.microsoft::MatMulNBits")
def matmul_nbits(node: Rewrite) -> None:
    """Multiply A by B transposed, whose rows are quantized in blocks of `block_size`."""
    node.ignore("accuracy_level")  # how ONNX Runtime may round A to be faster
    bits, block = node.attribute("bits", 4), node.attribute("block_size")
    rows, columns = node.attribute("N"), node.attribute("K")
    if bits not in (4, 8) or node.attribute("weight_prepacked", 0):
        node.unsupported(
            f"weights of {bits} bits, or prepacked ones; only plain weights of 4 and 8 bits are supported"
        )
    if node.has_input(4):
        node.unsupported("its columns are reordered (g_idx); quantize without act_order")
    blocks = -(-columns // block)
    weights = _unpack(node.constant(1, "its weights").reshape(rows, blocks, -1), bits)
    scales = node.constant(2, "its scales").reshape(rows, blocks)
    points = _zero_points(node, 3, (rows, blocks), bits)
    wide = (weights.astype(np.float32) - points[..., None]) * scales[..., None].astype(np.float32)
    matrix = wide.reshape(rows, -1)[:, :columns].T
    result = node.op("MatMul", node.input(0), np.ascontiguousarray(matrix, node.dtype(node.input(0))))
    node.emit(node.op("Add", result, node.input(5)) if node.has_input(5) else result)


def _unpack(packed: Array, bits: int) -> Array:
    """Unpack bytes along the last axis; of two numbers in a byte the first has the low bits."""
    if bits == 8:
        return packed
    pairs = np.stack([packed & 0xF, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1)


def _zero_points(node: Rewrite, index: int, shape: tuple[int, ...], bits: int) -> Array:
    """Return each block's zero point as float32: the middle of the range if none is given."""
    if not node.has_input(index):
        return np.full(shape, 2 ** (bits - 1), np.float32)
    given = node.constant(index, "its zero points")
    if given.dtype.kind == "f":
        return given.reshape(shape).astype(np.float32)
    rows = _unpack(given.reshape(*shape[:-1], -1), bits)
    return rows[..., : shape[-1]].astype(np.float32)


@rewrites("com.microsoft::GatherBlockQuantized")
def gather_block_quantized(node: Rewrite) -> None:
    """Gather rows of a table quantized in blocks; only the rows are scaled back."""
    table, scales = node.constant(0, "its table"), node.constant(2, "its scales")
    bits, block = node.attribute("bits", 4), node.attribute("block_size", 128)
    rank = table.ndim
    gathered, quantized = node.attribute("gather_axis", 0), node.attribute("quantize_axis", 1)
    if gathered % rank or quantized % rank != rank - 1 or rank != 2:
        node.unsupported("its blocks do not lie along the rows that it picks")
    packed = table.dtype == np.uint8
    if bits not in (4, 8):
        node.unsupported(f"a table of {bits} bits")
    numbers = _unpack(table, bits) if packed else table
    columns = numbers.shape[1]
    if columns % block:
        node.unsupported(f"rows of {columns} that blocks of {block} do not fill")
    if packed:
        points = _zero_points(node, 3, scales.shape, bits)
    else:
        given = node.constant(3, "its zero points") if node.has_input(3) else np.zeros(scales.shape)
        points = given.astype(np.float32)
    # Less the zero point a number has one bit more, so that one of 8 bits may need 16.
    centred = numbers.astype(np.int16) - np.repeat(points, block, axis=1).astype(np.int16)
    if np.abs(centred).max(initial=0) <= np.iinfo(np.int8).max:
        centred = centred.astype(np.int8)
    dtype = node.dtype(node.input(2))
    indices = node.input(1)
    picked = node.op("Cast", node.op("Gather", centred, indices), to=ir.DataType.from_numpy(dtype))
    lead = [0] * len(node.shape(indices))
    blocks = node.op("Reshape", picked, np.array([*lead, columns // block, block]))
    scaled = node.op("Mul", blocks, node.op("Unsqueeze", node.op("Gather", scales, indices), np.array([-1])))
    node.emit(node.op("Reshape", scaled, np.array([*lead, columns])))


refuse(
    "com.microsoft::DynamicQuantizeLSTM",
    "rounds its state anew in every step; give --dynamic-quantization float, or quantize the model without its LSTMs",
)
