"""The precision of a `.tflite` file, by its tensors' types; the first rule that fits decides.

1. A product (convolution, fully connected, recurrent) with a quantized constant and float activations is a hybrid
   kernel, which quantizes its input at run time: "int8 dynamic" (or "int4 weights" for constants of 4 bits).
2. Quantized products, or floats that are rounded to a grid between operators (QUANTIZE): "int16x8" where all such
   activations have 16 bits, else "int8": the coarser grid says how far two right answers may lie apart.
3. Float products: constants of float16 behind DEQUANTIZE are "float16 weights", quantized ones "int8 weights" or
   "int4 weights"; results of float16 are "float16", results or weights of float8 are "mixed".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.tflite import read_tflite
from onnxport.validate.report import Precision

# Operator -> position of its weights.
_PRODUCTS = {
    "CONV_2D": 1,
    "DEPTHWISE_CONV_2D": 1,
    "TRANSPOSE_CONV": 1,
    "CONV_3D": 1,
    "FULLY_CONNECTED": 1,
    "BATCH_MATMUL": 1,
    "EMBEDDING_LOOKUP": 1,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 2,
    "BIDIRECTIONAL_SEQUENCE_LSTM": 2,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 1,
    "LSTM": 2,
    "RNN": 1,
    "SVDF": 1,
}
# These compute nothing. The others tell the precision of a model without products.
_SILENT = frozenset(
    "CAST DEQUANTIZE QUANTIZE RESHAPE TRANSPOSE SLICE STRIDED_SLICE CONCATENATION SHAPE GATHER".split()
)
_QUANTIZED = frozenset(("int8", "uint8", "int16", "int4", "int2"))
# What floats are rounded to between operators -> what that makes of the file.
_GRIDS: Mapping[str, Precision] = {"int8": "int8", "uint8": "int8", "int16": "int16x8"}
_FLOATS: Mapping[str, Precision] = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float64": "float64",
    "float8_e4m3fn": "mixed",
    "float8_e5m2": "mixed",
}
_STORED: Mapping[str, Precision] = {
    "int4": "int4 weights",
    "int2": "int4 weights",
    "int8": "int8 weights",
    "uint8": "int8 weights",
    "float16": "float16 weights",
    "float8_e4m3fn": "mixed",
    "float8_e5m2": "mixed",
}


@dataclass(frozen=True)
class _Product:
    """An operator's dtypes.

    Attributes:
        weights: as they are stored; empty for none.
        is_hybrid: the operator itself reads quantized weights.
    """

    activations: str
    result: str
    weights: str = ""
    is_hybrid: bool = False

    @property
    def precision(self) -> Precision:
        if self.activations in _QUANTIZED:
            return "int16x8" if self.activations == "int16" else "int8"
        if self.is_hybrid:
            return "int8 dynamic"
        stored = _STORED.get(self.weights)
        if stored == "float16 weights":
            return _FLOATS.get(self.result, stored)
        return stored or _FLOATS.get(self.result, "float32")


def precision(path: Path) -> Precision:
    """Return the precision of the file at `path`; "unknown" where nothing is computed.

    Raises:
        InputError: no TFLite file, or a damaged one.
    """
    products, others, grids = list[_Product](), list[_Product](), set[str]()
    for each in read_tflite(path).subgraphs:
        grids |= _grids(each.graph)
        for node, product in _products(each.graph):
            (products if node.op in _PRODUCTS else others).append(product)
    return _summarize(products or others, grids)


def least_narrow_constant(path: Path) -> int:
    """Return how many elements the smallest constant of float16 in the file at `path` has; 0 for none."""
    sizes = [each.size for each in read_tflite(path).stored if each.dtype == "float16"]
    return min(sizes, default=0)


def _summarize(products: list[_Product], grids: set[str]) -> Precision:
    kinds = Counter(product.precision for product in products)
    kinds.update(_GRIDS[grid] for grid in grids)
    for kind in ("int8", "int16x8", "int8 dynamic"):
        if kinds[kind]:
            return "mixed" if kind != "int8 dynamic" and kinds["int8 dynamic"] else kind
    if not kinds:
        return "unknown"
    weighted = {kind: count for kind, count in kinds.items() if kind != "float32"}
    if not weighted:
        return "float32"
    kind, count = max(weighted.items(), key=lambda item: item[1])
    return kind if count * 2 > sum(kinds.values()) or kind.endswith("weights") else "mixed"


def _products(graph: OperatorGraph) -> Iterator[tuple[Node, _Product]]:
    """Yield every operator that computes on floats or quantized numbers."""
    stored = {
        result: source.dtype
        for node in graph.nodes
        if node.op in ("DEQUANTIZE", "CAST")
        for source, result in zip(node.inputs[:1], node.outputs[:1], strict=False)
        if source and result and source.is_constant
    }
    casts = _casts(graph)
    for node in graph.nodes:
        activation, result = next(iter(node.inputs), None), next(iter(node.outputs), None)
        if node.op in _SILENT or activation is None or result is None:
            continue
        dtype = activation.dtype
        # Integers without scales are numbers in their own right.
        if activation.is_quantized if dtype in _QUANTIZED else "float" in dtype:
            position = _PRODUCTS.get(node.op, len(node.inputs))
            weights = node.inputs[position] if position < len(node.inputs) else None
            direct = weights.dtype if weights else ""
            stored_as = stored.get(weights, direct) if weights else ""
            rounded_to = casts.get(result, result.dtype)
            yield node, _Product(dtype, rounded_to, stored_as, direct in _QUANTIZED)


def _grids(graph: OperatorGraph) -> set[str]:
    """Return the dtypes of the grids to which QUANTIZE rounds floats that other operators then read."""
    read = {each for node in graph.nodes for each in node.inputs}
    return {
        result.dtype
        for node in graph.nodes
        if node.op == "QUANTIZE"
        for source, result in zip(node.inputs[:1], node.outputs[:1], strict=False)
        if source and result in read and "float" in source.dtype
        if result and result.dtype in _GRIDS and result.is_quantized
    }


def _casts(graph: OperatorGraph) -> dict[Tensor, str]:
    """Return the tensors that CASTs to one dtype alone read, with that dtype if their values are rounded to it."""
    uses: dict[Tensor, set[str]] = {}
    for node in graph.nodes:
        dtype = node.outputs[0].dtype if node.op == "CAST" and node.outputs and node.outputs[0] else ""
        for tensor in filter(None, node.inputs):
            uses.setdefault(tensor, set()).add(dtype)
    single = {tensor: next(iter(dtypes)) for tensor, dtypes in uses.items() if len(dtypes) == 1}
    return {tensor: dtype for tensor, dtype in single.items() if dtype in _FLOATS and dtype != "float64"}
