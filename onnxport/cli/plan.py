"""`onnxport plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options
from onnxport.cli.run import target_option

if TYPE_CHECKING:
    from onnxport.pipelines.graph.plan import Plan


@subcommand("plan", "onnxport plan pipeline.yaml", "onnxport plan pipeline.yaml --target phone")
@click.argument("pipeline", type=PATH)
@target_option("Plan")
@click.option("--frozen", is_flag=True, help="Fail if a run would differ from pipeline.lock.")
@output_options
def command(pipeline: Path, targets: tuple[str, ...], frozen: bool, output: Output) -> int:
    from onnxport.core.user_modules import import_from
    from onnxport.pipelines.cache import Cache, folder_beside
    from onnxport.pipelines.config.reader import read
    from onnxport.pipelines.execution.run import select_cells
    from onnxport.pipelines.graph.plan import Planner
    from onnxport.pipelines.lock.enforcement import LockGuard

    found = read(pipeline)
    cells = select_cells(found, targets)
    with import_from(found.folder):
        LockGuard(found, cells, frozen=frozen)  # refuses differences from the lock
        plan = Planner(found, cells, Cache(folder_beside(pipeline))).plan()
    output.result(lambda: plan.model_dump_json(indent=2), lambda: _text(plan))
    return plan.exit_code


def _text(plan: Plan) -> str:
    from onnxport.core.errors import printable
    from onnxport.reports.phrases import count, human_size

    def sized(size: int | None, size_from: str) -> str:
        if size is None:
            return "?"
        return human_size(size) if size_from == "cache" else f"about {human_size(size)}"

    rows = [
        (node.name, node.stage, node.status, sized(node.size, node.size_from), node.why)
        for node in plan.nodes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    lines = [
        "   ".join((*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4])).rstrip()
        for row in rows
    ]
    made = sum(node.status == "would run" for node in plan.nodes)
    if not made:
        lines.append(f"nothing would run: {count(len(plan.nodes), 'product')} in {plan.cache}")
    else:
        free = f", {human_size(plan.free)} free" if plan.free is not None else ""
        lines.append(
            f"{made} of {count(len(plan.nodes), 'product')} would be made; estimated need: {human_size(plan.memory)} "
            f"of memory at a time and {human_size(plan.disk)} of disk{free}"
        )
    return "\n".join(printable(line) for line in lines)
