"""The content of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onnxport.converters.tflite.load_check import count_operators
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph.tflite import TfliteModel, read_tflite
from onnxport.inspection.report import ports
from onnxport.runtimes import load


def inspect(artifact: Artifact) -> dict[str, Any]:
    with load(artifact.path) as runtime:  # refuses what is damaged
        inputs, outputs = ports(runtime.inputs), ports(runtime.outputs)
        remarks = getattr(runtime, "remarks", ())
    model = read_tflite(artifact.path)
    found = count_operators(model)
    return {
        "producer": model.description,
        "ir_version": None,
        "opsets": {"tflite": model.version},
        "inputs": inputs,
        "outputs": outputs,
        "operators": found,
        "parameters": sum(tensor.size for tensor in model.stored),
        "unusual": (*_unusual(model, found), *remarks),
        "manifest": model.manifest,
    }


def _unusual(model: TfliteModel, operators: Mapping[str, int]) -> Iterator[str]:
    if custom := [name for name in operators if name.startswith("custom ")]:
        yield f"operators that only some runtimes have: {', '.join(custom)}"
    if len(model.subgraphs) > 1:
        yield f"{len(model.subgraphs)} subgraphs: control flow or several signatures"
    if not model.signatures:
        yield "no signature: inputs and outputs are known by their tensors' names only"
