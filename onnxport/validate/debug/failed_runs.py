"""Find the fault of a candidate that cannot run, by the values that it computes until it stops."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import KEY, Manifest
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.local_error import LocalError, Replay, at_fault
from onnxport.validate.debug.search import Trail, in_order
from onnxport.validate.debug.taps import PLAIN, Sides
from onnxport.validate.debug.text import STOPS
from onnxport.validate.params import ValidateParams
from onnxport.validate.sessions import Oriented, isolated

# ONNX Runtime's "Reshape 'node name': why", as runtimes/ort/runtime.py writes it.
_NODE = re.compile(r"(\w+) '(.*?)': ")
_IDENTIFIER = b"TFL3"
_OPERATOR = re.compile(r"Node number (\d+) \(\w+\) failed")


def find_stop(
    sides: Sides, candidate: Artifact, params: ValidateParams, feeds: Feeds, error: OnnxportError
) -> Trail:
    """Find the node at fault before the candidate stops with `error`, else the node where it stops.

    Returns:
        A trail without a fault where the error does not name the place.
    """
    if candidate.format == "onnx":
        values, last = _onnx_values(sides, candidate, feeds, error)
    elif candidate.format == "tflite":
        values, last = _tflite_values(sides, candidate, params, feeds, error), None
    else:
        return Trail()
    given = in_order(sides.network, set(values))
    fault = _first_fault(sides, feeds, values, given)
    if fault is None and last is not None:
        nan = float("nan")
        fault = LocalError(last, float("inf"), (), nan, nan, f"{STOPS}{error.why}")
    if fault is None:
        return Trail()
    return Trail(
        feeds=feeds,
        fault=fault,
        group=sides.network.between(fault.value, frozenset(given)),
        needs=sides.network.frontier(fault.value, frozenset(given)),
    )


def _onnx_values(
    sides: Sides, candidate: Artifact, feeds: Feeds, error: OnnxportError
) -> tuple[dict[str, Array], str | None]:
    """Return the values before the node at which ONNX Runtime stops, and the first value of that node."""
    match, theirs = _NODE.search(error.why), Network(Model.load(candidate.path))
    names = [node.name for node in theirs.nodes]
    if match is None or match.group(2) not in names:
        return {}, None
    index = names.index(match.group(2))
    last = next((name for name in theirs.nodes[index].output if name in sides.network.producers), None)
    given = [name for name in sides.shared if theirs.producers.get(name, index) < index]
    part = theirs.part(given, frozenset())
    if not given:
        return {}, last
    with OrtRuntime(part.proto.SerializeToString(), PLAIN, folder=theirs.folder) as runtime:
        sides.runs += 1
        return runtime.run({name: feeds[name] for name in part.inputs}), last


def _tflite_values(
    sides: Sides, candidate: Artifact, params: ValidateParams, feeds: Feeds, error: OnnxportError
) -> dict[str, Array]:
    """Return the values before the operator at which LiteRT stops."""
    match = _OPERATOR.search(error.why)
    if match is None:
        return {}
    with ScratchFolder() as folder:
        copy = Path(folder, candidate.path.name)
        taps = _cut_before(int(match.group(1)), candidate.path, copy)
        given = [name for name in sides.shared if name in taps]
        if not given:
            return {}
        with isolated(Artifact(copy, "tflite"), params, "candidate") as runtime:
            sides.runs += 1
            return Oriented(runtime).run(feeds, taps=given)


def _cut_before(operator: int, source: Path, target: Path) -> frozenset[str]:
    """Write a `.tflite` file of ours without its operators from number `operator` on, and without its outputs.

    Returns:
        The ONNX values that the operators before it make and that the file's note names; none for a file without a
        note, for which nothing is written.
    """
    from ai_edge_litert import schema_py_generated as schema

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
    builder = schema.flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    target.write_bytes(bytes(builder.Output()))
    names = [graph.tensors[index].name.decode(errors="replace").partition(";")[0] for index in made]
    keys = {name for name in names if names.count(name) == 1}
    return frozenset(name for name, tap in Manifest.from_json(text).taps.items() if tap.key in keys)


def _first_fault(
    sides: Sides, feeds: Feeds, values: Mapping[str, Array], given: list[str]
) -> LocalError | None:
    if not given:
        return None
    shown = sides.beside(feeds, values)
    found = Replay(sides.network, given, sides.sizes(feeds), sides.rounds).compare(
        given, feeds, shown.candidate
    )
    return next(iter(at_fault(found, given)), None)
