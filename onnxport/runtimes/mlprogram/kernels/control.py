"""Blocks that run or not, or again and again, and what is remembered between runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel


@kernel("cond")
def cond(pred: Array, call: Call) -> tuple[Any, ...]:
    then, otherwise = call.operation.blocks
    return tuple(call.run(then if pred.all() else otherwise, ()))


@kernel("while_loop")
def while_loop(loop_vars: Sequence[Any], call: Call) -> tuple[Any, ...]:
    condition, body = call.operation.blocks
    values = list(loop_vars)
    while call.run(condition, values)[0].all():
        values = call.run(body, values)
    return tuple(values)


@kernel("read_state")
def read_state(input: Any) -> Any:
    return input.read()


@kernel("write_state")
def write_state(input: Any, data: Array) -> None:
    input.write(data)
