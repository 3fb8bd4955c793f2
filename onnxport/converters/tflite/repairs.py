"""Repairs of the compiler's, the exporter's and the runtime's errors.

1. TFLite copies a loop's results onto its arguments one after another, which loses one of two that change places, and
   fills one only of two results that are the same tensor. The compiler merges equal values, so this comes last.
2. What a TFL::IfOp's branches use, litert-converter 0.5.0 writes as operands of the IF. For an argument of the function
   around it, unless that is `main`, it writes tensor 0 in the argument's place.
3. The kernels of 16-bit products want biases of 64 bits; litert-converter 0.5.0 writes 32.
"""

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
from litert_converter.mlir import ir

from onnxport.converters.tflite.tensors import Tensor, TensorBuilder
from onnxport.core.errors import CannotConvertError

_IDENTIFIER = b"TFL3"
# Operator -> positions of its data and its bias.
_OPERANDS = {
    schema.BuiltinOperator.CONV_2D: (0, 2),
    schema.BuiltinOperator.DEPTHWISE_CONV_2D: (0, 2),
    schema.BuiltinOperator.FULLY_CONNECTED: (0, 2),
    schema.BuiltinOperator.TRANSPOSE_CONV: (2, 3),
}


def separate_results(tfl: TensorBuilder, module: ir.Module) -> None:
    """Give each result of a branch or of a step a tensor of its own, or its own argument."""
    for function in list(module.body.operations):
        if ir.StringAttr(function.attributes["sym_name"]).value == "main":
            continue
        block = function.operation.regions[0].blocks[0]
        last = list(block.operations)[-1].operation
        given: list[Tensor] = []
        for place, tensor in enumerate(list(last.operands)):
            is_argument = isinstance(tensor.owner, ir.Block)
            if tensor in given or (is_argument and ir.BlockArgument(tensor).arg_number != place):
                with tfl.emitting_into(block), ir.InsertionPoint(last):  # a copy
                    last.operands[place] = tfl.gather(tfl.with_unit_axis(tensor, 0), tfl.int32(0))
            given.append(tensor)


def repair_branches(module: ir.Module, path: Path) -> None:
    """Correct the operands of the IF operators in the file at `path`, which was exported from `module`."""
    wrong = {name: branches for name, branches in _branches(module) if any(branches)}
    if not wrong:
        return
    data = np.memmap(path, np.uint8, mode="r+")
    model = schema.Model.GetRootAs(data, 0)
    for number in range(model.SubgraphsLength()):
        subgraph = model.Subgraphs(number)
        branches = wrong.get(subgraph.Name().decode(), [])
        operators = map(subgraph.Operators, range(subgraph.OperatorsLength() if branches else 0))
        codes = ((model.OperatorCodes(each.OpcodeIndex()).BuiltinCode(), each) for each in operators)
        ifs = [operator for code, operator in codes if code == schema.BuiltinOperator.IF]
        for operator, arguments in zip(ifs, branches, strict=True):
            operands = operator.InputsAsNumpy()  # a view into the file
            for place, argument in arguments.items():
                operands[place] = subgraph.Inputs(argument)
    data.flush()


def _branches(module: ir.Module) -> Iterator[tuple[str, list[dict[int, int]]]]:
    """Yield each function's name, and for each branch in it operand -> number of the function's argument."""
    for function in module.body.operations:
        name = ir.StringAttr(function.attributes["sym_name"]).value
        block = function.operation.regions[0].blocks[0]
        branches = [each.operation for each in block.operations if each.operation.name == "tfl.if"]
        if name != "main":
            yield name, [_arguments(branch) for branch in branches]


def _arguments(branch: ir.Operation) -> dict[int, int]:
    call = next(iter(branch.regions[0].blocks[0].operations)).operation
    return {
        1 + place: ir.BlockArgument(operand).arg_number  # operand 0 is the condition
        for place, operand in enumerate(call.operands)
        if isinstance(operand.owner, ir.Block)
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
