"""The nodes that can be quantized: models must compute in floats, and --exclude NAME|OP takes nodes out."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnxport.core.errors import CannotConvertError, UsageError
from onnxport.formats.model import Model

_QUANTIZED = frozenset(
    (
        "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger "
        "QGemm MatMulNBits MatMulIntegerToFloat DynamicQuantizeMatMul DynamicQuantizeLSTM QAttention "
        "QLinearAdd QLinearMul"
    ).split()
)


def check_float(model: Model) -> None:
    """Refuse a model that is quantized already (CannotConvertError)."""
    found = Counter(node.op_type for node in model.graph.all_nodes() if node.op_type in _QUANTIZED)
    if not found:
        return
    named = ", ".join(f"{count} {op}" for op, count in sorted(found.items()))
    raise CannotConvertError(
        f"{model.path} is quantized already",
        why=f"it has {named}",
        fix="give the float model that it was made of; as it is, onnxport convert keeps its scales for every target",
    )


_NEAREST = 3


def excluded_nodes(source: Model, settled: Model, names: Iterable[str]) -> frozenset[str]:
    """Return the names of the float graph's nodes that `names` mean; UsageError for a name of nothing.

    A name is that of a node or of an operator, in the source or the float graph. A node that was merged into another
    (Conv with BatchNormalization) is the one that it has become part of.
    """
    found: set[str] = set()
    for name in names:
        meant = [node for node in settled.graph if name in (node.name, node.op_type)]
        own = [node for node in source.graph if name in (node.name, node.op_type)]
        if not (meant or own):
            raise _unknown(name, source)
        if meant and all(node.op_type == name for node in meant):
            own = []  # an operator means those that are still there, not a Conv that has taken one in
        found |= {node.name or "" for node in (*meant, *_map_to_float_graph(own, settled.graph))}
    return frozenset(found)


def _map_to_float_graph(nodes: Sequence[ir.Node], settled: ir.Graph) -> list[ir.Node]:
    """Map each node to the float graph's node with its result, or the first result behind it that still exists."""
    makers = {value.name: node for node in settled for value in node.outputs}
    found = []
    for node in nodes:
        seen: set[ir.Node] = set()
        behind = [node]
        while behind:
            each = behind.pop(0)
            if each in seen:
                continue
            seen.add(each)
            made = next((makers[value.name] for value in each.outputs if value.name in makers), None)
            if made is not None:
                found.append(made)
                break
            behind += [user for value in each.outputs for user in value.consumers()]
    return found


def _unknown(name: str, source: Model) -> UsageError:
    known = dict.fromkeys(text for node in source.graph for text in (node.name or "", node.op_type))
    close = difflib.get_close_matches(name, [text for text in known if text], n=_NEAREST, cutoff=0.5)
    ops = sorted({node.op_type for node in source.graph})
    fix = f"did you mean {' or '.join(map(repr, close))}?" if close else f"its operators are {', '.join(ops)}"
    return UsageError(f"--exclude {name}: the model has neither a node nor an operator of this name", fix=fix)
