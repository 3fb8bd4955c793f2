"""A `.tflite` file of ours cut off before the operator at which LiteRT stops, to see what came out until there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from onnxport.formats.manifest import KEY, Manifest

_IDENTIFIER = b"TFL3"


def cut_before(operator: int, source: Path, target: Path) -> frozenset[str]:
    """Writes the file without its operators from number `operator` on, and without its outputs.

    Returns:
        The ONNX values that the operators before it make and that the file's note names; none for a file that has no
        note, and then nothing is written.
    """
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(source.read_bytes()), 0))
    note = next((each for each in model.metadata or () if each.name == KEY.encode()), None)
    graph = model.subgraphs[0]
    graph.operators = graph.operators[:operator]
    if note is None or not graph.operators:
        return frozenset()
    text = bytes(model.buffers[note.buffer].data).decode()
    model.buffers[note.buffer].data = json.dumps(json.loads(text) | {"outputs": []}).encode()
    made = [int(index) for each in graph.operators for index in each.outputs]
    graph.outputs = made[-1:]
    for each in model.signatureDefs or ():
        each.outputs = []
    target.write_bytes(_packed(model))
    names = [graph.tensors[index].name.decode(errors="replace").partition(";")[0] for index in made]
    keys = {name for name in names if names.count(name) == 1}
    return frozenset(name for name, tap in Manifest.from_json(text).taps.items() if tap.key in keys)


def _packed(model: Any) -> bytes:
    builder = schema.flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())
