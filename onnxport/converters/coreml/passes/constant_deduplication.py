"""Stores equal constants once: weights in the weight file, small ones in the program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from onnxport.converters.coreml.library import types

_Key = tuple[Any, ...]


def share_weights(operations: Iterable[Any]) -> None:
    """Give constants of the same bytes one place in the weight file."""
    seen: dict[_Key, list[Any]] = {}
    for operation in operations:
        if operation.op_type != "const" or not isinstance(operation.outputs[0].val, np.ndarray):
            continue
        array = operation.outputs[0].val
        if array.dtype.kind not in "fiu":
            continue
        alike = seen.setdefault((array.dtype, array.shape, array.reshape(-1)[:16].tobytes()), [])
        same = next((each for each in alike if _same_bytes(each.outputs[0].val, array)), None)
        if same is None:
            alike.append(operation)
            continue
        if same.weight_id is None:
            same.weight_id = f"{same.outputs[0].name}_shared"
        operation.weight_id = same.weight_id


def share_across(operations: Iterable[Any]) -> None:
    """Give equal constants of several functions one place in the weight file, and others one of their own.

    coremltools identifies weights by name, and two functions may use one name for different weights.
    """
    places: dict[_Key, str] = {}
    for operation in operations:
        if operation.op_type == "const" and isinstance(operation.outputs[0].val, np.ndarray):
            array, var = operation.outputs[0].val, operation.outputs[0]
            # With MIL's type: integers of fewer bits are held in bytes.
            kind = types.builtin_to_string(var.dtype)
            key = (kind, array.dtype.str, array.shape, hashlib.sha256(_bytes(array).data).digest())
            operation._weight_id = None  # its setter works once, and share_weights may have used it
            operation.weight_id = places.setdefault(key, f"weight_{len(places)}")


def _bytes(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _same_bytes(one: Any, other: Any) -> bool:
    # 0 == -0 with other bytes; NaN != NaN with the same bytes.
    bits = f"u{one.dtype.itemsize}"
    return np.array_equal(np.ascontiguousarray(one).view(bits), np.ascontiguousarray(other).view(bits))


def share_constants(program: Any) -> None:
    """Make operators of a serialized program read the first of equal constants, and drop the others.

    Args:
        program: MIL's protobuf message.
    """
    for function in program.functions.values():
        for block in function.block_specializations.values():
            _share_in(block, {}, {})


def _share_in(block: Any, outer: dict[bytes, str], renamed: dict[str, str]) -> None:
    """Share constants of a block; `outer` has those of enclosing blocks, `renamed` maps dropped ones to kept ones."""
    seen, renamed = dict(outer), dict(renamed)
    kept = []
    for operation in block.operations:
        if operation.type == "const" and operation.outputs[0].name not in block.outputs:
            name = operation.outputs[0].name
            first = seen.setdefault(operation.attributes["val"].SerializeToString(deterministic=True), name)
            if first != name:
                renamed[name] = first
                continue
        for argument in operation.inputs.values():
            for binding in argument.arguments:
                if binding.name in renamed:
                    binding.name = renamed[binding.name]
        for inner in operation.blocks:
            _share_in(inner, seen, renamed)
        kept.append(operation)
    if len(kept) < len(block.operations):
        copies = [type(operation).FromString(operation.SerializeToString()) for operation in kept]
        del block.operations[:]
        block.operations.extend(copies)
