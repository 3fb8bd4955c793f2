"""Gelu, which exporters of an older opset write as several nodes; `decompose` expands it for targets without it."""

from __future__ import annotations

from math import isclose, sqrt

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers.patterns import is_op, only_use


def fuse_gelu(model: Model) -> None:
    """Replace x * (1 + erf(x / sqrt(2))) / 2 by Gelu(x), which ONNX has since opset 20.

    Keeps: a pattern with a constant of more dimensions than x, which raises the rank of the result.
    """
    for node in list(model.graph):
        if node.op_type == "Erf" and node.domain == "" and (match := _gelu(node)) is not None:
            x, result = match
            last = result.producer()
            assert last is not None
            gelu = ir.node("Gelu", [x], {"approximate": "none"})
            name, result.name = result.name, None
            new = gelu.outputs[0]
            new.name, new.shape, new.type = name, result.shape, result.type
            model.graph.insert_before(last, gelu)
            result.replace_all_uses_with(new, replace_graph_outputs=True)
            _remove_unused(model.graph, last)


def _gelu(erf: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Return the operand x and the result of the pattern around an Erf node."""
    x = _scaled_operand(erf.inputs[0], 1 / sqrt(2))
    plus_one = _only_user(erf.outputs[0], "Add")
    if x is None or plus_one is None or not _is_number(_other(plus_one, erf.outputs[0]), 1.0, x):
        return None
    product = _only_user(plus_one.outputs[0], "Mul")
    if product is None:
        return None
    factor, last = _other(product, plus_one.outputs[0]), product
    if factor is x:
        halved = _only_user(product.outputs[0], "Mul", "Div")
        is_gelu = halved is not None and _scaled_operand(halved.outputs[0], 0.5) is product.outputs[0]
        last = halved or product
    elif _is_number(factor, 0.5, x):
        scaled = _only_user(product.outputs[0], "Mul")
        is_gelu = scaled is not None and _other(scaled, product.outputs[0]) is x
        last = scaled or product
    else:
        is_gelu = _scaled_operand(factor, 0.5) is x
    return (x, last.outputs[0]) if is_gelu else None


def _scaled_operand(value: ir.Value | None, factor: float) -> ir.Value | None:
    """Return x where `value` is `factor` times x, of the rank of x."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "" or node.op_type not in ("Mul", "Div"):
        return None
    first, second = node.inputs
    if node.op_type == "Div":
        return first if _is_number(second, 1 / factor, first) else None
    if _is_number(second, factor, first):
        return first
    return second if _is_number(first, factor, second) else None


def _only_user(value: ir.Value, *ops: str) -> ir.Node | None:
    user = value.consumers()[0] if only_use(value) else None
    return user if is_op(user, *ops) else None


def _other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


def _is_number(value: ir.Value | None, number: float, other: ir.Value | None) -> bool:
    """Return whether a constant is `number`, rounded to its type, and has no more dimensions than `other`."""
    if value is None or value.const_value is None or value.const_value.size != 1 or other is None:
        return False
    constant = value.const_value.numpy()
    # With `other` read as [3], the result of a constant [1, 1, 1] is [1, 1, 3].
    if constant.ndim > (0 if other.shape is None else len(other.shape)):
        return False
    if constant.dtype.itemsize < 4:  # the next float16 is another number: no decimal text is rounded so far
        return bool(constant.item() == np.array(number, constant.dtype).item())
    return isclose(float(constant.item()), number, rel_tol=1e-6)


def _remove_unused(graph: ir.Graph, node: ir.Node) -> None:
    """Remove a node without readers, and then producers that it alone read."""
    if any(value.uses() or value.is_graph_output() for value in node.outputs):
        return
    producers = [value.producer() for value in node.inputs if value is not None]
    graph.remove(node, safe=True)
    for producer in producers:
        if producer is not None and producer.graph is graph:
            _remove_unused(graph, producer)
