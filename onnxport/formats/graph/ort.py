"""Read an `.ort` file, ONNX Runtime's own format, as an operator graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxport.formats.artifact import Dim
from onnxport.formats.graph import UNKNOWN, Node, OperatorGraph, Tensor
from onnxport.formats.model import dtype_name
from onnxport.formats.ort_file import Table, numbers, open_model, text, texts

_GRAPH, _GRAPHS = int(ir.AttributeType.GRAPH), int(ir.AttributeType.GRAPHS)


@dataclass(frozen=True)
class OrtModel:
    """What an `.ort` file holds."""

    graph: OperatorGraph
    producer: str  # name and version
    ir_version: int | None
    opsets: Mapping[str, int]  # operator domain to version; ONNX's own is "ai.onnx"
    metadata: Mapping[str, str]  # the model's metadata properties


def read_ort(path: Path) -> OrtModel:
    """Read an `.ort` file; weights stay on disk. InputError if it is none, damaged, or of a newer schema."""
    with open_model(path) as model:
        opsets = {text(each, "domain"): each["version"] for each in model.get("opset_import", [])}
        return OrtModel(
            graph=_graph(model["graph"], {}, opsets.get("", 0)),
            producer=f"{text(model, 'producer_name')} {text(model, 'producer_version')}".strip(),
            ir_version=model.get("ir_version"),
            opsets={domain or "ai.onnx": version for domain, version in opsets.items()},
            metadata={text(each, "key"): text(each, "value") for each in model.get("metadata_props", [])},
        )


def _graph(table: Table, outer: Mapping[str, Tensor], opset: int) -> OperatorGraph:
    """Return a graph; `outer` has the tensors of the graphs around it."""
    declared = {text(each, "name"): each for each in table.get("node_args", [])}
    constants = {
        text(each, "name"): Tensor(
            text(each, "name"), _dtype(each.get("data_type", 0)), numbers(each, "dims", "q"), True
        )
        for each in table.get("initializers", [])
    }
    nodes, inputs = table.get("nodes", []), texts(table, "inputs")
    made = {*inputs, *constants, *(name for node in nodes for name in texts(node, "outputs"))}
    known = {**{name: each for name, each in outer.items() if name not in made}, **constants}

    def tensor(name: str) -> Tensor:
        if name not in known:
            known[name] = _tensor(name, declared.get(name, {}))
        return known[name]

    for name in made:
        tensor(name)
    return OperatorGraph(
        nodes=[_node(node, tensor, known, opset) for node in nodes],
        inputs=tuple(tensor(name) for name in inputs if name not in constants),
        outputs=tuple(map(tensor, texts(table, "outputs"))),
        constants=tuple(constants.values()),
        opset=opset,
    )


def _node(table: Table, tensor: Callable[[str], Tensor], known: Mapping[str, Tensor], opset: int) -> Node:
    attributes = table.get("attributes", [])
    domain = text(table, "domain")
    return Node(
        op=text(table, "op_type"),
        name=text(table, "name"),
        domain="" if domain == "ai.onnx" else domain,
        version=table.get("since_version", 1),
        inputs=tuple(tensor(name) if name else None for name in texts(table, "inputs")),
        outputs=tuple(tensor(name) if name else None for name in texts(table, "outputs")),
        attributes={
            text(each, "name"): value for each in attributes if (value := _attribute(each)) is not None
        },
        bodies={name: _graph(body, known, opset) for each in attributes for name, body in _bodies(each)},
    )


def _tensor(name: str, declared: Table) -> Tensor:
    type_ = declared.get("type", {}).get("value", {})
    element = type_.get("elem_type", 0)
    if not isinstance(element, int):  # a sequence or a map
        return Tensor(name)
    dims = type_["shape"].get("dim", []) if "shape" in type_ else None
    shape = None if dims is None else tuple(_dim(each.get("value", {})) for each in dims)
    return Tensor(name, _dtype(element), shape)


def _dim(value: Table) -> Dim:
    """Return a dimension by its DimensionValueType: 0 nothing known, 1 a size, 2 the name of a symbol."""
    kind = value.get("dim_type", 0)
    return value.get("dim_value", 0) if kind == 1 else text(value, "dim_param") if kind == 2 else None


def _dtype(number: int) -> str:
    try:
        return dtype_name(ir.DataType(number))
    except (ValueError, TypeError):
        return UNKNOWN


# AttributeProto.AttributeType to how the table holds such a value.
_ATTRIBUTES: Mapping[int, Callable[[Table], Any]] = {
    int(ir.AttributeType.FLOAT): lambda table: table.get("f", 0.0),
    int(ir.AttributeType.INT): lambda table: table.get("i", 0),
    int(ir.AttributeType.STRING): lambda table: text(table, "s"),
    int(ir.AttributeType.FLOATS): lambda table: numbers(table, "floats", "f"),
    int(ir.AttributeType.INTS): lambda table: numbers(table, "ints", "q"),
    int(ir.AttributeType.STRINGS): lambda table: texts(table, "strings"),
}


def _attribute(table: Table) -> Any:
    read = _ATTRIBUTES.get(table.get("type", 0))
    return None if read is None else read(table)


def _bodies(table: Table) -> Iterator[tuple[str, Table]]:
    name, kind = text(table, "name"), table.get("type", 0)
    if kind == _GRAPH:
        yield name, table["g"]
    elif kind == _GRAPHS:
        yield from ((f"{name} {place}", body) for place, body in enumerate(table.get("graphs", [])))
