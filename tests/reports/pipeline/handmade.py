"""Reports of pipelines made by hand, with everything that a form has to handle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxport.core.errors import CANNOT_CONVERT, NOT_EQUIVALENT, PROVEN
from onnxport.reports.pipeline_report import (
    CellRecord,
    FailureRecord,
    LimitRecord,
    NodeRecord,
    PipelineReport,
    PlaceRecord,
    exit_code_of,
)
from onnxport.reports.run_report import RunReport, Worth
from tests.reports.handmade import (
    NASTY,
    broken,
    failing,
    judgement,
    latency,
    nasty,
    output,
    passing,
    run_of,
    waived,
)

REFUSAL = (
    "digits.onnx cannot be converted to Core ML, 2 nodes have no equivalent:\n"
    "  StringSplit  'pre/split'   Core ML has no string operators\n"
    "  Loop         'decode'      carries a sequence"
)


def at(line: int) -> PlaceRecord:
    return PlaceRecord(file="ci/pipeline.yaml", line=line)


def sized(run: RunReport, size: int, sqnr: float | None = None) -> RunReport:
    """`run` with another size, which is that of a source of 4 MB and more, and another SQNR of all outputs."""
    made = run.artifacts[0]
    judgements = tuple(
        each.model_copy(
            update={"outputs": tuple(out.model_copy(update={"sqnr_db": sqnr}) for out in each.outputs)}
        )
        for each in made.report.judgements
    )
    report = made.report.model_copy(update={"judgements": judgements if sqnr else made.report.judgements})
    made = made.model_copy(update={"size": size, "ratio": round(size / 4_747_000, 4), "report": report})
    return run.model_copy(update={"artifacts": (made,)})


def node(name: str, run: RunReport | None = None, **changes: Any) -> NodeRecord:
    model, *_ = name.split("/")
    fields: dict[str, Any] = {
        "name": name,
        "model": model,
        "stage": "ort",
        "after": "",
        "status": "made" if run is not None and run.passed else "failed",
        "key": "ab" * 32,
        "seconds": 1.25,
        "run": run,
        "at": at(12),
    }
    return NodeRecord(**fields | changes)


def cell(made: NodeRecord, **changes: Any) -> CellRecord:
    model, target, *values = made.name.split("/")
    passed = made.run is not None and made.run.passed
    fields: dict[str, Any] = {
        "name": made.name,
        "model": model,
        "target": target,
        "values": {f"key{count}": value for count, value in enumerate(values)},
        "node": made.name,
        "path": f"build/{made.name}.ort" if passed else None,
        "verdict": made.run.artifacts[0].report.verdict if made.run is not None else made.status,
        "reason": "" if passed else made.broken,
        "exit_code": PROVEN,
        "at": made.at,
    }
    return CellRecord(**fields | changes)


def report(nodes: Sequence[NodeRecord], cells: Sequence[CellRecord], **changes: Any) -> PipelineReport:
    fields: dict[str, Any] = {
        "arguments": ("ci/pipeline.yaml", "--report", "out dir"),
        "file": "ci/pipeline.yaml",
        "nodes": tuple(nodes),
        "cells": tuple(cells),
        "seconds": 12.34,
        "environment": {"python": "3.11.7", "onnxport": "0.1.0"},
        "exit_code": exit_code_of(tuple(nodes), tuple(cells)),
    }
    return PipelineReport(**fields | changes)


def over(name: str = "max_size") -> LimitRecord:
    said = "4.7 MB (4,700,000 bytes) where 4.0 MB (4,000,000 bytes) is the most, 18 % too much"
    return LimitRecord(
        name=name,
        limit=4e6,
        value=4.7e6,
        kept=False,
        said=said,
        where="ci/pipeline.yaml:15, targets.small.max_size",
    )


def kept() -> LimitRecord:
    said = "0.99 of the source's size where 1.2 is the most"
    return LimitRecord(
        name="max_size_ratio",
        limit=1.2,
        value=0.99,
        kept=True,
        said=said,
        where="ci/pipeline.yaml:9, targets.phone.max_size_ratio",
    )


def lowered() -> RunReport:
    """A run that lowered the precision, and was timed."""
    fine = output("scores", rule="SQNR 27.1 dB", sqnr_db=27.1)
    run = run_of(
        judgement(output()),
        judgement(fine, question="quality", reason="SQNR 27.1 dB"),
        reason="fidelity: within float32 noise; quality: SQNR 27.1 dB",
    )
    timed = run.artifacts[0].model_copy(update={"worth": Worth(latency=latency())})
    return sized(run.model_copy(update={"artifacts": (timed,)}), 1_200_000)


def mixed() -> PipelineReport:
    """Everything that can happen to a cell, in two models."""
    lean = node("digits/lean", passing(), stage="optimize", at=at(5))
    ints = node("digits/int8", failing(), stage="quantize", after=lean.name, at=at(6))
    phone = node("digits/phone", passing(), stage="tflite", after=lean.name, status="cached", seconds=0.0)
    tiny = node(
        "digits/tiny/int8",
        stage="tflite",
        after=ints.name,
        status="not run",
        seconds=0.0,
        why="digits/int8 failed",
    )
    small = node("digits/small", passing(), at=at(14))
    apple = node(
        "digits/apple",
        stage="coreml",
        failure=FailureRecord(kind="CannotConvertError", message=REFUSAL, exit_code=CANNOT_CONVERT),
        key="",
        at=at(17),
    )
    fast = node("voice/phone", lowered(), stage="quantize")
    loose = node("voice/server", waived(), at=at(20))
    cells = [
        cell(phone, limits=(kept(),)),
        cell(tiny, at=at(11)),
        cell(
            small,
            path=None,
            verdict="over budget",
            reason=f"{over().where}: {over().said}",
            limits=(over(), kept()),
            exit_code=NOT_EQUIVALENT,
        ),
        cell(apple),
        cell(fast),
        cell(loose),
    ]
    return report([lean, ints, phone, tiny, small, apple, fast, loose], cells)


def lone() -> PipelineReport:
    only = node("digits/phone", passing())
    return report([only], [cell(only)])


def cached() -> PipelineReport:
    """A second run: nothing was made."""
    nodes = [node(f"digits/{name}", passing(), status="cached", seconds=0.0) for name in ("a", "b", "c")]
    return report(nodes, [cell(each) for each in nodes], seconds=0.41)


def lost() -> PipelineReport:
    """Nothing works: each cell fails in its own way."""
    machine = FailureRecord(kind="MachineError", message="the disk is full", exit_code=6)
    nodes = [
        node("digits/a", failing()),
        node("digits/b", broken()),
        node("digits/c", failure=machine, key=""),
    ]
    return report(nodes, [cell(each) for each in nodes])


def undelivered() -> PipelineReport:
    """A product that passed, and a place that cannot be written."""
    only = node("digits/a", passing())
    reason = "build/digits/a.ort cannot be written: Permission denied"
    return report([only], [cell(only, path=None, verdict="failed", reason=reason, exit_code=6)])


def hostile() -> PipelineReport:
    """Every text that can come from a file is NASTY; two models, so that there is a matrix."""
    name = NASTY.replace("/", "")
    failure = FailureRecord(kind="InputError", message=f"{NASTY}: damaged\n{NASTY}", exit_code=4)
    nodes = [
        node(f"{name}/{name}/{name}", nasty(), stage=NASTY, why=NASTY),
        node(f"other{name}/{name}/{name}", failure=failure, stage=NASTY),
    ]
    place = PlaceRecord(file=f"{NASTY}.yaml", line=3)
    nodes = [each.model_copy(update={"at": place}) for each in nodes]
    cells = [
        cell(each, model=each.name.split("/")[0], target=name, values={NASTY: name}, reason=NASTY)
        for each in nodes
    ]
    return report(nodes, cells, file=f"{NASTY}.yaml", environment={NASTY: NASTY}, arguments=(NASTY,))


def endless() -> PipelineReport:
    """Figures that are no numbers."""
    nodes = [
        node("digits/nan", broken()),
        node("digits/exact", sized(passing(), 4_000_000, math.inf)),
        node("digits/fine", sized(passing(), 2_000_000, 80.0)),
    ]
    odd = LimitRecord(
        name="max_latency_ratio",
        limit=math.inf,
        value=None,
        kept=False,
        said="it could not be timed: no inputs",
        where="p.yaml:9, targets.fine.max_latency_ratio",
    )
    cells = [cell(nodes[0]), cell(nodes[1])]
    cells.append(
        cell(
            nodes[2],
            path=None,
            verdict="inconclusive",
            reason=odd.said,
            limits=(odd,),
            exit_code=NOT_EQUIVALENT,
        )
    )
    return report(nodes, cells)


def crowd(models: int = 5, targets: int = 8) -> PipelineReport:
    """40 cells, some on top of each other."""
    nodes = []
    for model in range(models):
        for target in range(targets):
            size = 700_000 * (target // 2 + 1) + 130_000 * model * (target % 3)
            sqnr = 20.0 + 9 * target + 3.5 * model
            ran = sized(passing(), size, sqnr)
            nodes.append(node(f"mobilenet_v{model}/target-{target}/int8", ran, status="cached", seconds=0.0))
    nodes[13] = node(nodes[13].name, sized(failing(), 900_000, 4.0))
    return report(nodes, [cell(each) for each in nodes])


RUNS = {
    "mixed": mixed,
    "lone": lone,
    "cached": cached,
    "lost": lost,
    "undelivered": undelivered,
    "hostile": hostile,
    "endless": endless,
    "crowd": crowd,
    "wide": lambda: crowd(12, 11),
}
