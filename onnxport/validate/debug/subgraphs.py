"""The part of an ONNX candidate that stands for the node at fault, as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.ort.session import OrtRuntime
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.taps import PLAIN


def of_candidate(
    candidate: Artifact,
    value: str,
    needs: Sequence[str],
    inputs: Feeds,
    answer: Array,
    dtypes: Mapping[str, np.dtype[np.generic]],
) -> onnx.ModelProto | None:
    """The candidate's nodes from `needs` to `value`, taking and giving what the reference's do.

    Args:
        inputs: what the reference's nodes take, by name.
        answer: what they give.
        dtypes: the candidate's own, where a value of it has another one than the reference's.

    Returns:
        None for a candidate that is no ONNX file, or whose nodes there take something else.
    """
    if candidate.format != "onnx":
        return None
    theirs = Network(Model.load(candidate.path))
    if value not in theirs.producers:
        return None
    part = theirs.part([value], frozenset(needs))
    if set(part.inputs) != set(inputs):
        return None
    proto = onnx.ModelProto.FromString(part.proto.SerializeToString())
    if theirs.folder is not None:
        onnx.load_external_data_for_model(proto, str(theirs.folder))
    for given in proto.graph.input:
        given.type.CopyFrom(_type(inputs[given.name]))
    proto.graph.output[0].type.CopyFrom(_type(answer))
    _cast(proto.graph, {name: array.dtype for name, array in (*inputs.items(), (value, answer))}, dtypes)
    return proto if _runs(proto, inputs) else None


def _cast(
    graph: onnx.GraphProto,
    ours: Mapping[str, np.dtype[np.generic]],
    theirs: Mapping[str, np.dtype[np.generic]],
) -> None:
    """Casts at the ends, where the candidate computes in another type."""
    before, after = list[onnx.NodeProto](), list[onnx.NodeProto]()
    made = {name for node in graph.node for name in node.output}
    for name in [name for name, dtype in ours.items() if theirs.get(name, dtype) != dtype]:
        inner = f"{name}/own"
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [inner if each == name else each for each in names]
        if name in made:
            after.append(_node(inner, name, ours[name]))
        else:
            before.append(_node(name, inner, theirs[name]))
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


def _node(source: str, target: str, dtype: np.dtype[np.generic]) -> onnx.NodeProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_node("Cast", [source], [target], name=f"{target}/cast", to=element)


def _type(array: Array) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _runs(proto: onnx.ModelProto, inputs: Feeds) -> bool:
    try:
        with OrtRuntime(proto.SerializeToString(), PLAIN) as runtime:
            runtime.run(inputs)
    except OnnxportError:
        return False
    return True
