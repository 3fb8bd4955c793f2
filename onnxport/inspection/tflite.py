"""The content of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onnxport.converters.tflite.load_check import count_operators
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph.tflite import TfliteModel, read_tflite
from onnxport.formats.manifest import Port
from onnxport.formats.tflite.labels import read_labels
from onnxport.inspection.report import SHOWN, LabelRecord, PortRecord, list_first
from onnxport.runtimes import load


def inspect(artifact: Artifact) -> dict[str, Any]:
    with load(artifact.path) as runtime:  # refuses what is damaged
        remarks = getattr(runtime, "remarks", ())
    model = read_tflite(artifact.path)
    found = count_operators(model)
    return {
        "producer": model.description,
        "ir_version": None,
        "opsets": {"tflite": model.version},
        "inputs": _ports(model, model.ends.inputs),
        "outputs": _ports(model, model.ends.outputs),
        "operators": found,
        "parameters": sum(tensor.size for tensor in model.stored),
        "unusual": (*_unusual(model, found), *remarks),
        "labels": tuple(_labels(model)),
        "manifest": model.manifest,
    }


def _ports(model: TfliteModel, ends: Iterable[tuple[Port, int]]) -> tuple[PortRecord, ...]:
    """Return the types that an app meets; our manifest has those of the source."""
    tensors = model.main.tensors
    return tuple(
        PortRecord(
            name=port.name,
            dtype=tensors[index].dtype,
            shape=port.shape,
            scale=tensors[index].scale or None,
            zero_point=tensors[index].zero_point if tensors[index].scale else None,
        )
        for port, index in ends
    )


def _labels(model: TfliteModel) -> Iterator[LabelRecord]:
    """Yield what apps find: metadata count the outputs as the subgraph does."""
    names = {id(model.main.tensors[index]): port.name for port, index in model.ends.outputs}
    outputs = [names.get(id(tensor), tensor.name) for tensor in model.main.graph.outputs]
    for each in read_labels(model.path, model.app_metadata or b""):
        if each.place < len(outputs):
            count, first = (None, ()) if each.labels is None else (len(each.labels), each.labels[:SHOWN])
            yield LabelRecord(output=outputs[each.place], file=each.file, count=count, first=first)


def _unusual(model: TfliteModel, operators: Mapping[str, int]) -> Iterator[str]:
    if custom := [name for name in operators if name.startswith("custom ")]:
        yield f"operators that only some runtimes have: {', '.join(custom)}"
    if len(model.subgraphs) > 1:
        yield f"{len(model.subgraphs)} subgraphs: control flow or several signatures"
    if not model.signatures:
        yield "no signature: inputs and outputs are known by their tensors' names only"
    for port, _ in (*model.ends.inputs, *model.ends.outputs):
        if port.texts:
            yield f"the numbers of {port.name!r} are positions in {list_first(port.texts)}"
