"""A candidate that cannot run on some inputs: what it computes until it stops is compared with the reference."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.ort.session import OrtRuntime
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.local_error import Local, Replay, at_fault
from onnxport.validate.debug.search import Trail, in_order
from onnxport.validate.debug.taps import PLAIN, Sides
from onnxport.validate.debug.text import STOPS
from onnxport.validate.params import ValidateParams
from onnxport.validate.sessions import Oriented, isolated

# ONNX Runtime's "Reshape 'node name': why", as runtimes/ort.py writes it.
_NODE = re.compile(r"(\w+) '(.*?)': ")
_OPERATOR = re.compile(r"Node number (\d+) \(\w+\) failed")


def stopped_at(
    sides: Sides, candidate: Artifact, params: ValidateParams, feeds: Feeds, error: OnnxportError
) -> Trail:
    """The node at which the candidate goes wrong before it stops with `error`; else the one where it stops.

    Returns:
        A trail without a fault where the error does not say where that is.
    """
    if candidate.format == "onnx":
        values, last = _of_onnx(sides, candidate, feeds, error)
    elif candidate.format == "tflite":
        values, last = _of_tflite(sides, candidate, params, feeds, error), None
    else:
        return Trail()
    given = in_order(sides.network, set(values))
    fault = _wrong(sides, feeds, values, given)
    if fault is None and last is not None:
        nan = float("nan")
        fault = Local(last, float("inf"), (), nan, nan, f"{STOPS}{error.why}")
    if fault is None:
        return Trail()
    return Trail(
        feeds=feeds,
        fault=fault,
        group=sides.network.between(fault.value, frozenset(given)),
        needs=sides.network.frontier(fault.value, frozenset(given)),
    )


def _of_onnx(
    sides: Sides, candidate: Artifact, feeds: Feeds, error: OnnxportError
) -> tuple[dict[str, Array], str | None]:
    """The values before the node at which ONNX Runtime stops, and the first that this node gives."""
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


def _of_tflite(
    sides: Sides, candidate: Artifact, params: ValidateParams, feeds: Feeds, error: OnnxportError
) -> dict[str, Array]:
    """The values before the operator at which LiteRT stops."""
    from onnxport.validate.debug.truncated_tflite import cut_before

    match = _OPERATOR.search(error.why)
    if match is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
        copy = Path(folder, candidate.path.name)
        taps = cut_before(int(match.group(1)), candidate.path, copy)
        given = [name for name in sides.shared if name in taps]
        if not given:
            return {}
        with isolated(Artifact(copy, "tflite"), params, "candidate") as runtime:
            sides.runs += 1
            return Oriented(runtime).run(feeds, taps=given)


def _wrong(sides: Sides, feeds: Feeds, values: Mapping[str, Array], given: list[str]) -> Local | None:
    if not given:
        return None
    shown = sides.beside(feeds, values)
    found = Replay(sides.network, given, sides.sizes(feeds), sides.rounds).judge(
        given, feeds, shown.candidate
    )
    return next(iter(at_fault(found, given)), None)
