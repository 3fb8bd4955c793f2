"""A package as plain objects: functions, blocks, operators and constants, without protobuf behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxport.formats.manifest import MAIN


@dataclass(frozen=True)
class Type:
    """What an operator declares of a result.

    Attributes:
        dtype: NumPy's name, "uint4" and the like, "str"; "list", "state" or "dictionary" for what is no tensor.
        shape: sizes, None where a dimension is open; None for a rank that is not declared.
        inner: of a list's elements, or what a state holds.
    """

    dtype: str
    shape: tuple[int | None, ...] | None = ()
    inner: Type | None = None


@dataclass(frozen=True)
class Operation:
    """One operator.

    Attributes:
        inputs: parameter to the names of the values bound to it, or to a constant that stands there itself.
        attributes: "name", "val" of a const, and constants of the constexpr operators before iOS18.
    """

    type: str
    name: str
    inputs: Mapping[str, tuple[str | Constant, ...]]
    outputs: tuple[tuple[str, Type], ...]
    attributes: Mapping[str, Constant] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A value in the file: an array, a Python string, or a tuple of them for a list.

    Attributes:
        dtype: as in Type, where it is a tensor: what is held in bytes may stand for fewer bits.
    """

    value: Any
    dtype: str = ""


@dataclass(frozen=True)
class Block:
    """Operators in order, the names of what they are given, of what types, and the names of what they return."""

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
    """An entry point: its typed inputs, and its block for the opset it is written in ("CoreML7")."""

    inputs: tuple[tuple[str, Type], ...]
    opset: str
    block: Block


@dataclass(frozen=True)
class Package:
    """A package's model: its functions, and the message that describes inputs and outputs."""

    functions: Mapping[str, Function]
    description: Any
    spec: Any

    @property
    def default(self) -> str:
        """The name of the function that answers where none is chosen."""
        return str(self.description.defaultFunctionName) or MAIN

    def described(self, function: str) -> Any:
        """The description of a function's inputs and outputs; that of the package where it has but one function."""
        of_functions = {each.name: each for each in self.description.functions}
        return of_functions.get(function, self.description)
