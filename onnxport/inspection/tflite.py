"""What is in a `.tflite` file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from onnxport.converters.tflite.load_check import operators
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import KEY
from onnxport.inspection.report import Inspection, dynamic, file_names, listed, own_manifest, ports
from onnxport.runtimes import load


def inspect(artifact: Artifact) -> Inspection:
    with load(artifact.path) as runtime:  # refuses what is damaged
        inputs, outputs = ports(runtime.inputs), ports(runtime.outputs)
        remarks = getattr(runtime, "remarks", ())
    model = schema.Model.GetRootAs(artifact.path.read_bytes(), 0)
    found = operators(artifact.path)
    return Inspection(
        path=str(artifact.path),
        format="tflite",
        size=artifact.size,
        files=file_names(artifact),
        producer=(model.Description() or b"").decode(errors="replace"),
        ir_version=None,
        opsets={"tflite": model.Version()},
        inputs=inputs,
        outputs=outputs,
        operators=found,
        parameters=_constants(model),
        dynamic=dynamic(inputs),
        unusual=(*_unusual_tflite(model, found), *remarks),
        manifest=own_manifest(_tflite_note(model)),
    )


def _constants(model: Any) -> int:
    """Elements of all tensors that have data in the file."""
    tensors = (
        subgraph.Tensors(i)
        for subgraph in (model.Subgraphs(j) for j in range(model.SubgraphsLength()))
        for i in range(subgraph.TensorsLength())
    )
    shapes = {
        tensor.Buffer(): tensor.ShapeAsNumpy() if tensor.ShapeLength() else ()
        for tensor in tensors
        if model.Buffers(tensor.Buffer()).DataLength() or model.Buffers(tensor.Buffer()).Size()
    }
    return sum(math.prod(int(size) for size in shape) for shape in shapes.values())


def _unusual_tflite(model: Any, operators: Mapping[str, int]) -> Iterator[str]:
    if custom := [name for name in operators if name.startswith("custom ")]:
        yield f"operators that only some runtimes have: {listed(custom)}"
    if model.SubgraphsLength() > 1:
        yield f"{model.SubgraphsLength()} subgraphs: control flow or several signatures"
    if not model.SignatureDefsLength():
        yield "no signature: inputs and outputs are known by their tensors' names only"


def _tflite_note(model: Any) -> str | None:
    for entry in (model.Metadata(i) for i in range(model.MetadataLength())):
        if entry.Name() == KEY.encode():
            return bytes(model.Buffers(entry.Buffer()).DataAsNumpy()).decode()
    return None
