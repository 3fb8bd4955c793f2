"""Notes on the products of a compiled module: which compute in integers, and why the others do not."""

from __future__ import annotations

import re
from collections.abc import Iterable

from litert_converter.mlir import ir

from onnxport.converters.tflite.quantized.quantization import is_barrier, is_float, producer
from onnxport.formats.tflite.tensor_names import INNER

# tfl op -> its name in notes.
_PRODUCTS = {
    "tfl.batch_matmul": "matrix product",
    "tfl.conv_2d": "convolution",
    "tfl.conv_3d": "convolution",
    "tfl.conv_3d_transpose": "transposed convolution",
    "tfl.depthwise_conv_2d": "convolution",
    "tfl.fully_connected": "matrix product",
    "tfl.transpose_conv": "transposed convolution",
}
_THREE_DIMENSIONAL = frozenset({"tfl.conv_3d", "tfl.conv_3d_transpose"})
# tfl op -> the positions of its data operands, if not (0,).
_DATA = {"tfl.batch_matmul": (0, 1), "tfl.conv_3d_transpose": (2,), "tfl.transpose_conv": (2,)}
_NAMED = 10


def describe_products(operations: Iterable[ir.Operation]) -> tuple[str, ...]:
    """Write notes on the products among a compiled module's operations."""
    products = [operation for operation in operations if operation.name in _PRODUCTS]
    floats = [operation for operation in products if not _storage(operation.results[0])]
    if not products:
        return ()
    count = len(products) - len(floats)
    storage = " and ".join(sorted({_storage(operation.results[0]) for operation in products} - {""}))
    notes = [
        f"{count} of {len(products)} convolutions and matrix products compute in {storage or 'integers'}"
    ]
    for operation in floats[:_NAMED]:
        name = str(getattr(operation.location, "name_str", "")).split(INNER)[0]
        notes.append(f"{_PRODUCTS[operation.name]} {name!r} stays in float32: {_why_float(operation)}")
    if len(floats) > _NAMED:
        notes.append(f"{len(floats) - _NAMED} more stay in float32")
    return tuple(notes)


def _why_float(operation: ir.Operation) -> str:
    if operation.name in _THREE_DIMENSIONAL:
        return "TFLite has no integer kernel for three axes"
    if len(widths := _widths(operation)) > 1:
        mixed = " and ".join(sorted(widths))
        return f"it has {mixed} around it, and TFLite's kernels take integers of one width"
    factors = [operand for operand in operation.operands if is_float(operand)][:2]
    if operation.name == "tfl.transpose_conv":
        factors.reverse()
    data, weights = (producer(factor) == "dequantize" for factor in factors)
    if not data:
        return "its input is not quantized"
    if not weights:
        second = "second operand" if operation.name == "tfl.batch_matmul" else "weights"
        return f"its {second} are not quantized, or not as TFLite's kernels take them (symmetric, by output channel)"
    return "its result is not quantized, or used unquantized as well"


def _widths(operation: ir.Operation) -> set[str]:
    """Return the integer types that an operation's data come from, and those that its result goes to."""
    data = [operation.operands[place] for place in _DATA.get(operation.name, (0,))]
    sources = [
        tensor.owner.operation for tensor in map(_skip_barrier, data) if producer(tensor) == "dequantize"
    ]
    users = [use.owner for use in operation.results[0].uses]
    users += [use.owner for user in users if is_barrier(user) for use in user.results[0].uses]
    read = {_storage(source.operands[0]) for source in sources}
    return read | {_storage(user.results[0]) for user in users if user.name == "tfl.quantize"}


def _skip_barrier(tensor: ir.Value) -> ir.Value:
    """Return the operand of the barrier that gives `tensor`; `tensor` itself if none does."""
    if isinstance(tensor.owner, ir.Block) or not is_barrier(tensor.owner.operation):
        return tensor
    return tensor.owner.operation.operands[0]


def _storage(tensor: ir.Value) -> str:
    """Return the integer type of a quantized tensor; empty for any other."""
    found = re.match(r"!quant\.uniform<[iu](\d+)", str(ir.RankedTensorType(tensor.type).element_type))
    return f"int{found[1]}" if found else ""
