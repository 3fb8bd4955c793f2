"""The content of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnxport.converters.tflite.load_check import count_operators
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph.tflite import TfliteModel, read_tflite
from onnxport.inspection.report import Inspection, list_dynamic, own_manifest, ports
from onnxport.runtimes import load


def inspect(artifact: Artifact) -> Inspection:
    with load(artifact.path) as runtime:  # refuses what is damaged
        inputs, outputs = ports(runtime.inputs), ports(runtime.outputs)
        remarks = getattr(runtime, "remarks", ())
    model = read_tflite(artifact.path)
    found = count_operators(model)
    return Inspection(
        path=str(artifact.path),
        format="tflite",
        size=artifact.size,
        files=artifact.names,
        producer=model.description,
        ir_version=None,
        opsets={"tflite": model.version},
        inputs=inputs,
        outputs=outputs,
        operators=found,
        parameters=sum(tensor.size for tensor in model.stored),
        dynamic=list_dynamic(inputs),
        unusual=(*_unusual(model, found), *remarks),
        manifest=own_manifest(model.manifest),
    )


def _unusual(model: TfliteModel, operators: Mapping[str, int]) -> Iterator[str]:
    if custom := [name for name in operators if name.startswith("custom ")]:
        yield f"operators that only some runtimes have: {', '.join(custom)}"
    if len(model.subgraphs) > 1:
        yield f"{len(model.subgraphs)} subgraphs: control flow or several signatures"
    if not model.signatures:
        yield "no signature: inputs and outputs are known by their tensors' names only"
