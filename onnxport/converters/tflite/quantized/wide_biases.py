"""Biases of 16-bit products in 64 bits, as their kernels want; litert-converter 0.5.0 writes 32."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.errors import CannotConvertError

_IDENTIFIER = b"TFL3"
# Operator -> positions of its data and its bias.
_OPERANDS = {
    schema.BuiltinOperator.CONV_2D: (0, 2),
    schema.BuiltinOperator.DEPTHWISE_CONV_2D: (0, 2),
    schema.BuiltinOperator.FULLY_CONNECTED: (0, 2),
    schema.BuiltinOperator.TRANSPOSE_CONV: (2, 3),
}


def widen_biases(path: Path) -> None:
    """Rewrite the file at `path` if a product of int16 data has an int32 bias.

    Raises:
        CannotConvertError: 32 bits did not hold a bias.
    """
    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    narrow = [subgraph for subgraph in model.subgraphs if _widen_subgraph(model, subgraph)]
    if not narrow:
        return
    builder = flatbuffers.Builder(path.stat().st_size)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    path.write_bytes(builder.Output())


def _widen_subgraph(model: Any, subgraph: Any) -> bool:
    """Widen the int32 bias of every product of int16 data; return whether there was one."""
    narrow = list(_narrow_biases(model, subgraph))
    reads = Counter(int(index) for operator in subgraph.operators for index in operator.inputs)
    for index, uses in groupby(sorted(narrow, key=lambda use: use[0]), key=lambda use: use[0]):
        wide, readers = _copy_as_int64(model, subgraph.tensors[index]), [operator for _, operator in uses]
        if len(readers) == reads[index]:
            subgraph.tensors[index] = wide
            continue
        # Products of 8 bits share it and keep the narrow one.
        for operator in readers:
            operator.inputs = [len(subgraph.tensors) if each == index else each for each in operator.inputs]
        subgraph.tensors.append(wide)
    return bool(narrow)


def _copy_as_int64(model: Any, tensor: Any) -> Any:
    """Copy an int32 tensor as int64, with a buffer of its own in the model."""
    numbers = np.asarray(model.buffers[tensor.buffer].data, np.uint8).view(np.int32)
    limits = np.iinfo(np.int32)
    if ((numbers == limits.max) | (numbers == limits.min)).any():
        raise CannotConvertError(f"the bias {tensor.name.decode()!r} is too large for its scale in 16 bits")
    wide = copy.copy(tensor)
    wide.type, wide.buffer = schema.TensorType.INT64, len(model.buffers)
    buffer = schema.BufferT()
    buffer.data = numbers.astype(np.int64).view(np.uint8)
    model.buffers.append(buffer)
    return wide


def _narrow_biases(model: Any, subgraph: Any) -> Iterator[tuple[int, Any]]:
    """Yield the index of each int32 bias of int16 data, and the operator that reads it."""
    for operator in subgraph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        places = _OPERANDS.get(max(code.builtinCode, code.deprecatedBuiltinCode))
        if places is None or len(operator.inputs) <= places[1] or operator.inputs[places[1]] < 0:
            continue
        data, bias = (subgraph.tensors[operator.inputs[place]] for place in places)
        if data.type == schema.TensorType.INT16 and bias.type == schema.TensorType.INT32:
            yield int(operator.inputs[places[1]]), operator
