"""Powers of negative numbers: the GPU takes the base for positive."""

from __future__ import annotations

from math import prod

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.fit.operation import TflOp, elements, is_constant, maker, sizes
from onnxport.converters.tflite.tensors import Tensor

# Exponents of one number that it computes right for every base; even ones are, too.
_RIGHT = frozenset((0.5, 1.5, -0.5, 3.0))

# Their results are never below 0.
_POSITIVE = frozenset("abs exp logistic relu relu6 rsqrt softmax sqrt square".split())
_POSITIVE_FUSED = frozenset(('"RELU"', '"RELU6"', '"RELU_0_TO_1"'))
# Nor are theirs if no operand is.
_KEEPS_SIGN = frozenset(
    (
        "add average_pool_2d concatenation div gather max_pool_2d maximum mean minimum mul pad pow reduce_max "
        "reduce_min reshape slice split strided_slice sum tile transpose"
    ).split()
)


def is_wrong(op: TflOp) -> bool:
    """Return whether a POW may meet a negative base with which the GPU computes wrongly."""
    exponent = op.constant(1)
    if exponent is not None:
        is_whole_and_even = bool((exponent % 2 == 0).all())
        if is_whole_and_even or (exponent.size == 1 and exponent.item() in _RIGHT):
            return False
    return not _is_positive(op.x)


def _is_positive(base: Tensor) -> bool:
    """Return whether what computes a tensor keeps it from numbers below 0."""
    waiting, seen = [base], set[Tensor]()
    while waiting:
        current = waiting.pop()
        made_by = maker(current)
        if made_by is None or (is_constant(current) and not _is_positive_constant(current)):
            return False
        if current in seen or is_constant(current) or _makes_positive(made_by):
            continue
        seen.add(current)
        if made_by.name.removeprefix("tfl.") not in _KEEPS_SIGN:
            return False
        waiting += made_by.operands
    return True


def _is_positive_constant(tensor: Tensor) -> bool:
    found = elements(tensor)
    return found is not None and bool((found >= 0).all())


def _makes_positive(operation: ir.Operation) -> bool:
    name = operation.name.removeprefix("tfl.")
    fused = str(operation.attributes.get("fused_activation_function", ""))
    is_raised = name == "maximum" and any(map(_is_positive_constant, operation.operands))
    return name in _POSITIVE or fused in _POSITIVE_FUSED or is_raised


def power(op: TflOp) -> Tensor:
    """Emit POW of the absolute base, with its sign where the exponent is odd, and NaN where it is not whole."""
    tfl, (base, exponent) = op.tfl, op.operands
    known, own = elements(exponent), sizes(exponent)
    if known is not None and known.size == 1 and known.item() == -1:
        return tfl.op("div", [tfl.constant(1, np.float32), base], op.out)
    is_negative = tfl.op("less", [base, tfl.constant(0, np.float32)], op.shape, bool)
    result = op.again([tfl.op("abs", [base], op.shape), exponent], op.out)
    if known is None:
        two = tfl.constant(2, np.float32)
        rest = tfl.op("floor_mod", [exponent, two], own)
        is_odd = tfl.op("equal", [rest, tfl.constant(1, np.float32)], own, bool)
        whole = tfl.op("floor", [exponent], own)
        is_broken = tfl.op("not_equal", [exponent, whole], own, bool)
    else:
        is_odd = tfl.constant(known % 2 == 1)
        is_broken = tfl.constant(known != np.floor(known))
    if known is None or (known % 2 == 1).any():
        result = tfl.op("mul", [result, _choose(op, is_negative, is_odd, 1)], op.out)
    if known is None or (known != np.floor(known)).any():
        undefined = tfl.op("sqrt", [_choose(op, is_negative, is_broken, 0)], op.out)
        result = tfl.op("add", [result, undefined], op.out)
    return result


def _choose(op: TflOp, first: Tensor, second: Tensor, otherwise: float) -> Tensor:
    """Return -1 where both flags are set, and another number where not."""
    tfl = op.tfl
    is_one_constant = is_constant(second) and prod(sizes(second)) == 1  # then it is set
    both = first if is_one_constant else tfl.op("logical_and", [first, second], op.out)
    numbers = [tfl.constant(each, np.float32) for each in (-1, otherwise)]
    return tfl.op("select_v2", [both, *numbers], op.out, np.float32)


def make_base_variable(op: TflOp) -> Tensor:
    """Emit POW of a base that is computed, max(min(exponent, base), base): of a constant the GPU makes the exponent."""
    constant, exponent = op.operands
    base = op.tfl.op("minimum", [exponent, constant], op.out)
    base = op.tfl.op("maximum", [base, constant], op.out)
    return op.again([base, exponent], op.out)
