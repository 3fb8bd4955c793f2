"""Graphs of ONNX operators as `graphs.Graph`: from a model in memory, and from the bytes of an `.ort` file."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnxport.formats import ort_file
from onnxport.formats.manifest import KEY, Manifest
from onnxport.formats.model import Model, dtype_name
from onnxport.formats.ort_file import Table
from onnxport.validate.precision.graphs import Graph, Operation

_NO_NOTE = (ValueError, TypeError, KeyError, AttributeError)
# Attributes that hold an element type, by ONNX's number of it.
_TYPED = ("to", "output_dtype", "dtype")


def of_model(model: Model) -> Graph:
    """The graph of `model`; model-local functions are read where they stand, as if called once each."""
    found = Graph()
    for graph in model.ir.graphs():
        for value in (*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)):
            _add_value(found, value)
        found.operations.extend(map(_operation, graph))
        _add_constant_nodes(found, graph)
    for function in model.ir.functions.values():
        found.operations.extend(map(_operation, function))
        _add_constant_nodes(found, function)
    return found


def of_file(path: Path) -> Graph:
    """The graph in an `.onnx` file; what cannot be read is an empty graph: loading it is the runtime's affair."""
    model = read(path)
    return Graph() if model is None else of_model(model)


def read(path: Path) -> Model | None:
    """The model in an `.onnx` file, weights unread; unchecked, since ONNX Runtime takes more than ONNX's checker does.

    None where it cannot be read at all.
    """
    try:
        return Model(ir.load(path))
    except (*_NO_NOTE, DecodeError, ir.serde.SerdeError, OSError):
        return None


def note_in(model: Model) -> Manifest | None:
    """What a model of ours says of itself."""
    return _note(model.ir.metadata_props.get(KEY, ""))


def note_in_ort(data: bytes) -> Manifest | None:
    """What the `.ort` file of ours with these bytes says of itself.

    Raises:
        ValueError, KeyError, IndexError: damaged, or of a younger form than we know.
    """
    properties = ort_file.read(data)["model"].get("metadata_props", [])
    return next((_note(_text(each["value"])) for each in properties if _text(each["key"]) == KEY), None)


def is_half(note: Manifest | None) -> bool:
    """Whether it was made to be float16 but for what has to be float32."""
    options = () if note is None else note.options.values()
    return any(
        isinstance(each, dict) and (each.get("precision") == "fp16" or each.get("fp16") is True)
        for each in options
    )


def _note(text: str) -> Manifest | None:
    try:
        return Manifest.from_json(text) if text else None
    except _NO_NOTE:
        return None


def _add_value(found: Graph, value: ir.Value) -> None:
    if not value.name:
        return
    if value.const_value is not None:
        found.constants[value.name] = dtype_name(value.const_value.dtype), value.const_value.size
    elif value.dtype is not None:
        found.dtypes[value.name] = dtype_name(value.dtype)


def _add_constant_nodes(found: Graph, graph: ir.Graph | ir.Function) -> None:
    for node in graph:
        if node.op_type == "Constant" and node.outputs[0].name:
            tensor = ir.convenience.get_const_tensor(node.outputs[0])
            if tensor is not None:
                found.constants[node.outputs[0].name] = dtype_name(tensor.dtype), tensor.size


def _operation(node: ir.Node) -> Operation:
    numbers = {
        name: attribute.as_int()
        for name, attribute in node.attributes.items()
        if attribute.type == ir.AttributeType.INT and not attribute.is_ref()
    }
    return Operation(
        node.op_type,
        tuple("" if value is None else value.name or "" for value in node.inputs),
        tuple(value.name or "" for value in node.outputs),
        _to(numbers),
        numbers.get("bits", 4),
    )


def of_ort(data: bytes) -> Graph:
    """The graph in an `.ort` file.

    Raises:
        ValueError, KeyError, IndexError: damaged, or of a younger form than we know.
    """
    found = Graph()
    for graph in _tables(ort_file.read(data)["model"]["graph"]):
        for value in graph.get("node_args", []):
            element = value.get("type", {}).get("value", {}).get("elem_type", 0)
            if element:
                found.dtypes[_text(value["name"])] = _dtype(element)
        for tensor in graph.get("initializers", []):
            size = math.prod(size for (size,) in struct.iter_unpack("<q", tensor.get("dims", b"")))
            found.constants[_text(tensor["name"])] = _dtype(tensor.get("data_type", 0)), size
        found.operations.extend(map(_ort_operation, graph.get("nodes", [])))
    return found


def _tables(graph: Table) -> Iterator[Table]:
    """A graph and its subgraphs."""
    yield graph
    for node in graph.get("nodes", []):
        for attribute in node.get("attributes", []):
            for inner in (*attribute.get("graphs", []), *([attribute["g"]] if "g" in attribute else [])):
                yield from _tables(inner)


def _ort_operation(node: Table) -> Operation:
    numbers = {_text(entry["name"]): entry["i"] for entry in node.get("attributes", []) if "i" in entry}
    return Operation(
        _text(node.get("op_type", b"")),
        tuple(map(_text, node.get("inputs", []))),
        tuple(map(_text, node.get("outputs", []))),
        _to(numbers),
        numbers.get("bits", 4),
    )


def _to(numbers: dict[str, int]) -> str:
    return next((_dtype(numbers[name]) for name in _TYPED if numbers.get(name)), "")


def _dtype(number: int) -> str:
    try:
        return dtype_name(ir.DataType(number))
    except ValueError:
        return "unknown"


def _text(data: Any) -> str:
    return bytes(data).decode(errors="replace")
