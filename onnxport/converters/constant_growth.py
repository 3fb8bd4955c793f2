"""Why an artefact is larger than its source: it stores constants that the source computes in every run."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model

# What a report need not explain: a share of the source's constants, and bytes.
_SHARE, _LEAST = 1.15, 64 * 2**10
_NAMED = 3  # constants in a note


def describe_growth(source: Model, prepared: Model) -> tuple[str, ...]:
    """Return a note on the constants of the prepared model that the source computes; () where they are few."""
    before, after = _constants(source), _constants(prepared)
    total, old = sum(after.values()), sum(before.values())
    if total <= max(_SHARE * old, old + _LEAST):
        return ()
    new = {name: size for name, size in after.items() if size > before.get(name, 0)}
    largest = sorted(new, key=lambda name: (-new[name], name))[:_NAMED]
    listed = ", ".join(f"{name!r} {format_size(new[name])}" for name in largest)
    more = ", ..." if len(new) > len(largest) else ""
    return (
        f"the file stores {format_size(total - old)} of constants that the source computes in every run "
        f"({listed}{more})",
    )


def describe_size(source: Model, stored: int, made: Artifact) -> tuple[str, ...]:
    """Return a note on what fills a file that is larger than its source; () where it is not, or not by much.

    A small model is mostly graph, which each format writes in its own way.

    Args:
        stored: bytes of the prepared model's constants and lists (`constant_bytes`).
    """
    before, after = source.artifact.size, made.size
    if after <= _SHARE * before:
        return ()
    # An eighth is left for what the target can store as integers after all.
    if (widened := _count_widened_bytes(source)) > _LEAST and after - stored > widened * 7 / 8:
        return (
            f"the file stores weights as floats that the source holds as integers ({format_size(widened)} more); for "
            "integers convert the float original with --precision int8-weights",
        )
    old = constant_bytes(source, with_lists=True)
    return (
        f"of the {format_size(after)}, about {format_size(min(stored, after))} are constants (of the source's "
        f"{format_size(before)}, {format_size(min(old, before))}) and the rest describes the graph: a record for each "
        "value and operator, and how the model was converted",
    )


def format_size(size: int) -> str:
    """Write a number of bytes as reports do."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def has_narrow_constants(model: Model) -> bool:
    """Return whether most bytes of the model's constants hold numbers of fewer than 32 bits."""
    tensors = [tensor for _, tensor in _tensors(model)]
    narrow = sum(tensor.nbytes for tensor in tensors if tensor.dtype.bitwidth < 32)
    return 2 * narrow > sum(tensor.nbytes for tensor in tensors)


def constant_bytes(model: Model, *, with_lists: bool = False) -> int:
    """Return the bytes of the constants of all graphs, without texts; on request with the lists of attributes."""
    if with_lists:
        return sum(_constants(model).values())
    return sum(tensor.nbytes for _, tensor in _tensors(model))


def _count_widened_bytes(model: Model) -> int:
    """Return by how many bytes constants that the model dequantizes are larger as float32."""
    tensors = dict(_tensors(model))
    read = {node.inputs[0] for node in model.graph.all_nodes() if node.op_type == "DequantizeLinear"}
    stored = {each.name: tensors[each.name] for each in read if each is not None and each.name in tensors}
    return sum(4 * tensor.size - tensor.nbytes for tensor in stored.values())


def _constants(model: Model) -> dict[str, int]:
    """Return the bytes of constants by name; the lists of a node, such as a tree's thresholds, count as its result."""
    found: dict[str, int] = {}
    for name, tensor in _tensors(model):
        found[name] = found.get(name, 0) + tensor.nbytes
    for node in model.graph.all_nodes():
        lists = sum(_list_bytes(attribute) for attribute in node.attributes.values())
        if lists:
            name = node.outputs[0].name or ""
            found[name] = found.get(name, 0) + lists
    return found


_BYTES = {ir.AttributeType.INTS: 8, ir.AttributeType.FLOATS: 4}


def _list_bytes(attribute: ir.Attr) -> int:
    each = 0 if attribute.is_ref() else _BYTES.get(attribute.type, 0)
    return each * len(attribute.value) if each else 0


def _tensors(model: Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Yield initializers and values of Constant nodes, in all graphs, with their names."""
    for graph in model.ir.graphs():
        for name, value in graph.initializers.items():
            if value.const_value is not None and value.const_value.dtype != ir.DataType.STRING:
                yield name, value.const_value
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensor = attribute.as_tensor()
                    if tensor.dtype != ir.DataType.STRING:
                        yield node.outputs[0].name or "", tensor
