"""An ML program as plain objects, without protobuf: functions, blocks, operators and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxport.formats.manifest import MAIN


@dataclass(frozen=True)
class Type:
    """The declared type of a value."""

    dtype: str  # NumPy's name, "uint4" and the like, "str"; "list", "state" or "dictionary" for other values
    # Sizes, None for an open dimension; None where the rank is not declared.
    shape: tuple[int | None, ...] | None = ()
    inner: Type | None = None  # type of a list's elements, or of a state's content


@dataclass(frozen=True)
class Operation:
    """One operator."""

    type: str
    name: str
    inputs: Mapping[str, tuple[str | Constant, ...]]  # parameter -> the names of its values, or constants
    outputs: tuple[tuple[str, Type], ...]
    # "val" of a const, and the constants of the constexpr operators before iOS18.
    attributes: Mapping[str, Constant] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A value in the file: an array, a Python string, or a tuple of them for a list."""

    value: Any
    dtype: str = ""  # as in Type, for tensors; the array's own dtype may have more bits


@dataclass(frozen=True)
class Block:
    """Operators in order, with the names and types of the block's inputs and the names of its outputs."""

    inputs: tuple[str, ...]
    types: tuple[Type, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]

    def walk(self) -> Iterator[Operation]:
        """Yield all operators, each before those of its blocks."""
        for operation in self.operations:
            yield operation
            for inner in operation.blocks:
                yield from inner.walk()


@dataclass(frozen=True)
class Function:
    """An entry point: its typed inputs, its opset ("CoreML7") and its block."""

    inputs: tuple[tuple[str, Type], ...]
    opset: str
    block: Block


@dataclass(frozen=True)
class Package:
    """A package's model: its functions, the message that describes inputs and outputs, and the whole message."""

    functions: Mapping[str, Function]
    description: Any
    spec: Any

    @property
    def default(self) -> str:
        """The name of the default function."""
        return str(self.description.defaultFunctionName) or MAIN

    def described(self, function: str) -> Any:
        """Return the description of a function's inputs and outputs; the package's own where it has one function."""
        of_functions = {each.name: each for each in self.description.functions}
        return of_functions.get(function, self.description)


# Operators with blocks, and how many.
_BLOCKS = {"cond": 2, "while_loop": 2}


def check_function(function: Function) -> None:
    """Raise ValueError where a function cannot run: a name read before it is defined, or a missing block."""
    _check_block(function.block, {name for name, _ in function.inputs})


def _check_block(block: Block, outer: set[str]) -> None:
    visible = {*outer, *block.inputs}
    for operation in block.operations:
        _check_operation(operation, visible)
        visible |= {name for name, _ in operation.outputs}
    _check_names(block.outputs, visible, "the end of a block")


def _check_operation(operation: Operation, visible: set[str]) -> None:
    label = f"{operation.type} {operation.name!r}"
    for bound in operation.inputs.values():
        _check_names(tuple(each for each in bound if isinstance(each, str)), visible, label)
    if len(operation.blocks) != _BLOCKS.get(operation.type, 0):
        raise ValueError(f"{label} has {len(operation.blocks)} blocks")
    if operation.type == "const" and ("val" not in operation.attributes or len(operation.outputs) != 1):
        raise ValueError(f"{label} has no value")
    for block in operation.blocks:
        _check_block(block, visible)


def _check_names(names: tuple[str, ...], visible: set[str], reader: str) -> None:
    for name in names:
        if name not in visible:
            raise ValueError(f"{reader} reads {name!r}, which nothing before it defines")
