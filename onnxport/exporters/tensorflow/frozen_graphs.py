"""Frozen graphs (.pb): a GraphDef with constant variables; the user names its inputs and outputs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from onnxport.core.errors import InputError, UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.exporters.tensorflow.file_access import check_file_access
from onnxport.exporters.tensorflow.library import TENSORFLOW, dtype_name, shape_of, tf
from onnxport.exporters.tensorflow.model import Callee, TensorflowModel, first_line
from onnxport.exporters.tensorflow.signatures import DeclaredInput

# Nodes that end a graph without being a result of it.
_NO_RESULT = frozenset({"NoOp", "Assert", "Const", "Placeholder", "SaveV2", "PrintV2"})
_VARIABLES = frozenset({"VariableV2", "Variable", "VarHandleOp", "RefVariable"})


def load(source: Source, params: ExportParams) -> TensorflowModel:
    """Load the graph from --input, or its placeholders, to --output-names, or its only end.

    Raises:
        InputError: no GraphDef, or one that is not frozen.
        UsageError: an unknown tensor, or several ends of which none is chosen.
    """
    path = Path(source.name)
    graph = _graph(path)
    ends = _ends(graph)
    roots = [name.partition(":")[0] for name in params.output_names or ends]
    check_file_access(path, graph, trust=params.trust, roots=roots)
    if not params.output_names and len(ends) != 1:
        raise UsageError(
            f"{path} has {len(ends)} nodes that nothing reads",
            why="a frozen graph does not declare its outputs",
            fix=f"choose with --output-names: {', '.join(ends[:12])}",
        )
    names = params.output_names or ends
    wrapped = tf.compat.v1.wrap_function(lambda: _import_graph(path, graph), [])
    taken = list(params.input) or [node.name for node in graph.node if node.op == "Placeholder"]
    if not taken:
        raise UsageError(f"{path} has no placeholder", fix="say with --input which tensors are its inputs")
    inputs = {name: _tensor(wrapped.graph, name, path) for name in taken}
    pruned = wrapped.prune(list(inputs.values()), [_tensor(wrapped.graph, name, path) for name in names])
    callee = Callee(
        lambda tensors: pruned(*(tensors[name] for name in inputs)),
        tuple(DeclaredInput(name, dtype_name(each.dtype), shape_of(each)) for name, each in inputs.items()),
        tuple(name.removesuffix(":0") for name in names),
        engine=f"{TENSORFLOW}, frozen graph",
        notes=() if params.output_names else (f"{ends[0]!r}, which nothing reads, was taken as the output",),
    )
    return TensorflowModel(callee, source, params.model_copy(update={"output_names": ()}))


def _graph(path: Path) -> Any:
    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
    except DecodeError as error:
        if path.name == "saved_model.pb" or _is_saved_model(path):
            raise InputError(
                f"{path} is the graph of a SavedModel", fix=f"give the folder: {path.parent}"
            ) from error
        raise InputError(f"{path} is damaged or not a TensorFlow graph", why=first_line(error)) from error
    if not graph.node:
        raise InputError(f"{path} is not a TensorFlow graph", why="it has no nodes")
    variables = [node.name for node in graph.node if node.op in _VARIABLES]
    if variables:
        raise InputError(
            f"{path} is not frozen",
            why=f"its variables have no values, {variables[0]!r} the first of {len(variables)}",
            fix="give the SavedModel that it is of, or freeze it with its checkpoint",
        )
    return graph


def _is_saved_model(path: Path) -> bool:
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        return bool(saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs)
    except DecodeError:
        return False


def _import_graph(path: Path, graph: Any) -> None:
    try:
        tf.import_graph_def(graph, name="")
    except (ValueError, tf.errors.OpError) as error:
        raise InputError(f"TensorFlow cannot read the graph in {path}", why=first_line(error)) from error


def _ends(graph: Any) -> Sequence[str]:
    """Return the nodes that no other reads, in order."""
    read = {name.lstrip("^").partition(":")[0] for node in graph.node for name in node.input}
    return tuple(node.name for node in graph.node if node.name not in read and node.op not in _NO_RESULT)


def _tensor(graph: Any, name: str, path: Path) -> Any:
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError) as error:
        known = [node.name for node in graph.get_operations()]
        nodes = difflib.get_close_matches(name, known, n=5, cutoff=0.0)
        raise UsageError(f"{path} has no tensor {name!r}", fix=f"near it are {', '.join(nodes)}") from error
