"""The content of an `.ort` file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onnxport.formats.artifact import Artifact
from onnxport.formats.graph import Node, Tensor
from onnxport.formats.graph.ort import read_ort
from onnxport.formats.manifest import KEY
from onnxport.inspection.report import PortRecord, count

# Domains that exist only after ONNX Runtime's optimizations for the CPU of one machine.
_MACHINE_BOUND = ("com.microsoft.nchwc",)


def inspect(artifact: Artifact) -> dict[str, Any]:
    model = read_ort(artifact.path)
    nodes = list(model.graph.walk())
    inputs = _ports(model.graph.inputs)
    return {
        "producer": model.producer,
        "ir_version": model.ir_version,
        "opsets": dict(model.opsets),
        "inputs": inputs,
        "outputs": _ports(model.graph.outputs),
        "operators": count(node.qualified for node in nodes),
        "parameters": sum(tensor.size for tensor in model.graph.constants),
        "unusual": tuple(_unusual(nodes)),
        "manifest": model.metadata.get(KEY),
    }


def _ports(tensors: Iterable[Tensor]) -> tuple[PortRecord, ...]:
    return tuple(PortRecord(name=each.name, dtype=each.dtype, shape=each.shape or ()) for each in tensors)


def _unusual(nodes: Iterable[Node]) -> Iterator[str]:
    bound = sorted({node.qualified for node in nodes if node.domain in _MACHINE_BOUND})
    if bound:
        yield f"optimized for one kind of CPU, it runs on no other: {', '.join(bound)}"
