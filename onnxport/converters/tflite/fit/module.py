"""Fits a compiled module to an accelerator: applies its rules until none holds, and refuses what is left.

It comes after the compiler, which would fold and fuse the rewritings back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.fit import gpu
from onnxport.converters.tflite.fit.activations import copy_out
from onnxport.converters.tflite.fit.axes import MOST
from onnxport.converters.tflite.fit.control import inline_branches
from onnxport.converters.tflite.fit.operation import (
    CONSTANTS,
    TflOp,
    elements,
    is_constant,
    is_open,
    is_tensor,
    maker,
    sizes,
)
from onnxport.converters.tflite.locations import names_in
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.core.shell_words import quote_option
from onnxport.formats.manifest import Port
from onnxport.formats.tflite.tensor_names import INNER

_TITLE = "LiteRT's GPU runtime"
# Rewritings of rewritings; more means that two rules undo each other.
_ROUNDS = 32
_NO_KERNELS = CONSTANTS | {"tfl.no_value", "tfl.pseudo_qconst", "func.return"}
# Element type -> what stands for it in the file, and why.
_STAND_INS = {
    "int64": ("int32", "since the GPU has no int64"),
    "float16": ("float32", "since the GPU stores float16 without infinity and NaN"),
}
_CHANGED = "{} in the file, {}: {}"
_BOTH_BRANCHES = "both branches of {} are computed, since the GPU has no IF"


def fit_module(
    tfl: TensorBuilder, module: ir.Module, inputs: Sequence[Port], outputs: Sequence[Port]
) -> tuple[str, ...]:
    """Rewrite the main function of a compiled module for the GPU; return notes for the report.

    Args:
        inputs, outputs: those of the function.

    Raises:
        CannotConvertError: what the GPU does not take and no rule rewrites, each by the name of its ONNX value.
    """
    function = next(each for each in module.body.operations if "tf.entry_function" in each.attributes)
    main = function.operation.regions[0].blocks[0]
    _refuse(_open_sizes(main, inputs))
    with tfl.emitting_into(main):
        branchings = inline_branches(tfl, module, main)
        if not any(each.operation.name in ("tfl.while", "tfl.if") for each in main.operations):
            for each in list(module.body.operations):
                if each != function:
                    each.operation.erase()
        _drop_unused(main)
        _refuse(_unknown(main, gpu.TAKEN | gpu.RULES.keys()))
        _refuse(_find_rounding_casts(tfl, main))
        changed = _describe_changed_ports(tfl, main, inputs, outputs)
        _change_types(tfl, main)
        _apply_rules(tfl, main)
        _separate_ends(tfl, main)
    _drop_unused(main)
    _refuse([*_unknown(main, gpu.TAKEN), *_wrong(tfl, main), *_unfit(main, inputs, outputs)])
    _renew_type(function, main)
    module.operation.verify()
    count = f"{branchings} IF" if branchings == 1 else f"{branchings} IFs"
    return (*((_BOTH_BRANCHES.format(count),) if branchings else ()), *changed)


def _operations(main: ir.Block) -> Iterator[ir.Operation]:
    for each in list(main.operations):
        if each.operation.name not in _NO_KERNELS:
            yield each.operation


def _renew_type(function: ir.OpView, main: ir.Block) -> None:
    results = [operand.type for operand in list(main.operations)[-1].operation.operands]
    signature = ir.FunctionType.get([argument.type for argument in main.arguments], results)
    function.attributes["function_type"] = ir.TypeAttr.get(signature)


# ---- refusals


def _refuse(refusals: Sequence[Refusal]) -> None:
    if refusals:
        unique = tuple(dict.fromkeys(refusals))
        raise CannotConvertError(f"{_TITLE} does not run this model whole", refusals=unique)


def _label(operation: ir.Operation) -> str:
    """Return the name of the ONNX value or node that an operation computes; the last of joined names."""
    names = list(names_in(operation.location))
    return names[-1].removesuffix(INNER) if names else ""


def _refusal(operation: ir.Operation, why: str) -> Refusal:
    return Refusal(operation.name.removeprefix("tfl.").upper(), _label(operation), why)


def _open_sizes(main: ir.Block, inputs: Sequence[Port]) -> list[Refusal]:
    """List the inputs with open sizes, or else what first gives a size that only a run knows."""
    opened = [port for port in inputs if None in port.shape]
    if opened:
        return [
            Refusal("input", port.name, f"has open sizes, and a GPU's are fixed; give {_sized(port)}")
            for port in opened
        ]
    found = []
    for operation in _operations(main):
        if any(map(is_open, operation.results)) and not any(map(is_open, operation.operands)):
            found.append(
                _refusal(operation, "gives a size that only a run knows, and a GPU's sizes are fixed")
            )
    return found


def _sized(port: Port) -> str:
    return quote_option(
        "--shape", f"{port.name}={','.join(str(1 if dim is None else dim) for dim in port.shape)}"
    )


def _unknown(main: ir.Block, known: Collection[str]) -> list[Refusal]:
    """List the operations that are none of `known`."""
    return [
        _refusal(operation, gpu.REASONS.get(name, "is an operator that the GPU runtime lacks"))
        for operation in _operations(main)
        if (name := operation.name.removeprefix("tfl.")) not in known
    ]


def _wrong(tfl: TensorBuilder, main: ir.Block) -> list[Refusal]:
    """List the operations that the GPU computes wrongly, and no rule has rewritten."""
    return [
        _refusal(operation, why)
        for operation in _operations(main)
        for names, holds, why in gpu.REFUSED
        if operation.name.removeprefix("tfl.") in names.split() and holds(TflOp(operation, tfl))
    ]


def _find_rounding_casts(tfl: TensorBuilder, main: ir.Block) -> list[Refusal]:
    """List the casts to float16 whose rounded numbers something inside reads."""
    return [
        _refusal(operation, gpu.NO_ROUNDING)
        for operation in _operations(main)
        if operation.name == "tfl.cast"
        and _is_half(tfl, operation.results[0])
        and not _is_half(tfl, operation.operands[0])
        and _reads_half(tfl, operation)
    ]


def _reads_half(tfl: TensorBuilder, operation: ir.Operation) -> bool:
    """Return whether more than moves and outputs read the float16 that an operation gives."""
    readers = [use.owner.operation for result in operation.results for use in result.uses]
    inside = [each for each in readers if each.name != "func.return"]
    return any(not _is_half(tfl, each.results[0]) or _reads_half(tfl, each) for each in inside)


def _is_half(tfl: TensorBuilder, tensor: Tensor) -> bool:
    return is_tensor(tensor) and not _is_quantized_type(tensor) and tfl.dtype_of(tensor) == np.float16


def _unfit(main: ir.Block, inputs: Sequence[Port], outputs: Sequence[Port]) -> list[Refusal]:
    """List what has ranks, sizes or element types that the GPU does not take: the ports alone where they have."""
    found = []
    for port, argument in zip(inputs, main.arguments, strict=True):
        if why := _fault(argument):
            found.append(Refusal("input", port.name, why))
    for port, result in zip(outputs, list(main.operations)[-1].operation.operands, strict=True):
        if why := _fault(result):
            found.append(Refusal("output", port.name, why))
    if found:  # what computes them has their faults
        return found
    for operation in _operations(main):
        if operation.name.removeprefix("tfl.") not in gpu.TAKEN:
            continue  # a fault of its own, see _unknown
        faults = [_fault(each) for each in (*_data(operation), *operation.results) if is_tensor(each)]
        if why := next(filter(None, faults), ""):
            found.append(_refusal(operation, why))
    return found


def _data(operation: ir.Operation) -> Sequence[Tensor]:
    """Return the operands; of a RESHAPE without the shape, which is empty for a single number."""
    return list(operation.operands)[: 1 if operation.name == "tfl.reshape" else None]


def _fault(tensor: Tensor) -> str:
    """Return what of a tensor the GPU does not take; empty for nothing."""
    if len(sizes(tensor)) > MOST and not is_constant(tensor):
        return f"has {len(sizes(tensor))} axes, and the GPU takes four"
    if 0 in sizes(tensor):
        return "has a size of 0, and the GPU takes no empty tensors"
    text = str(ir.RankedTensorType(tensor.type).element_type)
    if text.startswith("!quant"):
        return "is in 16 bits, and the GPU takes 8" if "i16" in text else ""
    dtype = _DTYPES.get(text, text)
    return "" if dtype in gpu.DTYPES else f"is {dtype}, which the GPU does not take"


# MLIR's name of an element type -> NumPy's.
_DTYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "bf16": "bfloat16", "i1": "bool", "i8": "int8",
    "ui8": "uint8", "i16": "int16", "ui16": "uint16", "i32": "int32", "ui32": "uint32", "i64": "int64",
    "ui64": "uint64",
}  # fmt: skip

# ---- element types


def _describe_changed_ports(
    tfl: TensorBuilder, main: ir.Block, inputs: Sequence[Port], outputs: Sequence[Port]
) -> tuple[str, ...]:
    """Return a note for each element type that inputs and outputs have no longer."""
    results = list(main.operations)[-1].operation.operands
    ends = list(zip((*inputs, *outputs), (*main.arguments, *results), strict=True))
    notes = []
    for dtype, (stand_in, why) in _STAND_INS.items():
        names = [repr(port.name) for port, tensor in ends if tfl.dtype_of(tensor).name == dtype]
        if names:
            notes.append(_CHANGED.format(stand_in, why, ", ".join(names)))
    return tuple(notes)


def _change_types(tfl: TensorBuilder, main: ir.Block) -> None:
    """Give every tensor the element type that stands for its own; integers beyond are cut off at its limits.

    Stored weights keep theirs.
    """
    for argument in main.arguments:
        if stand_in := _stand_in(tfl, argument):
            argument.set_type(ir.RankedTensorType.get(sizes(argument), _ELEMENTS[stand_in]()))
    for each in list(main.operations):
        operation = each.operation
        for result in operation.results:
            stand_in = _stand_in(tfl, result)
            if not stand_in or _is_weight(result):
                continue
            if operation.name in CONSTANTS:
                found = elements(result)
                assert found is not None
                if stand_in == "int32":
                    found = np.clip(found, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
                result.replace_all_uses_with(tfl.constant(found, np.dtype(stand_in)))
                operation.erase()
                break
            result.set_type(ir.RankedTensorType.get(sizes(result), _ELEMENTS[stand_in]()))
            for name in ("output_type", "out_type"):
                if name in operation.attributes:
                    operation.attributes[name] = ir.TypeAttr.get(_ELEMENTS[stand_in]())


# Built late: a type needs a context.
_ELEMENTS: Mapping[str, Callable[[], ir.Type]] = {
    "int32": lambda: ir.IntegerType.get_signless(32),
    "float32": ir.F32Type.get,
}


def _stand_in(tfl: TensorBuilder, tensor: Tensor) -> str:
    """Return the element type that stands for a tensor's own; empty for none."""
    if not is_tensor(tensor) or _is_quantized_type(tensor):
        return ""
    return _STAND_INS.get(tfl.dtype_of(tensor).name, ("",))[0]


def _is_weight(tensor: Tensor) -> bool:
    """Return whether a tensor is a constant that DEQUANTIZE reads."""
    return is_constant(tensor) and all(use.owner.operation.name == "tfl.dequantize" for use in tensor.uses)


# ---- rules


def _apply_rules(tfl: TensorBuilder, main: ir.Block) -> None:
    for _ in range(_ROUNDS):
        changed = [_rewrite(tfl, operation) for operation in _operations(main)]
        if not any(changed):
            return
        _drop_unused(main)
    raise AssertionError("two rules undo each other")


def _rewrite(tfl: TensorBuilder, operation: ir.Operation) -> bool:
    """Apply the first rule that holds; return whether one did."""
    rules = gpu.RULES.get(operation.name.removeprefix("tfl."), ())
    if not rules or not _is_used(operation) or _is_quantized(operation):
        return False
    op = TflOp(operation, tfl)
    rule = next((each for each in rules if each.holds(op)), None)
    if rule is None:
        return False
    place = operation.location
    inner = (_label(operation) or operation.name) + INNER
    with ir.InsertionPoint(operation), ir.Location.name(inner):
        results = rule.rewrite(op)
    results = [results] if isinstance(results, ir.Value) else list(results)
    for old, new in zip(operation.results, results, strict=True):
        assert old.type == new.type, f"{operation.name}: {old.type} became {new.type}"
        old.replace_all_uses_with(new)
        made_by = maker(new)
        if made_by is not None and made_by.name not in CONSTANTS and new not in op.operands:
            made_by.location = place
    operation.erase()
    return True


def _is_used(operation: ir.Operation) -> bool:
    return any(next(iter(result.uses), None) is not None for result in operation.results)


def _is_quantized(operation: ir.Operation) -> bool:
    return any(map(_is_quantized_type, (*operation.operands, *operation.results)))


def _is_quantized_type(tensor: Tensor) -> bool:
    return "!quant" in str(tensor.type)


def _separate_ends(tfl: TensorBuilder, main: ir.Block) -> None:
    """Give every output a tensor of its own that nothing else reads, and that is no input."""
    end = list(main.operations)[-1].operation
    given: list[Tensor] = []
    for place, tensor in enumerate(list(end.operands)):
        if is_constant(tensor):
            continue
        if isinstance(tensor.owner, ir.Block) or tensor in given or _is_read_inside(tensor):
            with ir.InsertionPoint(end), ir.Location.unknown():
                end.operands[place] = copy_out(tfl, tensor)
        given.append(end.operands[place])


def _is_read_inside(tensor: Tensor) -> bool:
    """Return whether an output is also an operand; a fused attention does not write it."""
    return any(use.owner.operation.name != "func.return" for use in tensor.uses)


def _drop_unused(main: ir.Block) -> None:
    """Erase what nothing reads; TFLite's operations have no side effects."""
    for each in reversed(list(main.operations)):
        operation = each.operation
        if operation.name != "func.return" and not _is_used(operation):
            operation.erase()
