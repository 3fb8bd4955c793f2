"""IF without branches: both are computed, and the condition chooses between their results."""

from __future__ import annotations

from collections.abc import Iterator

from litert_converter.mlir import ir

from onnxport.converters.tflite.fit.arithmetic import select_by_product
from onnxport.converters.tflite.fit.operation import elements, is_open
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder

_ENDS = frozenset(("tfl.yield", "func.return"))


def inline_branches(tfl: TensorBuilder, module: ir.Module, main: ir.Block) -> int:
    """Replace every IF whose branches agree on their results' sizes; return how many."""
    functions = {
        ir.StringAttr(each.attributes["sym_name"]).value: each.operation.regions[0].blocks[0]
        for each in module.body.operations
    }
    count = 0
    while (found := next(_branchings(main), None)) is not None:
        count += 1
        with ir.InsertionPoint(found), found.location:
            branches = [_clone(functions, region.blocks[0], {}) for region in list(found.regions)]
            chosen = elements(found.operands[0])
            if chosen is not None:
                results = branches[0 if chosen.item() else 1]
            else:
                results = [
                    select_by_product(tfl, found.operands[0], pair) for pair in zip(*branches, strict=True)
                ]
        for old, new in zip(found.results, results, strict=True):
            old.replace_all_uses_with(new)
        found.erase()
    return count


def _branchings(block: ir.Block) -> Iterator[ir.Operation]:
    for each in block.operations:
        operation = each.operation
        if operation.name == "tfl.if" and not any(map(is_open, operation.results)):
            yield operation


def _clone(functions: dict[str, ir.Block], block: ir.Block, known: dict[Tensor, Tensor]) -> list[Tensor]:
    """Copy a block's operations to the insertion point, calls as what they call; return what its end gives."""
    for each in block.operations:
        operation = each.operation
        operands = [known.get(operand, operand) for operand in operation.operands]
        if operation.name in _ENDS:
            return operands
        if operation.name in ("func.call", "tfl.call"):
            body = functions[ir.FlatSymbolRefAttr(operation.attributes["callee"]).value]
            results = _clone(functions, body, dict(zip(body.arguments, operands, strict=True)))
            known.update(zip(operation.results, results, strict=True))
            continue
        copy = operation.clone()
        _rename(copy.operation, known)
        known.update(zip(operation.results, copy.operation.results, strict=True))
    raise AssertionError("a block ends with its results")


def _rename(operation: ir.Operation, known: dict[Tensor, Tensor]) -> None:
    """Let an operation, and those inside it, read the copies."""
    for place, operand in enumerate(list(operation.operands)):
        if operand in known:
            operation.operands[place] = known[operand]
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                _rename(inner.operation, known)
