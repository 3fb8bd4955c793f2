"""A `.tflite` file cut into pieces at its tensors, in LiteRT: each piece computes on what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.tflite.ports import Signature, cause, from_tflite, to_tflite
from onnxport.runtimes.base import RunError
from onnxport.runtimes.native_output import drop_stderr
from onnxport.validate.translation.arithmetic import ANSWER
from onnxport.validate.translation.tflite.contents import Operator, StoredGraph

_IDENTIFIER = b"TFL3"
_THREADS = 2
_SIZES = ("int32", "int64")


def at_sizes(
    stored: StoredGraph, ends: Signature, feeds: Feeds
) -> tuple[StoredGraph, dict[int, tuple[int, ...]]]:
    """Return the file at the sizes of a set of inputs, and the sizes of every tensor.

    Integers that the file computes of sizes alone are constants there.

    Args:
        feeds: with the source's axes.

    Raises:
        InputError: LiteRT cannot load the file.
        RunError: it cannot run it.
    """
    sizes = [index for operator in _size_operators(stored) for index in operator.outputs]
    content = _with_outputs(stored.content, sizes) if sizes else stored.content
    interpreter = _ran(content, ends, feeds, {})
    shapes = {
        each["index"]: tuple(int(size) for size in each["shape"]) for each in interpreter.get_tensor_details()
    }
    return _fold(stored, {each: np.array(interpreter.get_tensor(each)) for each in sizes}), shapes


def tensor_values(
    folded: StoredGraph, shapes: Mapping[int, tuple[int, ...]], ends: Signature, feeds: Feeds
) -> dict[int, Array]:
    """Return what tensors hold that are computed, by index.

    Args:
        folded, shapes: see at_sizes. Behind each operator whose result has sizes that LiteRT does not know before,
            it would move all that it holds: 100 s for a network of 2,600 nodes.

    Raises:
        InputError, RunError: see at_sizes.
    """
    content = _with_known_sizes(folded, shapes)
    interpreter = _ran(content, ends, feeds, {"experimental_preserve_all_tensors": True})
    found = {}
    for index in sorted({each for operator in folded.operators for each in operator.outputs if each >= 0}):
        with suppress(ValueError):  # what nothing reads has no place
            found[index] = np.array(interpreter.get_tensor(index))
    return found


def _ran(content: bytes, ends: Signature, feeds: Feeds, options: Mapping[str, Any]) -> Any:
    """Return an interpreter without delegates that ran."""
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = _opened(content, {"experimental_op_resolver_type": resolver, **options})
    _feed(interpreter, {index: _stored(port, feeds[port.name]) for port, index in ends.inputs})
    _invoke(interpreter)
    return interpreter


def _fold(stored: StoredGraph, known: Mapping[int, Array]) -> StoredGraph:
    """Return the graph with these tensors as constants."""
    tensors = tuple(replace(each, data=known.get(each.index, each.data)) for each in stored.tensors)
    kept = tuple(each for each in stored.operators if not known.keys() >= set(each.outputs))
    return replace(stored, tensors=tensors, operators=kept)


def _size_operators(stored: StoredGraph) -> list[Operator]:
    """Return SHAPE, and what computes integers from its results and constants alone."""
    known = {tensor.index for tensor in stored.tensors if tensor.data is not None}
    found = []
    for operator in stored.operators:
        results = [stored.tensors[each] for each in operator.outputs]
        inputs = [each for each in operator.inputs if each >= 0]
        is_plain = all(each.dtype in _SIZES and each.grid is None for each in results)
        if results and is_plain and (operator.op == "SHAPE" or (inputs and known.issuperset(inputs))):
            found.append(operator)
            known.update(operator.outputs)
    return found


def _with_outputs(content: bytes, indices: Sequence[int]) -> bytes:
    """Return the file with these tensors as its outputs."""
    model = _parsed(content)
    model.subgraphs[0].outputs = np.array(indices, np.int32)
    return _packed(model, content)


def _with_known_sizes(folded: StoredGraph, shapes: Mapping[int, tuple[int, ...]]) -> bytes:
    """Return the file that computes no tensor which is a constant of `folded`, and leaves no size open."""
    model = _parsed(folded.content)
    graph = model.subgraphs[0]
    computed = {int(each) for operator in graph.operators for each in operator.outputs}
    constants = {
        each.index: each.data for each in folded.tensors if each.data is not None and each.index in computed
    }
    graph.operators = [
        each for each in graph.operators if not constants.keys() >= set(map(int, each.outputs))
    ]
    for index, array in constants.items():
        tensor, buffer = graph.tensors[index], schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        tensor.buffer = len(model.buffers)
        model.buffers.append(buffer)
    for index, tensor in enumerate(graph.tensors):
        tensor.shape, tensor.shapeSignature = np.array(shapes[index], np.int32), None
    return _packed(model, folded.content)


def _parsed(content: bytes) -> Any:
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


def _packed(model: Any, content: bytes) -> bytes:
    """Return a changed model as a file.

    Args:
        content: of the file that it was parsed from.
    """
    model.signatureDefs, model.metadata = [], []
    builder = flatbuffers.Builder(len(content) + (1 << 20))
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


def _opened(content: bytes, options: Mapping[str, Any]) -> Any:
    try:
        return Interpreter(model_content=content, num_threads=_THREADS, **options)
    except (ValueError, RuntimeError) as error:
        raise InputError("LiteRT cannot load the pieces of the file", why=cause(error)) from error


def _invoke(interpreter: Any) -> None:
    try:
        interpreter.invoke()
    except (ValueError, RuntimeError) as error:
        raise RunError("LiteRT cannot run the pieces of the file", why=cause(error)) from error


def _stored(port: Any, array: Array) -> tuple[Any, Array]:
    return port, array.transpose(port.permutation) if port.permutation else array


def _feed(interpreter: Any, given: Mapping[int, tuple[Any, Array]]) -> None:
    details = {detail["index"]: detail for detail in interpreter.get_input_details()}
    try:
        for index, (_, array) in given.items():
            if tuple(details[index]["shape"]) != array.shape:
                interpreter.resize_tensor_input(index, array.shape)
        with drop_stderr():
            interpreter.allocate_tensors()
        for index, (port, array) in given.items():
            dtype = np.dtype(details[index]["dtype"])
            interpreter.set_tensor(
                index, array.astype(dtype) if port is None else to_tflite(array, dtype, port)
            )
    except (ValueError, RuntimeError) as error:
        raise RunError("LiteRT cannot be fed", why=cause(error)) from error


class TflitePieces(Closing):
    """A file cut at some tensors, which other operators then read as they are given.

    Args:
        cuts: tensor's index by its name.
    """

    def __init__(self, stored: StoredGraph, ends: Signature, cuts: Mapping[str, int]) -> None:
        self._ends, self._cuts = ends, dict(cuts)
        content, self._given = _cut(stored.content, list(self._cuts.values()))
        self._interpreter = _opened(content, {})

    @property
    def names(self) -> frozenset[str]:
        """What `run` is fed."""
        return frozenset((*(port.name for port, _ in self._ends.inputs), *self._cuts))

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Return the outputs with the source's axes, and what each piece gives at the cuts."""
        given = {index: _stored(port, feeds[port.name]) for port, index in self._ends.inputs}
        given |= {self._given[index]: (None, feeds[name]) for name, index in self._cuts.items()}
        _feed(self._interpreter, given)
        _invoke(self._interpreter)
        answers = {
            name + ANSWER: np.array(self._interpreter.get_tensor(index)) for name, index in self._cuts.items()
        }
        for port, index in self._ends.outputs:
            value = from_tflite(np.array(self._interpreter.get_tensor(index)), port)
            answers[port.name] = value.transpose(np.argsort(port.permutation)) if port.permutation else value
        return answers

    def close(self) -> None:
        self._interpreter = None


def _cut(content: bytes, indices: Sequence[int]) -> tuple[bytes, dict[int, int]]:
    """Return the file with these tensors as outputs, and copies of them, which their readers read, as inputs."""
    model = _parsed(content)
    graph = model.subgraphs[0]
    copies = {}
    for index in indices:
        tensor = graph.tensors[index]
        copy = schema.TensorT()
        copy.__dict__.update(tensor.__dict__)
        copy.name, copy.buffer = tensor.name + b"/given", 0
        copies[index] = len(graph.tensors)
        graph.tensors.append(copy)
    for operator in graph.operators:
        operator.inputs = np.array([copies.get(int(each), int(each)) for each in operator.inputs], np.int32)
    graph.inputs = np.array([*graph.inputs, *copies.values()], np.int32)
    outputs = [int(each) for each in graph.outputs]
    graph.outputs = np.array([*outputs, *(each for each in indices if each not in outputs)], np.int32)
    return _packed(model, content), copies
