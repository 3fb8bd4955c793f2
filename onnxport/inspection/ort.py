"""What is in an `.ort` file."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from onnxport.core.errors import InputError
from onnxport.formats import ort_file
from onnxport.formats.artifact import Artifact, Dim
from onnxport.formats.manifest import KEY
from onnxport.formats.ort_file import Table
from onnxport.inspection.report import (
    Inspection,
    PortRecord,
    counted,
    dynamic,
    file_names,
    listed,
    own_manifest,
)

# NumPy's names of onnxruntime.fbs.TensorDataType, which has ONNX's numbers.
_DTYPES = (
    "unknown float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64"
    " complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
).split()
# Domains that exist only after ONNX Runtime's optimizations for the CPU of one machine.
_MACHINE_BOUND = ("com.microsoft.nchwc",)


def inspect(artifact: Artifact) -> Inspection:
    try:
        model = ort_file.read(artifact.path.read_bytes())["model"]
        return _described(artifact, model, model["graph"])
    except (ValueError, KeyError, IndexError) as error:
        why = str(error) if isinstance(error, ValueError) else "the file is damaged"
        raise InputError(f"{artifact.path} cannot be read", why=why) from error


def _described(artifact: Artifact, model: Table, graph: Table) -> Inspection:
    values = {value["name"]: value for value in graph.get("node_args", [])}
    weights = {tensor["name"]: tensor for tensor in graph.get("initializers", [])}
    properties = {_text(entry, "key"): _text(entry, "value") for entry in model.get("metadata_props", [])}
    opsets = {
        _text(entry, "domain") or "ai.onnx": entry["version"] for entry in model.get("opset_import", [])
    }
    inputs = tuple(_port(values[name]) for name in graph.get("inputs", []) if name not in weights)
    nodes = list(_nodes(graph))
    return Inspection(
        path=str(artifact.path),
        format="ort",
        size=artifact.size,
        files=file_names(artifact),
        producer=f"{_text(model, 'producer_name')} {_text(model, 'producer_version')}".strip(),
        ir_version=model.get("ir_version"),
        opsets=opsets,
        inputs=inputs,
        outputs=tuple(_port(values[name]) for name in graph.get("outputs", [])),
        operators=counted(_qualified(node) for node in nodes),
        parameters=sum(math.prod(_dims(tensor)) for tensor in weights.values()),
        dynamic=dynamic(inputs),
        unusual=tuple(_unusual(nodes)),
        manifest=own_manifest(properties.get(KEY)),
    )


def _nodes(graph: Table) -> Iterator[Table]:
    """All nodes, those of subgraphs included."""
    for node in graph.get("nodes", []):
        yield node
        for attribute in node.get("attributes", []):
            for subgraph in (*attribute.get("graphs", []), *([attribute["g"]] if "g" in attribute else [])):
                yield from _nodes(subgraph)


def _qualified(node: Table) -> str:
    domain = _text(node, "domain")
    return _text(node, "op_type") if domain in ("", "ai.onnx") else f"{domain}::{_text(node, 'op_type')}"


def _unusual(nodes: list[Table]) -> Iterator[str]:
    bound = sorted({_qualified(node) for node in nodes if _text(node, "domain") in _MACHINE_BOUND})
    if bound:
        yield f"made for the CPU of one machine, it runs on no other kind: {listed(bound)}"


def _port(value: Table) -> PortRecord:
    tensor = value.get("type", {}).get("value", {})
    shape = tuple(_dim(dim.get("value", {})) for dim in tensor.get("shape", {}).get("dim", []))
    return PortRecord(name=_text(value, "name"), dtype=_DTYPES[tensor.get("elem_type", 0)], shape=shape)


def _dim(value: Table) -> Dim:
    """DimensionValueType: 0 nothing known, 1 a size, 2 the name of a symbol."""
    kind = value.get("dim_type", 0)
    return value.get("dim_value", 0) if kind == 1 else _text(value, "dim_param") if kind == 2 else None


def _dims(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(size for (size,) in struct.iter_unpack("<q", tensor.get("dims", b"")))


def _text(table: Mapping[str, Any], field: str) -> str:
    return bytes(table.get(field, b"")).decode(errors="replace")
