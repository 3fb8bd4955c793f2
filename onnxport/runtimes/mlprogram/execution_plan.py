"""The execution plan of a function, made before it runs: kernels, constants, types and lifetimes of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.formats.mlpackage.program import Block, Constant, Function, Operation, Type
from onnxport.runtimes.mlprogram.kernels.registry import KERNELS, Call, Failed, Kernel

# Types that kernels compute in float32.
_NARROW = frozenset(
    np.dtype(each)
    for each in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)
# Packed integers -> their dtype in memory.
_UNPACKED = {"int4": "int8", **{f"uint{bits}": "uint8" for bits in (1, 2, 3, 4, 6)}}
# What `cast` calls a narrow float -> float32.
_WIDE = dict.fromkeys(("fp16", "float16", "bf16", "bfloat16"), "fp32")
_NO_TENSOR = frozenset(("list", "state", "str", "dictionary"))

# Parameters that are lists even with one element.
_VARIADIC = frozenset(("values", "loop_vars", "ref_tensors", "begins", "ends", "end_masks"))
# Operators that return a tuple even of one result.
_MULTIPLE_RESULTS = frozenset(("split", "topk", "cond", "while_loop"))
# Elements; constants up to this size are widened once, larger ones at each read.
_SMALL = 4096


@dataclass(frozen=True)
class _Operand:
    """An element of a list of operands: the name of a value, or a constant."""

    name: str | None
    value: Any = None


@dataclass
class Step:
    """An operator, ready to run; operands are keyed by parameter."""

    kernel: Kernel | None  # None where the operator has none
    call: Call
    constants: dict[str, Any]  # constant operands, widened
    large_constants: dict[str, Any]  # constant operands to widen at each read
    values: dict[str, str]  # names of computed operands
    lists: dict[str, list[_Operand]]  # operands that are lists
    dtypes: list[np.dtype[Any] | None]  # NumPy dtype of each result; None for any other type
    returns_tuple: bool  # whether the kernel returns a tuple of results
    dead: tuple[str, ...] = ()  # names that no later operator reads


@dataclass(frozen=True)
class Plan:
    """A block, ready to run; `constants` are those visible in it, those of enclosing blocks included."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    steps: list[Step]


@dataclass
class _Symbols:
    """The types and constants of the names that are visible at some point of a function."""

    types: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> _Symbols:
        return _Symbols(dict(self.types), dict(self.constants))

    def define(self, name: str, type_: Type) -> None:
        self.types[name] = type_.dtype
        self.constants.pop(name, None)


@dataclass(frozen=True)
class _Mode:
    """How a function is run; see Evaluator."""

    opset: str
    strict: bool
    rounds: bool


def make_plans(function: Function, strict: bool, rounds: bool = True) -> dict[int, Plan]:
    """Return the plans of the function's block and of each nested block, by the block's id(); see Evaluator."""
    known = _Symbols()
    for name, type_ in function.inputs:
        known.define(name, type_)
    plans: dict[int, Plan] = {}
    _plan(function.block, _Mode(function.opset, strict, rounds), known, plans)
    return plans


def _plan(block: Block, mode: _Mode, known: _Symbols, plans: dict[int, Plan]) -> None:
    for name, type_ in zip(block.inputs, block.types, strict=True):
        known.define(name, type_)
    steps: list[Step] = []
    for operation in block.operations:
        if operation.type == "const":
            (name, type_), value = operation.outputs[0], operation.attributes["val"].value
            known.define(name, type_)
            known.constants[name] = value
            continue
        steps.append(_step(operation, mode, known))
        for inner in operation.blocks:
            _plan(inner, mode, known.copy(), plans)
        for name, type_ in operation.outputs:
            known.define(name, type_)
    _mark_dead(block, steps)
    plans[id(block)] = Plan(block.inputs, block.outputs, known.constants, steps)


def _step(operation: Operation, mode: _Mode, known: _Symbols) -> Step:
    step = Step(
        KERNELS.get(operation.type),
        Call(operation, mode.opset, mode.strict, _types(operation, known)),
        {name: widen(each.value) for name, each in operation.attributes.items()},
        {},
        {},
        {},
        [_dtype(each, mode.rounds) for _, each in operation.outputs],
        len(operation.outputs) > 1 or operation.type in _MULTIPLE_RESULTS,
    )
    for parameter, bound in operation.inputs.items():
        operands = [_operand(each, known) for each in bound]
        if parameter in _VARIADIC or len(operands) != 1:
            step.lists[parameter] = operands
        elif (name := operands[0].name) is not None:
            step.values[parameter] = name
        else:
            value = operands[0].value
            if isinstance(value, np.ndarray) and _is_narrow(value) and value.size > _SMALL:
                step.large_constants[parameter] = value
            else:
                step.constants[parameter] = widen(value)
    if operation.type == "cast" and not mode.rounds:
        step.constants["dtype"] = _WIDE.get(str(step.constants["dtype"]), step.constants["dtype"])
    return step


def _types(operation: Operation, known: _Symbols) -> dict[str, str]:
    """Return the declared type of each operand."""
    types = {name: _type(each.value) for name, each in operation.attributes.items()}
    for parameter, bound in operation.inputs.items():
        for first in bound[:1]:
            types[parameter] = known.types.get(first, "") if isinstance(first, str) else _type(first.value)
    return types


def _type(value: Any) -> str:
    return str(getattr(value, "dtype", "str"))


def _operand(bound: str | Constant, known: _Symbols) -> _Operand:
    if isinstance(bound, Constant):
        return _Operand(None, bound.value)
    return _Operand(None, known.constants[bound]) if bound in known.constants else _Operand(bound)


def _mark_dead(block: Block, steps: list[Step]) -> None:
    """Set `dead` of each step: the block's own values that it reads last."""
    own = {*block.inputs, *(name for step in steps for name, _ in step.call.operation.outputs)}
    open_ = own - set(block.outputs)
    for step in reversed(steps):
        operation = step.call.operation
        named = [*_names_read(operation), *(name for name, _ in operation.outputs)]
        step.dead = tuple(dict.fromkeys(name for name in named if name in open_))
        open_ -= set(step.dead)


def _names_read(operation: Operation) -> Iterator[str]:
    """Yield the names that an operator and its blocks read."""
    for bound in operation.inputs.values():
        yield from (each for each in bound if isinstance(each, str))
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from _names_read(inner)


def _dtype(type_: Type, rounds: bool) -> np.dtype[Any] | None:
    if type_.dtype in _NO_TENSOR:
        return None
    name = _UNPACKED.get(type_.dtype, type_.dtype)
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return dtype if rounds or dtype not in _NARROW else np.dtype(np.float32)


def _is_narrow(value: Any) -> bool:
    return value.dtype in _NARROW


def widen(value: Any) -> Any:
    """Convert a value for kernels: narrow floats to float32, NumPy scalars to arrays."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    return value.astype(np.float32) if _is_narrow(value) else np.asarray(value)


def round_to_type(value: Any, dtype: np.dtype[Any] | None, type_: Type, operation: Operation) -> Any:
    """Round a kernel's result to its declared type; raises Failed for another shape than declared."""
    if dtype is None or not isinstance(value, np.ndarray | np.generic):
        return value
    shape = type_.shape
    if shape is not None and shape != value.shape and not _fits(shape, value.shape):
        raise Failed(
            f"{operation.type} {operation.name!r} returns {value.shape}, the program declares {shape}"
        )
    return np.asarray(value).astype(dtype, copy=False)


def _fits(declared: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(
        size is None or size == found for size, found in zip(declared, shape, strict=True)
    )
