"""The precision of a graph of ONNX operators, whichever file it comes from (`.onnx`, `.ort`).

The rules, the first that fits decides:

1. Operators that measure their scales at run time, or QuantizeLinear with a computed scale: "int8 dynamic".
2. QuantizeLinear of a computed value, or an operator on quantized values (QLinearConv): "int8", or "int16x8" where
   all quantized activations have 16 bits. Of both, the coarser says how far two right answers may lie apart.
3. Constants of 4 or 8 bits that are de-quantized (DequantizeLinear, MatMulNBits, Cast and Mul): "int4 weights",
   "int8 weights".
4. What most of the arithmetic gives: "float16", "bfloat16", "float64" or "float32"; the last with weights that are
   stored in float16 and cast is "float16 weights".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxport.validate.report import Precision

_DYNAMIC = frozenset(
    "DynamicQuantizeLinear DynamicQuantizeMatMul DynamicQuantizeLSTM MatMulInteger ConvInteger "
    "MatMulIntegerToFloat".split()
)
# Operators on quantized values, with the position of an operand whose dtype tells the activations'.
_QUANTIZED = "QLinear"
_BLOCK_QUANTIZED = frozenset({"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"})
_WIDE = frozenset({"int16", "uint16"})
_NARROW = frozenset({"int4", "uint4", "int2", "uint2"})
_BYTES = frozenset({"int8", "uint8"})
FLOATS = ("float32", "float16", "bfloat16", "float64")
# Multiply and add; where a network has them, they are its arithmetic.
_PRODUCTS = frozenset(
    "Conv FusedConv ConvTranspose MatMul FusedMatMul Gemm FusedGemm LSTM GRU RNN Einsum".split()
)
# What hands values on, so that a constant behind it is still one.
_HANDS_ON = frozenset("Reshape Transpose Squeeze Unsqueeze Identity Slice Flatten".split())
# Operators that compute nothing, or whose result has a dtype of its own.
_SILENT = _HANDS_ON | {"Cast", "CastLike", "Constant", "DequantizeLinear", "Shape", "Gather", "Concat"}
# Of the arithmetic, what one dtype has to give so that the whole is called by it.
_MOST = 0.5
# Weights that were stored narrow: of all elements of weights.
_STORED = 0.5
# Constants of fewer elements are settings, not weights.
_WEIGHTS = 16


@dataclass(frozen=True)
class Operation:
    """One node.

    Attributes:
        to: the dtype that a Cast gives, or that a QuantizeLinear's attribute asks for.
        bits: of the weights of a block-quantized product.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    to: str = ""
    bits: int = 4


@dataclass
class Graph:
    """What decides a graph's precision; subgraphs are part of it.

    Attributes:
        constants: name to dtype and number of elements.
        dtypes: name of every value whose dtype is known.
    """

    operations: list[Operation] = field(default_factory=list)
    constants: dict[str, tuple[str, int]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)


def precision(graph: Graph) -> Precision:
    """The precision of `graph`, by the rules above; "unknown" where nothing is computed in floats."""
    _propagate(graph)
    fixed = _derived_constants(graph)
    dynamic = any(_is_dynamic(operation, fixed) for operation in graph.operations)
    widths = {width for operation in graph.operations if (width := _activations(operation, graph, fixed))}
    if dynamic:
        return "mixed" if widths else "int8 dynamic"
    if widths:
        return "int16x8" if widths <= _WIDE else "int8"
    return _weight_only(graph, fixed) or _arithmetic(graph, fixed)


def islands(graph: Graph) -> frozenset[str]:
    """What a graph holds in float32 beside float16 or bfloat16: its float32 constants, and where it computes in
    float16 every float32 result but Casts of what is float16."""
    _propagate(graph)
    dtypes = graph.dtypes
    if not {"float16", "bfloat16"} & set(dtypes.values()):
        return frozenset()
    constants = frozenset(name for name, (dtype, _) in graph.constants.items() if dtype == "float32")
    if not any(dtypes.get(name) == "float16" for operation in graph.operations for name in operation.outputs):
        return constants
    return constants | frozenset(
        name
        for operation in graph.operations
        for name in operation.outputs
        if dtypes.get(name) == "float32"
        and not (operation.kind == "Cast" and dtypes.get(operation.inputs[0]) == "float16")
    )


def _propagate(graph: Graph) -> None:
    """Dtypes of values that the file does not declare: a result has that of the node's first float operand."""
    dtypes = graph.dtypes
    dtypes.update({name: dtype for name, (dtype, _) in graph.constants.items()})
    for operation in graph.operations:
        given = operation.to
        if operation.kind == "DequantizeLinear":
            given = given or dtypes.get(operation.inputs[1], "")
        elif not given:
            given = next((d for name in operation.inputs if (d := dtypes.get(name, "")) in FLOATS), "")
        for name in operation.outputs:
            if given:
                dtypes.setdefault(name, given)


def _derived_constants(graph: Graph) -> dict[str, tuple[str, int]]:
    """Constants, and what is made of constants alone by casting, moving or scaling; each with how it is stored."""
    fixed = dict(graph.constants)
    for operation in graph.operations:
        named = [name for name in operation.inputs if name]
        if not named or any(name not in fixed for name in named):
            continue
        if operation.kind in _HANDS_ON | {"Cast", "DequantizeLinear", "Mul", "Sub"}:
            largest = max((fixed[name] for name in named), key=lambda stored: stored[1])
            fixed.update(dict.fromkeys(operation.outputs, largest))
    return fixed


def _is_dynamic(operation: Operation, fixed: Mapping[str, object]) -> bool:
    if operation.kind in _DYNAMIC:
        return True
    computed_scale = operation.kind == "QuantizeLinear" and operation.inputs[1] not in fixed
    return computed_scale and operation.inputs[0] not in fixed


def _activations(operation: Operation, graph: Graph, fixed: Mapping[str, object]) -> str:
    """The dtype that a computed value is quantized to by, or read in by, this node; empty for none."""
    if operation.kind == "QuantizeLinear" and operation.inputs[0] not in fixed:
        zero_point = operation.inputs[2] if len(operation.inputs) > 2 else ""
        return operation.to or graph.dtypes.get(zero_point, "uint8")
    if operation.kind.startswith(_QUANTIZED):
        return next((d for name in operation.inputs if (d := graph.dtypes.get(name, "")) in _WIDE), "uint8")
    return ""


def _weight_only(graph: Graph, fixed: Mapping[str, tuple[str, int]]) -> Precision | None:
    """The narrowest dtype that most weights of products are stored in, where that is an integer."""
    bits = Counter(
        "int4" if operation.bits <= 4 else "int8"
        for operation in graph.operations
        if operation.kind in _BLOCK_QUANTIZED
    )
    if bits:
        return "int4 weights" if bits["int4"] else "int8 weights"
    stored = _stored(graph, fixed)
    total = sum(stored.values())
    if sum(stored[dtype] for dtype in _NARROW) > 0:
        return "int4 weights"
    integers = sum(stored[dtype] for dtype in _BYTES)
    return "int8 weights" if total and integers > _STORED * total else None


def _stored(graph: Graph, fixed: Mapping[str, tuple[str, int]]) -> Counter[str]:
    """Elements of float weights by the dtype that they are stored in."""
    weights = {
        name: fixed[name]
        for operation in graph.operations
        if operation.kind not in _SILENT | {"Mul", "Sub"}
        or any(i not in fixed for i in operation.inputs if i)
        for name in operation.inputs
        if name in fixed and fixed[name][1] >= _WEIGHTS and graph.dtypes.get(name) in FLOATS
    }
    found: Counter[str] = Counter()
    for dtype, size in weights.values():
        found[dtype] += size
    return found


def _arithmetic(graph: Graph, fixed: Mapping[str, tuple[str, int]]) -> Precision:
    """What most of the products give, or most nodes where there are no products."""
    casts: dict[str, set[str]] = {}
    for operation in graph.operations:
        for name in operation.inputs:
            casts.setdefault(name, set()).add(operation.to if operation.kind == "Cast" else "")
    given: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for operation in graph.operations:
        if operation.kind in _SILENT or all(name in fixed for name in operation.inputs):
            continue
        dtype = _rounded_to(operation, graph.dtypes, casts)
        if dtype in FLOATS:
            given[dtype] += 1
            products[dtype] += operation.kind in _PRODUCTS
    counted = products if sum(products.values()) else given
    return _named(counted, _stored(graph, fixed))


def _rounded_to(operation: Operation, dtypes: Mapping[str, str], casts: Mapping[str, set[str]]) -> str:
    """The dtype of the node's result; a result that goes into Casts alone is of the dtype they give."""
    name = next((name for name in operation.outputs if name), "")
    after = casts.get(name, set())
    if len(after) == 1 and (cast := next(iter(after))) in ("float16", "bfloat16"):
        return cast
    return dtypes.get(name, "")


def _named(given: Counter[str], stored: Counter[str]) -> Precision:
    if not given:
        return "unknown"
    dtype, count = given.most_common(1)[0]
    if count <= _MOST * sum(given.values()):
        return "mixed"
    names: dict[str, Precision] = {"float16": "float16", "bfloat16": "bfloat16", "float64": "float64"}
    if dtype in names:
        return names[dtype]
    narrow: dict[str, Precision] = {"float16": "float16 weights", "bfloat16": "bfloat16 weights"}
    total = sum(stored.values())
    return next((said for each, said in narrow.items() if stored[each] > _STORED * total), "float32")
