"""Shape rules of elementwise operators, with the arithmetic of exporters on sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.shapes.analysis import Rule, Site
from onnxport.samples.shapes.fact import MOST_ELEMENTS, UNKNOWN, Element, Fact, fixed

_INTEGERS = frozenset(range(2, 8)) | {9, 12, 13}  # TensorProto's integers and bool

# Operators whose outputs have the sizes of their first input.
UNARY = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh BatchNormalization Bernoulli BiasGelu BitwiseNot Celu Clip Cos Cosh CumSum "
    "DequantizeLinear Dropout Elu Erf Exp FastGelu Gelu GroupNormalization HardSigmoid HardSwish Hardmax "
    "InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization "
    "MeanVarianceNormalization Mish Not QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QuickGelu QuantizeLinear "
    "RMSNormalization RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence RotaryEmbedding Scaler "
    "Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization Softmax Softplus Softsign Sqrt Swish Tan Tanh "
    "ThresholdedRelu Trilu PRelu Binarizer Imputer LabelEncoder Normalizer".split()
)
# Operators that broadcast all their inputs.
BROADCAST = frozenset(
    "And BitShift BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Or "
    "Pow Sum Where Xor".split()
)


def unary(site: Site) -> Iterator[Fact]:
    yield Fact(site.dims(0))


def broadcast(site: Site) -> Iterator[Fact]:
    yield Fact(site.broadcast_all(*(site.dims(index) for index in range(len(site.facts)))))


def _quantized(site: Site) -> Iterator[Fact]:
    yield Fact(site.broadcast_all(site.dims(0), site.dims(3)))


def _divide(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        if a.dtype.kind == "f" or b.dtype.kind == "f":
            return a / b
        # Integer division of ONNX rounds towards 0.
        safe = np.where(b == 0, 1, b)
        return np.asarray(np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


def _remainder(a: Array, b: Array) -> Array:
    return np.asarray(np.mod(a, np.where(b == 0, 1, b)))


def _largest(*operands: Array) -> Array:
    return np.asarray(functools.reduce(np.maximum, operands))


def _least(*operands: Array) -> Array:
    return np.asarray(functools.reduce(np.minimum, operands))


_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Mod": _remainder,
    "Max": _largest,
    "Min": _least,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Where": np.where,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Not": np.logical_not,
}
# Of these the bounds of the result follow from those of the operands.
_MONOTONE = frozenset({"Add", "Sub", "Mul"})


def _arithmetic(compute: Callable[..., Array]) -> Rule:
    def rule(site: Site) -> Iterator[Fact]:
        dims = site.broadcast_all(*(site.dims(index) for index in range(len(site.facts))))
        yield Fact(dims, _elements(site, compute), _span(site, compute))

    return rule


def _elements(site: Site, compute: Callable[..., Array]) -> tuple[Element, ...] | None:
    """Compute the elements of small tensors of one length, or with scalars."""
    operands = [fact.elements for fact in site.facts]
    if not operands or any(each is None for each in operands):
        return None
    known = [each for each in operands if each is not None]
    length = max(map(len, known))
    if length > MOST_ELEMENTS or any(len(each) not in (1, length) for each in known):
        return None
    columns = [each * length if len(each) == 1 else each for each in known]
    return tuple(_element(site, compute, row) for row in zip(*columns, strict=True))


def _element(site: Site, compute: Callable[..., Array], operands: tuple[Element, ...]) -> Element:
    read = [site.sizes.read(each) for each in operands]
    if all(isinstance(each, np.ndarray) for each in read):
        with np.errstate(all="ignore"):
            result = np.asarray(compute(*read))
        if site.integer("fmod", 0):
            return None
        return result.astype(np.int64) if result.dtype.kind == "b" else result
    return _unchanged(site.node.op_type, read)


def _unchanged(op: str, operands: list[Element]) -> Element:
    """Return the symbol that an operation with a neutral number leaves as it is; None for another result."""
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}.get(op)
    if neutral is None or len(operands) != 2:
        return None
    first, second = operands
    if isinstance(first, str) and fixed(second) == neutral:
        return first
    return second if op in ("Add", "Mul") and isinstance(second, str) and fixed(first) == neutral else None


def _span(site: Site, compute: Callable[..., Array]) -> tuple[Array, Array] | None:
    if site.node.op_type not in _MONOTONE or len(site.facts) != 2:
        return None
    first, second = (fact.bounds for fact in site.facts)
    if first is None or second is None:
        return None
    results = [compute(a, b) for a in first for b in second]
    if any(result.dtype.kind != "i" for result in results):
        return None
    return np.minimum.reduce(results), np.maximum.reduce(results)


def _where(site: Site) -> Iterator[Fact]:
    dims = site.broadcast_all(*(site.dims(index) for index in range(3)))
    yes, no = site.fact(1).bounds, site.fact(2).bounds
    span = None if yes is None or no is None else (np.minimum(yes[0], no[0]), np.maximum(yes[1], no[1]))
    yield Fact(dims, _elements(site, np.where), span)


def _cast(site: Site) -> Iterator[Fact]:
    fact, target = site.fact(0), site.integer("to", 7)
    elements = fact.elements
    if elements is not None:
        kind = np.int64 if target in _INTEGERS else np.float64
        elements = tuple(each.astype(kind) if isinstance(each, np.ndarray) else each for each in elements)
    yield Fact(site.dims(0), elements, fact.span)


def _identity(site: Site) -> Iterator[Fact]:
    yield site.fact(0) if site.facts else UNKNOWN


def _dynamic_quantization(site: Site) -> Iterator[Fact]:
    """Return the sizes of the integers, and of their scale and zero point."""
    yield Fact(site.dims(0))
    yield Fact(())
    yield Fact(())


RULES: dict[str, Rule] = {
    **dict.fromkeys(UNARY, unary),
    "DynamicQuantizeLinear": _dynamic_quantization,
    **dict.fromkeys(BROADCAST, broadcast),
    **{op: _arithmetic(compute) for op, compute in _ARITHMETIC.items()},
    "Where": _where,
    "Cast": _cast,
    "CastLike": unary,
    "Identity": _identity,
    "QLinearAdd": _quantized,
    "QLinearMul": _quantized,
}
