"""One node against one data file: why it is not taken, in the model's own terms."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

from onnxport.deployment.estimation.conditions import CONDITIONS, REMEDIES
from onnxport.deployment.estimation.graph import find_tensors
from onnxport.deployment.estimation.table import Range, Rule, Table
from onnxport.formats.graph import Node, format_shape

# The steps of a check. Of several rules for one operator, the reason that got furthest is reported.
_STEPS = ("version", "types", "ranks", "other")


@dataclass(frozen=True)
class Reason:
    """Why a node is not taken."""

    why: str  # "rank 5 of 'x', at most 4"
    step: str = "other"  # how far the check got
    # Changes that may help: "shape" (fixed sizes), "opset N" (another opset), "float16" (another type),
    # "optimize" (fewer or other operators), "declared" (without the shapes that the file declares).
    remedies: tuple[str, ...] = ()


def find_refusal(node: Node, table: Table, refused: Collection[Node]) -> Reason | None:
    """Return why the runtime does not take `node`, given the `refused` nodes before it; None if it does."""
    rules = table.operators.get(node.qualified)
    if rules is None:
        return Reason(f"the runtime has no operator {node.qualified}", "version", _older_forms(node))
    reason = next(_check_rule(node, table.every, table, refused), None)
    if reason is not None:
        return reason
    reasons = [next(_check_rule(node, rule, table, refused), None) for rule in rules]
    if None in reasons:
        return None
    return max((each for each in reasons if each is not None), key=lambda each: _STEPS.index(each.step))


def _older_forms(node: Node) -> tuple[str, ...]:
    """Return remedies for an operator that the runtime lacks: older opsets may express it with others."""
    forms = _forms(node.op) if not node.domain else ()
    return ("optimize", f"opset {forms[0] - 1}") if forms and forms[0] > 1 else ("optimize",)


@cache
def _forms(op: str) -> tuple[int, ...]:
    """Return the opsets that introduced forms of one of ONNX's own operators."""
    return tuple(sorted({each.since_version for each in _schemas() if each.name == op and each.domain == ""}))


@cache
def _schemas() -> list[onnx.defs.OpSchema]:
    return list(onnx.defs.get_all_schemas_with_history())


def _check_rule(node: Node, rule: Rule, table: Table, refused: Collection[Node]) -> Iterator[Reason]:
    """Yield the requirements of `rule` that the node does not meet, in the order of the check."""
    if node.version not in rule.version:
        yield _version_reason(node, rule.version)
    for key, words in rule.types.items():
        types = table.types(words)
        for tensor in find_tensors(node, key):
            if tensor.dtype not in types and tensor.dtype != "unknown":
                remedies = ("float16",) if "float16" in types and "float32" not in types else ()
                takes = ", ".join(sorted(types)) or "none"
                yield Reason(f"{tensor.name!r} is {tensor.dtype}, it takes {takes}", "types", remedies)
    for key, ranks in rule.ranks.items():
        for tensor in find_tensors(node, key):
            if tensor.shape is not None and len(tensor.shape) not in ranks:
                yield Reason(f"rank {len(tensor.shape)} of {tensor.name!r}, {ranks}", "ranks")
    yield from _check_shapes(node, rule)
    yield from _check_attributes(node, rule)
    sides = (("inputs", node.inputs, rule.inputs), ("outputs", node.outputs, rule.outputs))
    for side, tensors, allowed in sides:
        count = sum(tensor is not None for tensor in tensors)
        if count not in allowed:
            yield Reason(f"{count} {side}, {allowed}")
    for name, argument in rule.conditions.items():
        if why := CONDITIONS[name](node, argument, refused):
            yield Reason(why, remedies=REMEDIES.get(name, ()))


def _version_reason(node: Node, version: Range) -> Reason:
    why = f"{node.op} of opset {node.version}, {version}"
    if version.least is not None and node.version < version.least:
        return Reason(why, "version", (f"opset {version.least}",))
    # The remedy is the newest opset in which the operator still has a form that is taken.
    beyond = [form for form in _forms(node.op) if version.most is not None and form > version.most]
    return Reason(why, "version", (f"opset {beyond[0] - 1}",) if beyond and not node.domain else ())


def _check_shapes(node: Node, rule: Rule) -> Iterator[Reason]:
    for key in rule.constant:
        for tensor in find_tensors(node, key):
            if not tensor.is_constant:
                why = f"{tensor.name!r} is computed at run time, but it must be constant"
                yield Reason(why, remedies=("shape", "optimize"))
    for key in rule.static:
        for tensor in find_tensors(node, key):
            if not tensor.is_constant and not tensor.is_static:
                why = f"the shape of {tensor.name!r} is open: {format_shape(tensor.shape)}"
                yield Reason(why, remedies=("shape",))


def _check_attributes(node: Node, rule: Rule) -> Iterator[Reason]:
    for name, allowed in rule.attributes.items():
        given = node.attributes.get(name)
        for value in given if isinstance(given, tuple) else (given,):
            if given is not None and value not in allowed:
                is_range = isinstance(allowed, Range)
                shown = str(allowed) if is_range else f"it takes {' or '.join(map(_format_value, allowed))}"
                yield Reason(f"{name} is {_format_value(given)}, {shown}")
                break


def _format_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
