"""Read an `.ort` file as an ONNX model: its tables have the fields of ONNX's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import google.protobuf.message
import onnx
import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.formats.ort_file import Table, numbers, open_model, text, texts

_A_SIZE, _A_NAME = 1, 2  # DimensionValueType
_A_TENSOR = 1  # TypeInfoValue


def load_ort(path: Path) -> Model:
    """Read an `.ort` file with its weights; its nodes are those that ONNX Runtime made of the source's.

    Raises:
        InputError: it is none, damaged, of a newer schema, or has weights in another file.
    """
    with open_model(path) as table:
        proto = onnx.ModelProto(
            ir_version=table.get("ir_version", 0),
            opset_import=[
                onnx.OperatorSetIdProto(domain=text(each, "domain"), version=each["version"])
                for each in table.get("opset_import", [])
            ],
            graph=_graph(table["graph"]),
            metadata_props=[
                onnx.StringStringEntryProto(key=text(each, "key"), value=text(each, "value"))
                for each in table.get("metadata_props", [])
            ],
        )
        try:
            model = Model(ir.from_proto(proto), path)
            model.graph.sort()
        except (ir.serde.SerdeError, google.protobuf.message.Error) as error:
            raise ValueError("its graph is damaged") from error
    return model


def _graph(table: Table) -> onnx.GraphProto:
    declared = {text(each, "name"): each for each in table.get("node_args", [])}
    inputs, outputs = (texts(table, each) for each in ("inputs", "outputs"))
    ends = {*inputs, *outputs}
    return onnx.GraphProto(
        name="ort",
        node=[_node(each) for each in table.get("nodes", [])],
        initializer=[_tensor(each) for each in table.get("initializers", [])],
        input=[_value(name, declared.get(name, {})) for name in inputs],
        output=[_value(name, declared.get(name, {})) for name in outputs],
        value_info=[_value(name, each) for name, each in declared.items() if name and name not in ends],
    )


def _node(table: Table) -> onnx.NodeProto:
    return onnx.NodeProto(
        op_type=text(table, "op_type"),
        name=text(table, "name"),
        domain=text(table, "domain"),
        input=texts(table, "inputs"),
        output=texts(table, "outputs"),
        attribute=[_attribute(each) for each in table.get("attributes", [])],
    )


def _tensor(table: Table) -> onnx.TensorProto:
    if table.get("external_data_offset", -1) >= 0 and "raw_data" not in table and "string_data" not in table:
        raise ValueError("it has weights in another file")
    return onnx.TensorProto(
        name=text(table, "name"),
        dims=numbers(table, "dims", "q"),
        data_type=table.get("data_type", 0),
        **(
            {"string_data": [bytes(each) for each in table["string_data"]]}
            if "string_data" in table
            else {"raw_data": bytes(table.get("raw_data", b""))}
        ),
    )


# AttributeProto.AttributeType to the field of AttributeProto and how the table holds it.
_FIELDS: Mapping[int, tuple[str, Callable[[Table], Any]]] = {
    1: ("f", lambda table: table.get("f", 0.0)),
    2: ("i", lambda table: table.get("i", 0)),
    3: ("s", lambda table: bytes(table.get("s", b""))),
    4: ("t", lambda table: _tensor(table["t"])),
    5: ("g", lambda table: _graph(table["g"])),
    6: ("floats", lambda table: numbers(table, "floats", "f")),
    7: ("ints", lambda table: numbers(table, "ints", "q")),
    8: ("strings", lambda table: [bytes(each) for each in table.get("strings", [])]),
    9: ("tensors", lambda table: [_tensor(each) for each in table.get("tensors", [])]),
    10: ("graphs", lambda table: [_graph(each) for each in table.get("graphs", [])]),
}


def _attribute(table: Table) -> onnx.AttributeProto:
    kind = table.get("type", 0)
    if kind not in _FIELDS:
        raise ValueError(f"an attribute of type {kind} is not known here")
    field, read = _FIELDS[kind]
    return onnx.AttributeProto(name=text(table, "name"), type=kind, **{field: read(table)})


def _value(name: str, declared: Table) -> onnx.ValueInfoProto:
    found = onnx.ValueInfoProto(name=name)
    described = declared.get("type", {})
    if described.get("value_type", 0) != _A_TENSOR:
        return found
    tensor = found.type.tensor_type
    tensor.elem_type = described["value"].get("elem_type", 0)
    if "shape" in described["value"]:
        tensor.shape.SetInParent()
        for each in described["value"]["shape"].get("dim", []):
            value, size = each.get("value", {}), tensor.shape.dim.add()
            kind = value.get("dim_type", 0)
            if kind == _A_SIZE:
                size.dim_value = value.get("dim_value", 0)
            elif kind == _A_NAME:
                size.dim_param = text(value, "dim_param")
    return found
