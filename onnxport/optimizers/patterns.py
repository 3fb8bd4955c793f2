"""What a pattern match asks about nodes and values."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.artifact import Dim
from onnxport.formats.model import dims_of

# Passes neither copy nor read constants of more bytes.
LARGE = 64 * 2**10


def is_op(node: ir.Node | None, *ops: str) -> bool:
    """Return whether a node is one of these operators of ONNX's own domain, or any of them if none is named."""
    return node is not None and node.domain == "" and (not ops or node.op_type in ops)


def producer(value: ir.Value | None, *ops: str) -> ir.Node | None:
    """Return the node that computes a value if it is one of these operators, or any if none is named."""
    node = None if value is None else value.producer()
    return node if is_op(node, *ops) else None


def array(value: ir.Value | None) -> Array | None:
    """Return the elements of a constant."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def number(value: ir.Value | None) -> float | None:
    """Return the one element of a constant."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    if value.const_value.dtype == ir.DataType.STRING:
        return None
    return float(value.const_value.numpy().item())


def scalar_operand(node: ir.Node, index: int) -> float | None:
    """Return the one element of a constant operand of a binary node; None if it raises the result's rank.

    x of shape [3] and a constant of shape [1, 1, 1] make [1, 1, 3]: a rewriting without the constant makes [3].
    """
    constant, other = node.inputs[index], node.inputs[1 - index]
    found = number(constant)
    if found is None or constant is None or constant.const_value is None:
        return None
    dims = len(constant.const_value.shape)
    return found if dims <= (rank_of(other) or 0) else None


def integers(value: ir.Value | None) -> list[int] | None:
    """Return the elements of a small constant of integers."""
    if value is None or value.const_value is None or value.const_value.size > LARGE // 8:
        return None
    found = value.const_value.numpy()
    return [int(each) for each in found.reshape(-1)] if found.dtype.kind in "iu" else None


def axes_of(node: ir.Node, index: int = 1, name: str = "axes") -> list[int] | None:
    """Return axes given as an attribute or, in newer opsets, as a constant operand; None if computed, empty if
    absent.
    """
    if name in node.attributes:
        return [int(each) for each in node.attributes[name].as_ints()]
    if len(node.inputs) > index and node.inputs[index] is not None:
        return integers(node.inputs[index])
    return []


def rank_of(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def known_dims(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """Return the dimensions of a value, also open ones; None if not even the rank is known."""
    return None if value is None or value.shape is None else dims_of(value)


def static_dims(value: ir.Value | None) -> list[int] | None:
    """Return the dimensions of a value if all are numbers."""
    dims = known_dims(value)
    sizes = [dim for dim in dims or () if isinstance(dim, int)]
    return sizes if dims is not None and len(sizes) == len(dims) else None


def same_shape(a: ir.Value | None, b: ir.Value | None) -> bool:
    """Return whether two values are known to have the same dimensions."""
    left, right = known_dims(a), known_dims(b)
    return left is not None and left == right and None not in left


def keeps_shape(reshape: ir.Node) -> bool:
    """Return whether a Reshape returns its operand: it copies each open size (0), or has it left over (-1)."""
    source, target = reshape.inputs[0], reshape.inputs[1] if len(reshape.inputs) > 1 else None
    if same_shape(source, reshape.outputs[0]):
        return True
    sizes, dims = integers(target), known_dims(source)
    if sizes is None or dims is None or len(sizes) != len(dims):
        return False
    if reshape.attributes.get_int("allowzero", 0) == 1:
        return False
    return all(size in (0, -1, dim) for size, dim in zip(sizes, dims, strict=True))


def only_use(value: ir.Value | None) -> bool:
    """Return whether a value has a single reader, which reads it once."""
    return value is not None and len(value.uses()) == 1 and not value.is_graph_output()
