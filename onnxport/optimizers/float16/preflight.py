"""The pre-flight of a float16 conversion: the magnitude of every value on samples, measured with ONNX Runtime.

It runs in a subprocess that ends before the conversion starts, so that the two do not share memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from onnxport.core.arrays import Feeds
from onnxport.formats.input_shapes import GivenShape, apply_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.optimizers.float16.magnitudes import Measured
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains, without_functions
from onnxport.samples.footprint import Footprint
from onnxport.samples.generator import KINDS, generate
from onnxport.samples.input_domains import InputDomains
from onnxport.samples.sizes import OpenSizes

_MOST_TRIES = 40  # sizes of open dimensions
_PATIENCE = 20.0  # seconds of trying
_MOST_BYTES = 1_000_000_000  # for the values of one run at sizes that the user did not give


class Preflight:
    """The measuring object of the subprocess."""

    def measure(self, path: Path, shapes: Mapping[str, GivenShape], given: Sequence[Feeds] = ()) -> Measured:
        """Run the prepared model at `path` on the `given` inputs, or on generated ones of the sizes `shapes`."""
        model = Model.received(path)
        try:
            session, names = _session(model, path.with_name("preflight.onnx"))
        except Exception as error:  # whatever ONNX Runtime raises: the conversion can do without
            return Measured(failure=_first_line(error))
        peaks: dict[str, float] = {}
        sets, failure = 0, "no sizes were found that the model accepts"
        for feeds in given or _generate(model, shapes, session):
            try:
                found = session.run(None, dict(feeds))
            except Exception as error:
                failure = _first_line(error)
                continue
            sets += 1
            for name, value in zip(names, found, strict=True):
                peaks[name] = max(peaks.get(name, 0.0), float(np.nan_to_num(value, nan=np.inf)))
        return Measured(peaks, sets, "" if sets else failure)


def _session(model: Model, path: Path) -> tuple[onnxruntime.InferenceSession, list[str]]:
    """Open the model with the peaks of its float values as its only outputs; return the values' names, too."""
    graph = model.graph
    peaks = _Taps(model.opset).add(graph)
    graph.outputs.clear()
    graph.outputs.extend(peak for _, peak in peaks)
    # ONNX Runtime does not open weights in files of other folders.
    weights = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())
        for name, value in graph.initializers.items()
        if isinstance(tensor := value.const_value, ir.ExternalTensor)
        and Path(tensor.path).parent != path.parent
    }
    ir.save(model.ir, path)
    session = open_session(path, level="disable", prepacking=False, initializers=weights)
    return session, [name for name, _ in peaks]


def _generate(model: Model, shapes: Mapping[str, GivenShape], session: Any) -> Iterator[Feeds]:
    """Generate an input set of each kind, except those that overflow, at the first sizes that the model accepts."""
    inputs = [spec for spec in model.inputs if spec.name in {each.name for each in session.get_inputs()}]
    names = {spec.name for spec in inputs}
    given = {name: shape for name, shape in shapes.items() if name in names}
    graph = without_functions(model)
    domains_at = InputDomains(graph, domains(graph))
    sizes = OpenSizes(inputs, apply_shapes(inputs, {}), size_limits(inputs, given), graph)
    footprint, end = Footprint(model, inputs), time.monotonic() + _PATIENCE

    def fits(shape: Any) -> bool:
        return not sizes.untold or footprint.at(shape).graph <= _MOST_BYTES

    fitting = filter(fits, sizes.proposals(1))
    proposals = takewhile(lambda _: time.monotonic() < end, islice(fitting, _MOST_TRIES))
    chosen = None
    for number, kind in enumerate(KINDS):
        for shape in [chosen] if chosen else proposals:
            specs = {spec.name: (spec, shape[spec.name]) for spec in inputs}
            feeds = generate(specs, domains_at.at(shape, 0, number), kind=kind, seed=0, index=number)
            if chosen is None:
                try:
                    session.run(None, dict(feeds))
                except Exception:
                    continue
            chosen = shape
            yield feeds
            break


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__


# ---- nodes that compute the largest magnitude of every float value, branches and loop bodies included


_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
_BODIES = {"Loop": 1, "Scan": 9}  # since which opset: Scan-8 has a batch

Peaks = list[tuple[str, ir.Value]]


class _Taps:
    """Nodes that compute peaks; a branch or body returns its own as further results.

    These are zeros for the branch not taken, and one per step for Loop and Scan.
    """

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._names = (f"/peak/{number}" for number in count())

    def add(self, graph: ir.Graph) -> Peaks:
        """Append nodes to `graph` that compute the peaks; return each with its value's name, which may recur."""
        values = [value for value in graph.inputs if value.name not in graph.initializers]
        found: Peaks = []
        for node in list(graph):
            values += node.outputs
            found += self._inside(graph, node)
        floats = [v for v in values if v.dtype in _FLOATS and isinstance(v.type, ir.TensorType)]
        return found + [(value.name, self._peak(graph, value)) for value in floats if value.name]

    def _peak(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        magnitude = self._put(graph, "Abs", [value], {}, value.shape)
        return self._put(graph, "ReduceMax", [magnitude], {"keepdims": 0}, ir.Shape(()))

    def _inside(self, graph: ir.Graph, node: ir.Node) -> Iterator[tuple[str, ir.Value]]:
        """Yield the peaks inside the node's own graphs, as values of `graph`."""
        if node.op_type == "If":
            branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
            tapped = [self.add(branch) for branch in branches]
            for branch, other, peaks in zip(branches, branches[::-1], tapped, strict=True):
                other.outputs.extend(self._zero(other, peak, ir.Shape(())) for _, peak in peaks)
                yield from self._return_peaks(node, branch, peaks)
        elif self._opset >= _BODIES.get(node.op_type, self._opset + 1):
            body = node.attributes["body"].as_graph()
            for name, steps in self._return_peaks(node, body, self.add(body)):
                steps.shape = ir.Shape([None])
                zero = self._zero(graph, steps, ir.Shape((1,)))  # there may be no step
                every = self._put(graph, "Concat", [steps, zero], {"axis": 0}, steps.shape)
                yield name, self._put(graph, "ReduceMax", [every], {"keepdims": 0}, ir.Shape(()))

    def _return_peaks(self, node: ir.Node, body: ir.Graph, peaks: Peaks) -> Iterator[tuple[str, ir.Value]]:
        """Make the peaks of one of the node's graphs results of the node."""
        body.outputs.extend(peak for _, peak in peaks)
        before = len(node.outputs)
        node.resize_outputs(before + len(peaks))
        for listed in ("scan_output_axes", "scan_output_directions"):
            if listed in node.attributes:
                given = list(node.attributes[listed].as_ints())
                node.attributes[listed] = ir.AttrInt64s(listed, given + [0] * len(peaks))
        for (name, peak), result in zip(peaks, node.outputs[before:], strict=True):
            result.name, result.type, result.shape = next(self._names), peak.type, ir.Shape(())
            yield name, result

    def _zero(self, graph: ir.Graph, like: ir.Value, shape: ir.Shape) -> ir.Value:
        assert like.dtype is not None
        zeros = ir.tensor(np.zeros(shape.numpy(), like.dtype.numpy()))
        made = self._put(graph, "Constant", [], {"value": zeros}, shape)
        made.type = like.type
        return made

    def _put(
        self,
        graph: ir.Graph,
        op: str,
        inputs: list[ir.Value],
        attributes: dict[str, ir.TensorProtocol | int],
        shape: ir.Shape | None,
    ) -> ir.Value:
        """Append a node and return its result, of its operand's type."""
        node = ir.node(op, inputs, attributes)
        result = node.outputs[0]
        node.name = result.name = next(self._names)
        result.type, result.shape = (inputs[0].type if inputs else None), shape
        graph.append(node)
        return result
