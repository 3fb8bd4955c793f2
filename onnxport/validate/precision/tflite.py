"""The precision of a `.tflite` file, by its tensors' types; the first rule that fits decides.

1. A product (convolution, fully connected, recurrent) with a quantized constant and float activations is a hybrid
   kernel, which quantizes its input at run time: "int8 dynamic" (or "int4 weights" for constants of 4 bits).
2. Quantized products, or floats that are rounded to a grid between operators (QUANTIZE): "int16x8" where all such
   activations have 16 bits, else "int8": the coarser grid says how far two right answers may lie apart.
3. Float products: constants of float16 behind DEQUANTIZE are "float16 weights", quantized ones "int8 weights" or
   "int4 weights"; results of float16 are "float16".
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

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
# What computes nothing: a model without products is told by the others.
_SILENT = frozenset(
    "CAST DEQUANTIZE QUANTIZE RESHAPE TRANSPOSE SLICE STRIDED_SLICE CONCATENATION SHAPE GATHER".split()
)
_QUANTIZED = {"INT8", "UINT8", "INT16", "INT4", "INT2"}
# What floats are rounded to between operators -> what that makes of the file.
_GRIDS: Mapping[str, Precision] = {"INT8": "int8", "UINT8": "int8", "INT16": "int16x8"}
_NAMES: Mapping[str, Precision] = {"FLOAT16": "float16", "BFLOAT16": "bfloat16", "FLOAT64": "float64"}


@dataclass(frozen=True)
class _Product:
    """Types of an operator's activations, result and weights; the weights' as they are stored, empty for none."""

    activations: str
    weights: str
    result: str


def precision(path: Path) -> Precision:
    """The precision of the file at `path`, which the runtime has loaded; "unknown" where nothing is computed."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        model = schema.Model.GetRootAs(content, 0)
        products, others, rounded = list[_Product](), list[_Product](), set[str]()
        for graph in (model.Subgraphs(i) for i in range(model.SubgraphsLength())):
            rounded |= _rounded(model, graph)
            for name, product in _operations(model, graph):
                (products if name in _PRODUCTS else others).append(product)
        del model  # before its pages go
    return _named(products or others, rounded)


def _named(products: list[_Product], rounded: set[str]) -> Precision:
    kinds = Counter(_kind(product) for product in products)
    kinds.update(_GRIDS[width] for width in rounded)
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


def _kind(product: _Product) -> Precision:
    if product.activations in _QUANTIZED:
        return "int16x8" if product.activations == "INT16" else "int8"
    if product.weights.startswith("hybrid"):
        return "int8 dynamic"
    if product.weights in ("INT4", "INT2"):
        return "int4 weights"
    if product.weights in ("INT8", "UINT8"):
        return "int8 weights"
    if product.result in _NAMES:
        return _NAMES[product.result]
    return "float16 weights" if product.weights == "FLOAT16" else "float32"


def _operations(model: Any, graph: Any) -> Iterator[tuple[str, _Product]]:
    """Every operator that computes on floats or quantized numbers."""
    types = _types()
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    kinds = [names[_code(model.OperatorCodes(operator.OpcodeIndex()))] for operator in operators]
    stored, casts = _stored(model, graph, operators, kinds), _casts(graph, operators, kinds)
    for operator, kind in zip(operators, kinds, strict=True):
        if kind in _SILENT or not operator.OutputsLength() or not operator.InputsLength():
            continue
        activation, result = graph.Tensors(operator.Inputs(0)), graph.Tensors(operator.Outputs(0))
        given = types[activation.Type()]
        if given in _QUANTIZED and not _has_scales(activation):
            continue  # integers that mean themselves
        if given not in _QUANTIZED and "FLOAT" not in given:
            continue
        weights = _weights(graph, operator, kind, stored)
        yield kind, _Product(given, weights, casts.get(operator.Outputs(0), types[result.Type()]))


def _rounded(model: Any, graph: Any) -> set[str]:
    """The types of the grids to which QUANTIZE rounds floats that other operators then read."""
    types, quantize = _types(), schema.BuiltinOperator.QUANTIZE
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    read = {operator.Inputs(i) for operator in operators for i in range(operator.InputsLength())}
    found = set()
    for operator in operators:
        if _code(model.OperatorCodes(operator.OpcodeIndex())) == quantize and operator.Outputs(0) in read:
            given, result = graph.Tensors(operator.Inputs(0)), graph.Tensors(operator.Outputs(0))
            if "FLOAT" in types[given.Type()] and types[result.Type()] in _GRIDS and _has_scales(result):
                found.add(types[result.Type()])
    return found


def _weights(graph: Any, operator: Any, kind: str, stored: Mapping[int, str]) -> str:
    position = _PRODUCTS.get(kind)
    if position is None or position >= operator.InputsLength():
        return ""
    index = operator.Inputs(position)
    direct = _types()[graph.Tensors(index).Type()] if index >= 0 else ""
    if direct in _QUANTIZED:
        return f"hybrid {direct}"
    return stored.get(index, direct)


def _stored(model: Any, graph: Any, operators: list[Any], kinds: list[str]) -> dict[int, str]:
    """Tensor that a DEQUANTIZE or CAST makes of a constant -> the constant's type."""
    found = {}
    for operator, kind in zip(operators, kinds, strict=True):
        if kind in ("DEQUANTIZE", "CAST"):
            tensor = graph.Tensors(operator.Inputs(0))
            buffer = model.Buffers(tensor.Buffer())
            if buffer.DataLength() or buffer.Size():
                found[operator.Outputs(0)] = _types()[tensor.Type()]
    return found


def _casts(graph: Any, operators: list[Any], kinds: list[str]) -> dict[int, str]:
    """Tensor that goes into CASTs alone -> the type they give: the result is rounded to that."""
    uses: dict[int, set[str]] = {}
    for operator, kind in zip(operators, kinds, strict=True):
        given = _types()[graph.Tensors(operator.Outputs(0)).Type()] if kind == "CAST" else ""
        for position in range(operator.InputsLength()):
            uses.setdefault(operator.Inputs(position), set()).add(given)
    single = {index: next(iter(given)) for index, given in uses.items() if len(given) == 1}
    return {index: given for index, given in single.items() if given in _NAMES}


def _has_scales(tensor: Any) -> bool:
    quantization = tensor.Quantization()
    return quantization is not None and quantization.ScaleLength() > 0


def _types() -> dict[int, str]:
    return {value: name for name, value in vars(schema.TensorType).items() if isinstance(value, int)}


def _code(code: Any) -> int:
    """Codes from 127 on are in the field that came later."""
    return max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
