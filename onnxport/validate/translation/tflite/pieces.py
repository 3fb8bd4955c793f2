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
from onnxport.validate.translation.tflite.contents import StoredGraph

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
    interpreter = _run_whole(stored, ends, feeds)
    details = interpreter.get_tensor_details()
    shapes = {detail["index"]: tuple(int(each) for each in detail["shape"]) for detail in details}
    return _fold(stored, interpreter), shapes


def _run_whole(stored: StoredGraph, ends: Signature, feeds: Feeds) -> Any:
    """Return an interpreter that ran the file and holds the values of all tensors."""
    options = {
        "experimental_preserve_all_tensors": True,
        "experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    }
    interpreter = _opened(stored.content, options)
    _feed(interpreter, {index: _stored(port, feeds[port.name]) for port, index in ends.inputs})
    _invoke(interpreter)
    return interpreter


def tensor_values(stored: StoredGraph, ends: Signature, feeds: Feeds) -> dict[int, Array]:
    """Return what tensors hold that are computed, by index; see at_sizes."""
    interpreter = _run_whole(stored, ends, feeds)
    found = {}
    for index in sorted({each for operator in stored.operators for each in operator.outputs if each >= 0}):
        with suppress(ValueError):  # what nothing reads has no place
            found[index] = np.array(interpreter.get_tensor(index))
    return found


def _fold(stored: StoredGraph, interpreter: Any) -> StoredGraph:
    """Return the graph with the results of SHAPE, and what follows from these and constants, as constants."""
    known = {tensor.index for tensor in stored.tensors if tensor.data is not None}
    tensors, operators = list(stored.tensors), []
    for operator in stored.operators:
        inputs = [each for each in operator.inputs if each >= 0]
        is_plain = all(
            tensors[each].dtype in _SIZES and tensors[each].grid is None for each in operator.outputs
        )
        if not is_plain or not (operator.op == "SHAPE" or (inputs and known.issuperset(inputs))):
            operators.append(operator)
            continue
        for index in operator.outputs:
            tensors[index] = replace(tensors[index], data=np.array(interpreter.get_tensor(index)))
            known.add(index)
    return replace(stored, tensors=tuple(tensors), operators=tuple(operators))


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
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
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
    model.signatureDefs, model.metadata = [], []
    builder = flatbuffers.Builder(len(content) + (1 << 20))
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output()), copies
