"""Conversion of a model to the requested opset, as far as ONNX Runtime runs it there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Literal

import onnx
import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers.opset.downgrade import lower
from onnxport.optimizers.opset.errors import LiftError, refusal
from onnxport.optimizers.opset.ort_support import find_unsupported, newest_opset
from onnxport.optimizers.opset.schemas import default_domain, since
from onnxport.optimizers.opset.upgrade import inline_functions, lift
from onnxport.optimizers.params import NEWEST_OPSET
from onnxport.optimizers.passes import Rewritten


def convert_opset(model: Model, opset: int | Literal["latest"]) -> Rewritten:
    """Return a copy of `model` at `opset`; "latest" is the newest at which ONNX Runtime runs its nodes.

    The weights are shared. The file's own functions are inlined if anything changes; imports of other domains stay.

    Raises:
        LiftError: nodes that have no form there, or none that ONNX Runtime runs.
    """
    copy = model.clone()
    own = default_domain(copy.ir.opset_imports)
    if own is None and not copy.ir.functions:
        return Rewritten(copy, ("it uses no operator of ONNX's own domain, so there is no opset to change",))
    newest = newest_opset(NEWEST_OPSET)
    to = newest if opset == "latest" else opset
    if to > newest:
        raise LiftError(
            f"the model cannot be proven at opset {to}",
            why=f"ONNX Runtime {version('onnxruntime')} and onnx {onnx.__version__} know opsets up to {newest}",
            fix=f"give --opset {newest}, or install newer ones",
        )
    if own == to:
        return Rewritten(copy)
    notes = []
    if inlined := inline_functions(copy.ir):
        notes.append(f"its functions were inlined: {', '.join(inlined)}")
    if opset == "latest":
        converted, why = _newest_that_runs(copy, to)
        return Rewritten(converted, (*notes, *why))
    converted, remarks = _convert(copy, to)
    if refused := _find_newly_unsupported(converted, copy):
        count = sum(1 for _ in converted.graph.all_nodes())
        raise LiftError(
            f"{len(refused)} of {count} nodes do not run at opset {to}, so they cannot be proven",
            refusals=[refusal(node, node.op_type, why) for node, why in refused.items()],
            fix="give --opset latest for the newest at which all do" if to > copy.opset else "",
        )
    return Rewritten(converted, (*notes, *remarks))


def _newest_that_runs(model: Model, newest: int) -> tuple[Model, tuple[str, ...]]:
    """Return the model at the newest opset up to `newest` that ONNX Runtime runs, and a note if it is older."""
    to = newest
    why: tuple[str, ...] = ()
    while to > model.opset:
        converted, _ = _convert(model, to)
        ops = {node.op_type for node in _find_newly_unsupported(converted, model)}
        refused = {op: since(op, to) for op in ops}
        if not refused:
            return converted, why
        # None of its versions between the two opsets: that is what makes it lack a kernel.
        named = ", ".join(f"{op}-{first}" for op, first in sorted(refused.items()))
        to = max(min(refused.values()) - 1, model.opset)
        lacking = f"ONNX Runtime {version('onnxruntime')} lacks {named}"
        why = (f"its newest opset is {to}, not {newest}: {lacking}",)
    if to >= model.opset:
        return model, why
    lowered, remarks = _convert(model, to)
    return lowered, (*why, *remarks)


def _convert(model: Model, opset: int) -> tuple[Model, list[str]]:
    copy = model.clone()
    lift(copy.ir, opset)
    return copy, lower(copy.ir, opset)


def _find_newly_unsupported(converted: Model, model: Model) -> Mapping[ir.Node, str]:
    """Return nodes that ONNX Runtime would refuse, except operators that it refuses in `model` as well."""
    refused = find_unsupported(converted.ir)
    before = {node.op_type for node in find_unsupported(model.ir)} if refused else set()
    return {node: why for node, why in refused.items() if node.op_type not in before}
