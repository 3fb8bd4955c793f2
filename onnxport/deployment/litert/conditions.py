"""Conditions of TFLite's delegates (`estimation.conditions`); an open size counts as 1, as in LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from onnxport.formats.graph import Node, Tensor

_FLOATS = ("float32", "float16")


def _form(node: Node, versions: Any, _: Collection[Node]) -> str:
    """Check the version of the operator, which TFLite counts per operator from 1."""
    least, _dots, most = str(versions).rpartition("..")
    least = least or ("1" if _dots else most)
    if int(least) <= node.version <= int(most):
        return ""
    return f"version {node.version} of the operator, at most {most}"


def _computed(node: Node, counts: Any, _: Collection[Node]) -> str:
    """Check the number of computed inputs."""
    allowed: Sequence[int] = counts if isinstance(counts, (list, tuple)) else (counts,)
    found = len(_inputs(node, constant=False))
    if found in allowed:
        return ""
    return f"{found} of its inputs are computed, it takes {' or '.join(map(str, allowed))}"


def _inputs_are(node: Node, pairs: Any, _: Collection[Node]) -> str:
    """Check the numbers of computed and of constant inputs: one of these pairs."""
    found = [len(_inputs(node, constant=False)), len(_inputs(node, constant=True))]
    if found in pairs:
        return ""
    wanted = " or ".join(f"{computed} computed and {constant} constant" for computed, constant in pairs)
    return f"{found[0]} inputs are computed and {found[1]} constant, it takes {wanted}"


def _computed_types(node: Node, allowed: Any, _: Collection[Node]) -> str:
    """Check the element types of computed tensors; some operators take more types."""
    for side, tensors in (("inputs", node.inputs), ("outputs", node.outputs)):
        types = (*allowed[side], *allowed["also"].get(node.op, {}).get(side, ()))
        for tensor in tensors:
            if tensor is not None and not tensor.is_constant and tensor.dtype not in types:
                return f"{tensor.name!r} is {tensor.dtype}, it takes {', '.join(types)}"
    return ""


def _decides(node: Node, readers: Any, _: Collection[Node]) -> str:
    """Check that one operator reads its booleans and gives floats."""
    why = f"its result must be read by exactly one {' or '.join(readers)} that returns floats"
    if len(node.consumers) != 1 or node.consumers[0].op not in readers:
        return why
    outputs = node.consumers[0].outputs
    return "" if outputs and outputs[0] is not None and outputs[0].dtype in _FLOATS else why


def _broadcasts(node: Node, _argument: Any, _: Collection[Node]) -> str:
    """Check the shapes of operands of different ranks."""
    first, second = (_sizes(tensor) for tensor in node.inputs[:2])
    if first is None or second is None or min(len(first), len(second)) <= 1 or len(first) == len(second):
        return ""
    longer, shorter = sorted((first, second), key=len, reverse=True)
    if len(longer) == 4:
        if len(shorter) == 3 and longer[0] == 1:
            return ""
        if len(shorter) == 2 and (
            (longer[0] == 1 and list(shorter) == [1, 1]) or (longer[0], longer[3]) == tuple(shorter)
        ):
            return ""
    return f"it does not broadcast {list(first)} and {list(second)}"


def _casts(node: Node, _argument: Any, _: Collection[Node]) -> str:
    source, target = (
        each[0].dtype if each and each[0] is not None else "" for each in (node.inputs, node.outputs)
    )
    if source == "bool" and target in _FLOATS:
        return _check_decision(node)
    if (source in _FLOATS and target == "bool") or {source, target} <= {"float32", "int32"}:
        return ""
    return f"from {source} to {target}"


def _check_decision(node: Node) -> str:
    """Check that a comparison made the booleans and an operator reads the numbers."""
    if len(node.producers) == 1 and len(node.producers[0].consumers) == 1 and len(node.consumers) == 1:
        return ""
    return "from bool, where others read the booleans too or the result is an output"


def _keeps_dims(node: Node, _argument: Any, _: Collection[Node]) -> str:
    first, result = _sizes(node.inputs[0]), _sizes(node.outputs[0])
    if node.inputs[0] is not None and node.inputs[0].is_constant:
        return "its first input is constant"
    if not node.attributes.get("keepNumDims") or first is None or result is None or len(first) == len(result):
        return ""
    return f"it keeps dimensions and goes from rank {len(first)} to {len(result)}"


def _padded_dimensions(node: Node, counts: Any, _: Collection[Node]) -> str:
    sizes = _sizes(node.inputs[1]) if len(node.inputs) > 1 else None
    least, most = (int(each) for each in str(counts).split(".."))
    if sizes is None or len(sizes) != 2 or least <= sizes[0] <= most:
        return ""
    return f"it pads {sizes[0]} dimensions, {least} to {most} are taken"


def _selects(node: Node, _argument: Any, _: Collection[Node]) -> str:
    """Check that values have the result's shape or are scalars, and that the condition broadcasts to it."""
    condition, *values = node.inputs[:3]
    result = _sizes(node.outputs[0]) or ()
    given = _sizes(condition) or ()
    if len(given) > len(result) or any(
        size not in (1, wanted) for size, wanted in zip(reversed(given), reversed(result), strict=False)
    ):
        return f"its condition is {list(given)}, its result {list(result)}"
    for tensor in values:
        sizes = _sizes(tensor) or ()
        if sizes and sizes != result and (len(sizes) > 1 or sizes[0] > 1):
            return f"{tensor.name if tensor else ''!r} is {list(sizes)}, its result {list(result)}"
        if tensor is not None and not tensor.is_constant and len(sizes) == 2:
            return f"{tensor.name!r} is computed and of rank 2"
    return ""


def _inputs(node: Node, *, constant: bool) -> list[Tensor]:
    return [tensor for tensor in node.inputs if tensor is not None and tensor.is_constant is constant]


def _sizes(tensor: Tensor | None) -> tuple[int, ...] | None:
    if tensor is None or tensor.shape is None:
        return None
    return tuple(size if isinstance(size, int) else 1 for size in tensor.shape)


CONDITIONS: Mapping[str, Callable[[Node, Any, Collection[Node]], str]] = {
    "broadcasts": _broadcasts,
    "casts": _casts,
    "computed": _computed,
    "computed_types": _computed_types,
    "decides": _decides,
    "form": _form,
    "inputs_are": _inputs_are,
    "keeps_dims": _keeps_dims,
    "padded_dimensions": _padded_dimensions,
    "selects": _selects,
}
