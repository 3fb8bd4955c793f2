"""Profiles made by hand, with everything that a form has to handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxport.profiling.report import Group, NodeTime, ProfileReport
from tests.reports.handmade import NASTY

# Of a convolution network's block, in tenths of a millisecond.
_BLOCK = (("Conv", 3.1), ("Clip", 0.2), ("Conv", 1.4), ("Clip", 0.15), ("Conv", 2.2), ("Add", 0.3))


def node(name: str, op: str, ms: float, **changes: Any) -> NodeTime:
    fields: dict[str, Any] = {"provider": "CPUExecutionProvider", "sources": (name,), "source_ops": (op,)}
    return NodeTime(**{"name": name, "op": op, "ms": ms, "share": 0.0, **fields, **changes})


def report(nodes: Sequence[NodeTime], **changes: Any) -> ProfileReport:
    whole = sum(each.ms for each in nodes) or 1.0
    shared = tuple(each.model_copy(update={"share": each.ms / whole}) for each in nodes)
    fields: dict[str, Any] = {
        "command": "onnxport profile models/mobilenetv2.onnx --report profile.html",
        "model": "models/mobilenetv2.onnx",
        "format": "onnx",
        "ran_on": "ONNX Runtime 1.27.0, CPUExecutionProvider",
        "threads": 1,
        "runs": 50,
        "inputs": "generated, seed 0",
        "run_ms": whole * 1.01,
        "profiled_ms": whole * 1.06,
        "outside_ms": whole * 0.02,
        "nodes_ms": whole,
        "nodes": shared,
        "by_op": groups(shared, "op"),
        "by_source": groups(shared, "name"),
    }
    known = {name: value for name, value in fields.items() if name in ProfileReport.model_fields}
    return ProfileReport(**known | changes)


def groups(nodes: Sequence[NodeTime], by: str) -> tuple[Group, ...]:
    names = dict.fromkeys(getattr(each, by) for each in nodes)
    found = []
    for name in names:
        own = [each for each in nodes if getattr(each, by) == name]
        found.append(
            Group(
                name=name,
                count=len(own),
                ms=sum(each.ms for each in own),
                share=sum(each.share for each in own),
            )
        )
    return tuple(sorted(found, key=lambda group: -group.ms))


def whole() -> ProfileReport:
    """Seventeen blocks and a classifier, of which two nodes were fused and one has no origin."""
    nodes = [node("/stem/Conv", "Conv", 0.61)]
    for block in range(17):
        for at, (op, ms) in enumerate(_BLOCK):
            name = f"/features/features.{block}/conv.{at}/{op}"
            nodes.append(node(name, op, ms / 10 * (1 + block % 4)))
    fused = ("/classifier/MatMul", "/classifier/Add", "/classifier/Relu", "/classifier/Mul")
    nodes += [
        node("ReorderOutput_token_7", "ReorderOutput", 0.08, sources=(), source_ops=()),
        node("fused 12", "FusedGemm", 0.44, sources=fused, source_ops=("MatMul", "Add", "Relu", "Mul")),
        node("/Softmax", "Softmax", 0.004),
    ]
    return report(nodes, notes=("one node has no origin: ONNX Runtime put it in",))


def large() -> ProfileReport:
    """Two thousand nodes of thirty operators, with long names, nested deeply."""
    nodes = [
        node(
            f"/model/encoder/stage.{at // 400}/layer.{at // 100}/block.{at // 20}/attention/self/op_{at}_of_many",
            f"Operator{at * 7 % 30}",
            0.001 * (1 + at * 31 % 97),
            provider="XnnpackExecutionProvider" if at % 5 else "CPUExecutionProvider",
            sources=(
                f"/model/encoder/stage.{at // 400}/layer.{at // 100}/block.{at // 20}/attention/self/{at}",
            ),
        )
        for at in range(2000)
    ]
    return report(nodes)


def hostile() -> ProfileReport:
    """Names out of files that nobody vouches for."""
    nodes = [node(NASTY, NASTY, 1.0), node(f"/{NASTY}/x", "Conv", 2.0), node("é漢字" * 90, "漢字", 0.5)]
    return report(nodes, model=f"{NASTY}.onnx", command=NASTY, ran_on=NASTY, notes=(NASTY,))


def nothing() -> ProfileReport:
    """A model without a node that takes time."""
    return report([node("/Identity", "Identity", 0.0)], run_ms=0.0, profiled_ms=0.0)


REPORTS = {"whole": whole, "large": large, "hostile": hostile, "nothing": nothing}
