"""An ONNX Runtime session that returns the observed tensors and computes only what they need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, printable
from onnxport.core.resources import Closing
from onnxport.quantize.calibration.subnormal_weights import flush_subnormals
from onnxport.runtimes.ort.inference_session import open_session

_ZERO = "onnxport zero"


def write_tapped(path: Path, taps: Collection[str], tapped: Path, *, others: Collection[str] = ()) -> None:
    """Write the model at `path` to `tapped` with `taps` as its only outputs and without unneeded nodes.

    External data stays where it is: the copy, in the same folder, names the same files. Weights of products below the
    normal range are 0 in it.

    Args:
        others: tensors that must come out of the same kernels as taps do. ONNX Runtime may fuse the maker of an unread
            tensor with its reader, which rounds otherwise. They are not returned.
    """
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in taps)
    kept = _needed_nodes(graph, (*taps, *others))
    for number in reversed(range(len(graph.node))):
        if number not in kept:
            del graph.node[number]
    scalars = {value.name for value in graph.value_info if not value.type.tensor_type.shape.dim}
    for name in others:
        if name not in scalars:  # no part of them is nothing
            _add_empty_reader(graph, name)
    flush_subnormals(graph, path.parent)
    tapped.write_bytes(model.SerializeToString())


def _add_empty_reader(graph: onnx.GraphProto, name: str) -> None:
    """Add an output without elements that reads the tensor `name`, of rank 1 or more."""
    none = f"{name} of none"
    if not any(tensor.name == _ZERO for tensor in graph.initializer):
        graph.initializer.append(onnx.helper.make_tensor(_ZERO, onnx.TensorProto.INT64, [1], [0]))
    graph.node.append(onnx.helper.make_node("Slice", [name, _ZERO, _ZERO, _ZERO], [none]))
    graph.output.append(onnx.ValueInfoProto(name=none))


def external_files(path: Path) -> list[Path]:
    """Return the external data files of the model."""
    graph = onnx.load(path, load_external_data=False).graph
    entries = [entry for tensor in graph.initializer for entry in tensor.external_data]
    return sorted({path.parent / entry.value for entry in entries if entry.key == "location"})


def _needed_nodes(graph: onnx.GraphProto, taps: Collection[str]) -> set[int]:
    """Return the indices of the nodes that the taps need."""
    makers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    kept: set[int] = set()
    open_names = list(taps)
    while open_names:
        number = makers.get(open_names.pop())
        if number is not None and number not in kept:
            kept.add(number)
            open_names += _inputs_of(graph.node[number])
    return kept


def _inputs_of(node: onnx.NodeProto) -> list[str]:
    """Return the inputs of a node, and the outer values that its subgraphs read."""
    names = list(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                names += _inputs_of(each)
            names += [output.name for output in inner.output]
    return names


class TappedSession(Closing):
    """Runs a file of write_tapped.

    Full graph optimization leaves the taps unchanged: it may fuse between two of them, not across one.

    Args:
        taps: the outputs; nothing is loaded without any.
        label: the user's name of the model.

    Raises:
        InputError: ONNX Runtime cannot load the model.
    """

    def __init__(self, path: Path, taps: Sequence[str], label: str) -> None:
        self.taps, self._label, self._session = tuple(taps), label, None
        if not taps:
            return
        try:
            # A memory pattern reserves one block for a whole run beside the outputs, of which there are many here: a
            # quarter of all memory on u2netp. In order of priority each tensor is freed when its readers are done.
            self._session = open_session(
                path,
                threads=1,
                spinning=False,
                enable_mem_pattern=False,
                execution_order=ort.ExecutionOrder.PRIORITY_BASED,
            )
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise InputError(f"ONNX Runtime cannot load {label}", why=_cause(error)) from error
        self._inputs = frozenset(each.name for each in self._session.get_inputs())

    def run(self, feeds: Mapping[str, Array], sample: str) -> list[Array]:
        """Return the taps' values, in the order of `taps`; InputError if ONNX Runtime refuses the sample."""
        if self._session is None:
            return []
        given = {name: np.asarray(array) for name, array in feeds.items() if name in self._inputs}
        try:
            values: list[Array] = self._session.run(self.taps, given)
        except Exception as error:  # see __init__
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in given.items())
            raise InputError(
                f"{self._label} cannot be run on the sample {sample} ({shapes})", why=_cause(error)
            ) from error
        return values

    def close(self) -> None:
        """Free the session."""
        self._session = None


def _cause(error: Exception) -> str:
    return printable(" ".join(str(error).split()))[:300]
