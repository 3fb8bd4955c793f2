"""Repairs of the exporter's and the runtime's errors about control flow.

1. TFLite copies a loop's results onto its arguments one after another, which loses one of two that change places, and
   fills one only of two results that are the same tensor. The compiler merges equal values, so this comes last.
2. What a TFL::IfOp's branches use, litert-converter 0.5.0 writes as operands of the IF. For an argument of the function
   around it, unless that is `main`, it writes tensor 0 in the argument's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from litert_converter.mlir import ir

from onnxport.converters.tflite.tensors import Tensor, TensorBuilder


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
                with tfl.emitting_into(block), ir.InsertionPoint(last):
                    last.operands[place] = _copy(tfl, tensor)
            given.append(tensor)


def _copy(tfl: TensorBuilder, tensor: Tensor) -> Tensor:
    rows = tfl.with_unit_axis(tensor, 0)
    return tfl.op("gather", [rows, tfl.int32(0)], tfl.shape_of(tensor), axis=0, batch_dims=0)


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
        operators = list(_ifs(model, subgraph)) if branches else []
        for operator, arguments in zip(operators, branches, strict=True):
            operands = operator.InputsAsNumpy()  # a view into the file
            for place, argument in arguments.items():
                operands[place] = subgraph.Inputs(argument)
    data.flush()


def _branches(module: ir.Module) -> Iterator[tuple[str, list[dict[int, int]]]]:
    """Return, by function, a map for each branch: operand -> number of the function's argument."""
    for function in module.body.operations:
        name = ir.StringAttr(function.attributes["sym_name"]).value
        block = function.operation.regions[0].blocks[0]
        branches = [each.operation for each in block.operations if each.operation.name == "tfl.if"]
        if name != "main":
            yield name, [dict(_arguments(branch)) for branch in branches]


def _arguments(branch: ir.Operation) -> Iterator[tuple[int, int]]:
    call = next(iter(branch.regions[0].blocks[0].operations)).operation
    for place, operand in enumerate(call.operands):
        if isinstance(operand.owner, ir.Block):
            yield 1 + place, ir.BlockArgument(operand).arg_number  # operand 0 is the condition


def _ifs(model: Any, subgraph: Any) -> Iterator[Any]:
    for number in range(subgraph.OperatorsLength()):
        operator = subgraph.Operators(number)
        if model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode() == schema.BuiltinOperator.IF:
            yield operator
