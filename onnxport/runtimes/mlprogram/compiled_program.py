"""What can be settled about a function before it runs: kernels, constants, types, and when a value is done with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.formats.mlpackage.program import Block, Constant, Function, Operation, Type
from onnxport.runtimes.mlprogram import kernels  # noqa: F401 - fills the registry
from onnxport.runtimes.mlprogram.registry import KERNELS, Call, Failed, Kernel

# Types that kernels compute in float32.
_NARROW = frozenset(
    np.dtype(each)
    for each in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)
# Integers of fewer bits than a byte are held in bytes.
_HELD = {"int4": "int8", **{f"uint{bits}": "uint8" for bits in (1, 2, 3, 4, 6)}}
_NO_TENSOR = frozenset(("list", "state", "str", "dictionary"))

# Parameters that are lists even when they have one element.
_VARIADIC = frozenset(("values", "loop_vars", "ref_tensors", "begins", "ends", "end_masks"))
# Operators with as many results as they are asked for, which may be one.
_MANIFOLD = frozenset(("split", "topk", "cond", "while_loop"))
# Constants up to this size are widened once for all; larger ones, whenever they are read.
_SMALL = 4096


@dataclass(frozen=True)
class _Bound:
    """An element of a list of operands: the name of a value, or a constant."""

    name: str | None
    value: Any = None


@dataclass
class Step:
    """An operator made ready.

    Attributes:
        kernel: None for an operator that has none.
        fixed: operands that are constants.
        heavy: those that are widened only while they are read.
        read: operands that are values, by name.
        listed: operands that are lists.
        dtypes: NumPy's of each result, None for what is no tensor.
        manifold: whether the kernel gives a tuple of results, however many.
        last: names that nothing reads after this operator.
    """

    kernel: Kernel | None
    call: Call
    fixed: dict[str, Any]
    heavy: dict[str, Any]
    read: dict[str, str]
    listed: dict[str, list[_Bound]]
    dtypes: list[np.dtype[Any] | None]
    manifold: bool
    last: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A block made ready; `constants` are those visible in it, of the blocks around it as well."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    steps: list[Step]


@dataclass
class _Known:
    """What is known of the names that are visible at some point of a function."""

    types: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> _Known:
        return _Known(dict(self.types), dict(self.constants))

    def define(self, name: str, type_: Type) -> None:
        self.types[name] = type_.dtype
        self.constants.pop(name, None)


def planned(function: Function, strict: bool) -> dict[int, Plan]:
    """A plan for the function's block and each block inside it, by the block's id()."""
    known = _Known()
    for name, type_ in function.inputs:
        known.define(name, type_)
    plans: dict[int, Plan] = {}
    _plan(function.block, function.opset, strict, known, plans)
    return plans


def _plan(block: Block, opset: str, strict: bool, known: _Known, plans: dict[int, Plan]) -> None:
    for name, type_ in zip(block.inputs, block.types, strict=True):
        known.define(name, type_)
    steps: list[Step] = []
    for operation in block.operations:
        if operation.type == "const":
            (name, type_), value = operation.outputs[0], operation.attributes["val"].value
            known.define(name, type_)
            known.constants[name] = value
            continue
        steps.append(_step(operation, opset, strict, known))
        for inner in operation.blocks:
            _plan(inner, opset, strict, known.copy(), plans)
        for name, type_ in operation.outputs:
            known.define(name, type_)
    _mark_last(block, steps)
    plans[id(block)] = Plan(block.inputs, block.outputs, known.constants, steps)


def _step(operation: Operation, opset: str, strict: bool, known: _Known) -> Step:
    step = Step(
        KERNELS.get(operation.type),
        Call(operation, opset, strict, _types(operation, known)),
        {name: widened(each.value) for name, each in operation.attributes.items()},
        {},
        {},
        {},
        [_dtype(each) for _, each in operation.outputs],
        len(operation.outputs) > 1 or operation.type in _MANIFOLD,
    )
    for parameter, bound in operation.inputs.items():
        given = [_bound(each, known) for each in bound]
        if parameter in _VARIADIC or len(given) != 1:
            step.listed[parameter] = given
        elif given[0].name is None:
            value = given[0].value
            heavy = isinstance(value, np.ndarray) and _is_narrow(value) and value.size > _SMALL
            (step.heavy if heavy else step.fixed)[parameter] = value if heavy else widened(value)
        else:
            step.read[parameter] = given[0].name
    return step


def _types(operation: Operation, known: _Known) -> dict[str, str]:
    """The declared type of each operand."""
    types = {name: _type(each.value) for name, each in operation.attributes.items()}
    for parameter, bound in operation.inputs.items():
        if bound:
            first = bound[0]
            types[parameter] = (
                _type(first.value) if isinstance(first, Constant) else known.types.get(first, "")
            )
    return types


def _type(value: Any) -> str:
    return str(getattr(value, "dtype", "str"))


def _bound(given: str | Constant, known: _Known) -> _Bound:
    if isinstance(given, Constant):
        return _Bound(None, given.value)
    return _Bound(None, known.constants[given]) if given in known.constants else _Bound(given)


def _mark_last(block: Block, steps: list[Step]) -> None:
    """Tells each step which of the block's own values it is the last to read."""
    own = {*block.inputs, *(name for step in steps for name, _ in step.call.operation.outputs)}
    open_ = own - set(block.outputs)
    for step in reversed(steps):
        operation = step.call.operation
        named = [*_names_read(operation), *(name for name, _ in operation.outputs)]
        step.last = tuple(dict.fromkeys(name for name in named if name in open_))
        open_ -= set(step.last)


def _names_read(operation: Operation) -> Iterator[str]:
    """The names that an operator reads, those inside its blocks among them."""
    for bound in operation.inputs.values():
        yield from (each for each in bound if isinstance(each, str))
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from _names_read(inner)


def _dtype(type_: Type) -> np.dtype[Any] | None:
    if type_.dtype in _NO_TENSOR:
        return None
    held = _HELD.get(type_.dtype, type_.dtype)
    return np.dtype(getattr(ml_dtypes, held, held))


def _is_narrow(value: Any) -> bool:
    return value.dtype in _NARROW


def widened(value: Any) -> Any:
    """A value as kernels take it: floats of 32 bits, and arrays even of single numbers."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    return value.astype(np.float32) if _is_narrow(value) else np.asarray(value)


def stored(value: Any, dtype: np.dtype[Any] | None, type_: Type, operation: Operation) -> Any:
    """A kernel's result as the program declares it.

    Raises:
        Failed: it has another shape than declared.
    """
    if dtype is None or not isinstance(value, np.ndarray | np.generic):
        return value
    shape = type_.shape
    if shape is not None and shape != value.shape and not _fits(shape, value.shape):
        raise Failed(f"{operation.type} {operation.name!r} gives {value.shape}, the program declares {shape}")
    return np.asarray(value).astype(dtype, copy=False)


def _fits(declared: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(
        size is None or size == found for size, found in zip(declared, shape, strict=True)
    )
