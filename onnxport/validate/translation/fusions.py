"""Operators that ONNX Runtime's optimizer makes of several, written as these (docs/ContribOperators.md).

Given   FusedConv(x, w, b, z)                 Result  activation(Conv(x, w, b) + z)
Given   DynamicQuantizeMatMul(a, b, b_scale)  Result  MatMul(DequantizeLinear(DynamicQuantizeLinear(a)), b) + bias
Given   NhwcMaxPool(x)                        Result  MaxPool(x) between two Transposes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.validate.translation.rewrite import Rewrite

MICROSOFT = "com.microsoft"
# Activation behind a fused operator -> the names of its parameters in the node's order.
_ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}


def _number(place: Rewrite, value: float, what: str) -> ir.Value:
    return place.store(np.asarray(value, np.float32), what)


def _activated(place: Rewrite, value: ir.Value, parameters: Sequence[float]) -> ir.Value | None:
    name = place.node.attributes.get_string("activation", "")
    if not name:
        return value
    if name == "Clip" and len(parameters) == 2:
        for op, number in zip(("Max", "Min"), parameters, strict=True):
            value = place.add(op, [value, _number(place, number, f"clip.{op}")])
        return value
    names = _ACTIVATIONS.get(name)
    if names is None or len(names) != len(parameters):
        return None
    settings: dict[str, Any] = dict(zip(names, parameters, strict=True))
    return place.add(name, [value], **settings)


def _fused_conv(place: Rewrite) -> None:
    operands = [place.input(each) for each in range(3)]
    product = found = place.add("Conv", operands, **place.attributes("activation", "activation_params"))
    if place.input(3) is not None:
        found = place.add("Add", [product, place.input(3)])
    result = _activated(place, found, place.node.attributes.get_floats("activation_params", ()))
    if result is not None:
        place.finish(result, None, named=product)


def _fused_gemm(place: Rewrite) -> None:
    names = [f"activation_{each}" for each in ("alpha", "beta", "gamma")]
    given = [place.node.attributes[each].as_float() for each in names if each in place.node.attributes]
    product = place.add(
        "Gemm", [place.input(each) for each in range(3)], **place.attributes("activation", *names)
    )
    result = _activated(place, product, given)
    if result is not None:
        place.finish(result, None, named=product)


def _fused_matrix_product(place: Rewrite) -> None:
    """Factors of both matrices, of which the last two axes may be exchanged, after the first one went behind stacks."""
    attributes, operands = place.node.attributes, []
    for index, name in enumerate("AB"):
        value = place.input(index)
        is_turned, is_stacked = (attributes.get_int(f"{each}{name}", 0) for each in ("trans", "transBatch"))
        if is_turned or is_stacked:
            rank = _rank(value)
            if rank is None:
                return
            order = [*range(1, rank - 1), 0, rank - 1] if is_stacked else [*range(rank)]
            if is_turned:
                order[-2:] = order[:-3:-1]
            value = place.add("Transpose", [value], perm=order)
        operands.append(value)
    product = found = place.add("MatMul", operands)
    alpha = attributes.get_float("alpha", 1.0)
    if alpha != 1.0:
        found = place.add("Mul", [product, _number(place, alpha, "alpha")])
    place.finish(found, None, named=product)


def _rank(value: ir.Value | None) -> int | None:
    if value is None:
        return None
    tensor = constant_tensor(value)
    return None if value.shape is None and tensor is None else len((tensor or value).shape or ())


def _gelu(place: Rewrite) -> None:
    """x * (1 + erf(x / sqrt(2))) / 2, of x + bias."""
    if place.node.domain != MICROSOFT:
        return
    value = place.input(0)
    if place.input(1) is not None:
        value = place.add("Add", [value, place.input(1)])
    gate = place.add("Erf", [place.add("Mul", [value, _number(place, 0.5**0.5, "root")])])
    gate = place.add("Add", [gate, _number(place, 1.0, "one")])
    gate = place.add("Mul", [gate, _number(place, 0.5, "half")])
    place.finish(place.add("Mul", [value, gate]), None)


def _quick_gelu(place: Rewrite) -> None:
    """x * sigmoid(alpha * x)."""
    value, alpha = place.input(0), place.node.attributes.get_float("alpha", 1.702)
    inner = value
    if alpha != 1.0:
        inner = place.add("Mul", [value, _number(place, alpha, "alpha")])
    place.finish(place.add("Mul", [value, place.add("Sigmoid", [inner])]), None)


def _skip_layer_normalization(place: Rewrite) -> None:
    """LayerNormalization of a sum; its only other result may be the sum."""
    if any(each.uses() for each in place.node.outputs[1:3]):
        return
    total = place.add("Add", [place.input(0), place.input(1)])
    if place.input(4) is not None:
        total = place.add("Add", [total, place.input(4)])
    operands = [total, place.input(2), *([place.input(3)] if place.input(3) is not None else [])]
    epsilon = place.node.attributes.get_float("epsilon", 1e-5)
    found = place.add("LayerNormalization", operands, axis=-1, epsilon=epsilon)
    if len(place.node.outputs) > 3:
        place.node.outputs[3].replace_all_uses_with(total)
    place.finish(found, None)


# ---- channels last


def channels_first(place: Rewrite, value: ir.Value | None, rank: int) -> ir.Value:
    return place.add("Transpose", [value], perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(place: Rewrite, value: ir.Value, rank: int) -> ir.Value:
    return place.add("Transpose", [value], perm=[0, *range(2, rank), 1])


def _max_pool(place: Rewrite) -> None:
    rank = len(place.node.attributes.get_ints("kernel_shape", ())) + 2
    found = place.add("MaxPool", [channels_first(place, place.input(0), rank)], **place.attributes())
    place.finish(channels_last(place, found, rank), None, keep=place.node, named=found)


# ---- products whose scales are found at run time


def _dynamic_product(place: Rewrite) -> None:
    """DynamicQuantizeMatMul(a, b, b_scale, b_zero_point, bias)."""
    data = place.input(0)
    integers = place.add("DynamicQuantizeLinear", [data], outputs=3)
    maker = integers.producer()
    assert maker is not None
    floats = place.add("DequantizeLinear", list(maker.outputs))
    _finish_product(place, floats, 1, 2, 3, 4)


def _product_to_float(place: Rewrite) -> None:
    """MatMulIntegerToFloat(a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias)."""
    floats = place.add("DequantizeLinear", [place.input(0), place.input(2), place.input(4)])
    _finish_product(place, floats, 1, 3, 5, 6)


def _finish_product(place: Rewrite, floats: ir.Value, weight: int, scale: int, zero: int, bias: int) -> None:
    steps, points = place.constant(scale), place.constant(zero)
    if steps is None or (place.input(zero) is not None and points is None):
        return
    is_wide = steps.size > 1
    flat: Array = steps.reshape(-1) if is_wide else steps.reshape(())
    operands = [place.input(weight), place.store(flat.astype(np.float32), "weight.scale")]
    if points is not None:
        wanted = np.broadcast_to(points.reshape(-1), flat.shape) if is_wide else points.reshape(-1)[0]
        operands.append(place.store(np.array(wanted, points.dtype), "weight.zero"))
    matrix = place.add("DequantizeLinear", operands, **({"axis": -1} if is_wide else {}))
    product = found = place.add("MatMul", [floats, matrix])
    if place.input(bias) is not None:
        found = place.add("Add", [product, place.input(bias)])
    place.finish(found, None, named=product)


FUSIONS: Mapping[str, Callable[[Rewrite], None]] = {
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matrix_product,
    "BiasGelu": _gelu,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
    "NhwcMaxPool": _max_pool,
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product_to_float,
}
