"""The precision of a graph of ONNX operators (`.onnx`, `.ort`); the first rule that fits decides.

1. Operators that measure their scales at run time, or QuantizeLinear with a computed scale: "int8 dynamic".
2. QuantizeLinear of a computed value, or an operator on quantized values (QLinearConv): "int8", or "int16x8" where
   all quantized activations have 16 bits. Of both, the coarser says how far two right answers may lie apart.
3. Constants of 4 or 8 bits that are de-quantized (DequantizeLinear, MatMulNBits, Cast and Mul): "int4 weights",
   "int8 weights".
4. What most of the arithmetic gives: "float16", "bfloat16", "float64" or "float32"; the last with weights that are
   stored in float16 and cast is "float16 weights".

Floats of 8 bits or fewer, as activations, weights or results, are "mixed": their rounding has no name of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxport.formats.graph import UNKNOWN, Node, OperatorGraph, Tensor
from onnxport.formats.model import dtype_name
from onnxport.validate.report import Precision

# Attributes that hold an element type, by ONNX's number of it.
_TYPED = ("to", "output_dtype", "dtype")
_DTYPES = {int(dtype): dtype_name(dtype) for dtype in ir.DataType if int(dtype)}

_DYNAMIC = frozenset(
    "DynamicQuantizeLinear DynamicQuantizeMatMul DynamicQuantizeLSTM MatMulInteger ConvInteger "
    "MatMulIntegerToFloat".split()
)
# The start of the names of operators on quantized values.
_QUANTIZED = "QLinear"
_BLOCK_QUANTIZED = frozenset({"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"})
_WIDE = frozenset({"int16", "uint16"})
_NARROW = frozenset({"int4", "uint4", "int2", "uint2"})
_BYTES = frozenset({"int8", "uint8"})
FLOATS = ("float32", "float16", "bfloat16", "float64")
# They multiply and add: the arithmetic of a network that has any.
_PRODUCTS = frozenset(
    "Conv FusedConv ConvTranspose MatMul FusedMatMul Gemm FusedGemm LSTM GRU RNN Einsum".split()
)
# Their result is a constant where their operand is one.
_MOVES = frozenset("Reshape Transpose Squeeze Unsqueeze Identity Slice Flatten".split())
# Operators that compute nothing, or whose result has a dtype of its own.
_SILENT = _MOVES | {"Cast", "CastLike", "Constant", "DequantizeLinear", "Shape", "Gather", "Concat"}
# The share of the arithmetic above which a dtype names the whole.
_MOST = 0.5
# The share of all elements of weights above which their storage names the whole.
_STORED = 0.5
# Constants of fewer elements are settings, not weights.
_WEIGHTS = 16


@dataclass(frozen=True)
class TypedGraph:
    """The nodes of a graph and of the graphs inside it in one list, with the constants and dtypes by name.

    Attributes:
        constants: initializers, preset ones included, and what Constant nodes hold.
        dtypes: of constants, and of values whose dtype is declared or follows from that of an operand.
    """

    nodes: tuple[Node, ...] = ()
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def flatten(cls, *graphs: OperatorGraph) -> TypedGraph:
        """Return `graphs` and those inside their nodes as one."""
        inner = [each for graph in graphs for each in graph.graphs()]
        nodes = tuple(node for graph in inner for node in graph.nodes)
        tensors = [each for graph in inner for each in (*graph.inputs, *graph.constants)]
        tensors += [each for node in nodes for each in node.outputs if each is not None]
        constants = {each.name: each for each in tensors if each.is_constant or each.is_preset}
        dtypes = {each.name: each.dtype for each in tensors if each.dtype != UNKNOWN}
        return cls(nodes, constants, _propagate(nodes, dtypes))


def target_dtype(node: Node) -> str:
    """Return the dtype that an attribute of a Cast or QuantizeLinear asks for; empty where none does."""
    numbers = [node.attributes[name] for name in _TYPED if node.attributes.get(name)]
    return _DTYPES.get(numbers[0], "") if numbers else ""


def _is_small_float(dtype: str) -> bool:
    """Return whether `dtype` is a float of 8 bits or fewer, for whose rounding there is no name of its own."""
    return dtype.startswith(("float8_", "float6_", "float4_"))


def precision(graph: TypedGraph) -> Precision:
    """Return the precision of `graph`; "unknown" where nothing is computed in floats."""
    fixed = _derived_constants(graph)
    is_dynamic = any(_is_dynamic(node, fixed) for node in graph.nodes)
    widths = {width for node in graph.nodes if (width := _activations(node, graph, fixed))}
    if any(map(_is_small_float, widths)):
        return "mixed"
    if is_dynamic:
        return "mixed" if widths else "int8 dynamic"
    if widths:
        return "int16x8" if widths <= _WIDE else "int8"
    return _weight_only(graph, fixed) or _arithmetic(graph, fixed)


def islands(graph: TypedGraph) -> frozenset[str]:
    """Return what a graph holds in float32 beside float16 or bfloat16.

    These are its float32 constants and, in a graph that computes in float16, all float32 results but Casts of float16.
    """
    dtypes = graph.dtypes
    if not {"float16", "bfloat16"} & set(dtypes.values()):
        return frozenset()
    constants = frozenset(name for name, each in graph.constants.items() if each.dtype == "float32")
    if not any(dtypes.get(name) == "float16" for node in graph.nodes for name in node.output_names):
        return constants
    return constants | frozenset(
        name
        for node in graph.nodes
        for name in node.output_names
        if dtypes.get(name) == "float32"
        and not (node.op == "Cast" and dtypes.get(node.input_names[0]) == "float16")
    )


def _propagate(nodes: Iterable[Node], declared: Mapping[str, str]) -> dict[str, str]:
    """Return `declared` with the dtypes of other results: that of the node's first float operand."""
    dtypes = dict(declared)
    for node in nodes:
        dtype = target_dtype(node)
        if node.op == "DequantizeLinear":
            dtype = dtype or dtypes.get(node.input_names[1], "")
        elif not dtype:
            dtype = next((d for name in node.input_names if (d := dtypes.get(name, "")) in FLOATS), "")
        for name in node.output_names:
            if dtype:
                dtypes.setdefault(name, dtype)
    return dtypes


def _derived_constants(graph: TypedGraph) -> dict[str, Tensor]:
    """Return constants, and what is cast, moved or scaled from constants alone; each with the tensor that stores it."""
    fixed = dict(graph.constants)
    for node in graph.nodes:
        operands = [name for name in node.input_names if name]
        if not operands or any(name not in fixed for name in operands):
            continue
        if node.op in _MOVES | {"Cast", "DequantizeLinear", "Mul", "Sub"}:
            largest = max((fixed[name] for name in operands), key=lambda stored: stored.size)
            fixed.update(dict.fromkeys(node.output_names, largest))
    return fixed


def _is_dynamic(node: Node, fixed: Mapping[str, object]) -> bool:
    if node.op in _DYNAMIC:
        return True
    computed_scale = node.op == "QuantizeLinear" and node.input_names[1] not in fixed
    return computed_scale and node.input_names[0] not in fixed


def _activations(node: Node, graph: TypedGraph, fixed: Mapping[str, object]) -> str:
    """Return the dtype to which this node quantizes a computed value, or in which it reads one; empty for none."""
    if node.op == "QuantizeLinear" and node.input_names[0] not in fixed:
        zero_point = node.input_names[2] if len(node.input_names) > 2 else ""
        return target_dtype(node) or graph.dtypes.get(zero_point, "uint8")
    if node.op.startswith(_QUANTIZED):
        return next((d for name in node.input_names if (d := graph.dtypes.get(name, "")) in _WIDE), "uint8")
    return ""


def _weight_only(graph: TypedGraph, fixed: Mapping[str, Tensor]) -> Precision | None:
    """Return the precision of a graph whose weights are mostly stored in integers, or in floats of few bits."""
    bits = [node.attributes.get("bits", 4) for node in graph.nodes if node.op in _BLOCK_QUANTIZED]
    if bits:
        return "int4 weights" if min(bits) <= 4 else "int8 weights"
    stored = _stored(graph, fixed)
    total = sum(stored.values())
    if sum(stored[dtype] for dtype in _NARROW) > 0:
        return "int4 weights"
    if sum(size for dtype, size in stored.items() if _is_small_float(dtype)) > _STORED * total:
        return "mixed"
    integers = sum(stored[dtype] for dtype in _BYTES)
    return "int8 weights" if total and integers > _STORED * total else None


def _stored(graph: TypedGraph, fixed: Mapping[str, Tensor]) -> Counter[str]:
    """Count the elements of float weights by the dtype that stores them."""
    weights = {
        name: fixed[name]
        for node in graph.nodes
        if node.op not in _SILENT | {"Mul", "Sub"} or any(i not in fixed for i in node.input_names if i)
        for name in node.input_names
        if name in fixed and fixed[name].size >= _WEIGHTS and graph.dtypes.get(name) in FLOATS
    }
    found: Counter[str] = Counter()
    for each in weights.values():
        found[each.dtype] += each.size
    return found


def _arithmetic(graph: TypedGraph, fixed: Mapping[str, Tensor]) -> Precision:
    """Return what most products give, or most nodes of a graph without products."""
    casts: dict[str, set[str]] = {}
    for node in graph.nodes:
        for name in node.input_names:
            casts.setdefault(name, set()).add(target_dtype(node) if node.op == "Cast" else "")
    given: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op in _SILENT or all(name in fixed for name in node.input_names):
            continue
        dtype = _rounded_to(node, graph.dtypes, casts)
        if dtype in FLOATS or _is_small_float(dtype):
            given[dtype] += 1
            products[dtype] += node.op in _PRODUCTS
    counted = products if sum(products.values()) else given
    return _named(counted, _stored(graph, fixed))


def _rounded_to(node: Node, dtypes: Mapping[str, str], casts: Mapping[str, set[str]]) -> str:
    """Return the dtype of the node's result; that of the Casts for a result that only Casts read."""
    name = next((name for name in node.output_names if name), "")
    after = casts.get(name, set())
    if len(after) == 1 and ((cast := next(iter(after))) in ("float16", "bfloat16") or _is_small_float(cast)):
        return cast
    return dtypes.get(name, "")


def _named(given: Counter[str], stored: Counter[str]) -> Precision:
    if not given:
        return "unknown"
    dtype, count = given.most_common(1)[0]
    if count <= _MOST * sum(given.values()):
        return "mixed"
    if _is_small_float(dtype):
        return "mixed"
    names: dict[str, Precision] = {"float16": "float16", "bfloat16": "bfloat16", "float64": "float64"}
    if dtype in names:
        return names[dtype]
    narrow: dict[str, Precision] = {"float16": "float16 weights", "bfloat16": "bfloat16 weights"}
    total = sum(stored.values())
    return next((name for each, name in narrow.items() if stored[each] > _STORED * total), "float32")
