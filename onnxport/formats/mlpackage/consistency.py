"""Whether a program that could be read hangs together: names given before they are read, blocks where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxport.formats.mlpackage.program import Block, Function, Operation

# Operators with blocks, and how many.
_BLOCKS = {"cond": 2, "while_loop": 2}


def check(function: Function) -> None:
    """Checks a function.

    Raises:
        ValueError: it cannot be run; the message says at what it breaks.
    """
    _check_block(function.block, {name for name, _ in function.inputs})


def _check_block(block: Block, outer: set[str]) -> None:
    visible = {*outer, *block.inputs}
    for operation in block.operations:
        _check_operation(operation, visible)
        visible |= {name for name, _ in operation.outputs}
    _check_given(block.outputs, visible, "the end of a block")


def _check_operation(operation: Operation, visible: set[str]) -> None:
    what = f"{operation.type} {operation.name!r}"
    for bound in operation.inputs.values():
        _check_given(tuple(each for each in bound if isinstance(each, str)), visible, what)
    if len(operation.blocks) != _BLOCKS.get(operation.type, 0):
        raise ValueError(f"{what} has {len(operation.blocks)} blocks")
    if operation.type == "const" and ("val" not in operation.attributes or len(operation.outputs) != 1):
        raise ValueError(f"{what} has no value")
    for block in operation.blocks:
        _check_block(block, visible)


def _check_given(names: tuple[str, ...], visible: set[str], what: str) -> None:
    for name in names:
        if name not in visible:
            raise ValueError(f"{what} reads {name!r}, which nothing before it gives")
