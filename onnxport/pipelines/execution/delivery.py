"""Takes products from the cache to where the user wants them, if they keep what he set as limits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN
from onnxport.formats.artifact import Artifact, Staging, writing
from onnxport.pipelines.cache import Entry
from onnxport.pipelines.cache.files import copy_file
from onnxport.pipelines.config.pipeline import Cell
from onnxport.pipelines.execution.limits import check_limits, reason_of, verdict_of
from onnxport.pipelines.report_assembly import moves
from onnxport.reports.pipeline_report import CellRecord, FailureRecord, NodeRecord, PlaceRecord
from onnxport.reports.run_report import Worth

_PIECE = 1 << 18  # bytes


def deliver_cell(
    cell: Cell,
    chain: Sequence[NodeRecord],
    entry: Entry | None,
    timed: Callable[[Cell, Entry], Worth | None],
    explain: Callable[[Exception], FailureRecord],
    seal: Callable[[Cell, Artifact], None],
) -> CellRecord:
    """What became of a cell, whose product is at its place afterwards if nothing speaks against it.

    Args:
        chain: what became of the nodes from the model to its own.
        entry: of its own node; None where that failed.
        timed: gives what the product takes, for a limit on latency.
        explain: puts an error in words: a place that cannot be written is this cell's failure alone.
        seal: sees what is about to be delivered, as it will be, and may refuse it; see lock.keeping.
    """
    record = chain[-1]
    found = CellRecord(
        name=cell.name,
        model=cell.model,
        target=cell.target,
        values=dict(cell.values),
        node=cell.node.name,
        path=None,
        verdict=record.status,
        reason=next(filter(None, (node.broken for node in chain)), ""),  # what broke first
        exit_code=PROVEN,  # the node's own failure counts
        at=PlaceRecord.of(cell.line),
    )
    if entry is None:
        verdict = record.run.artifacts[0].report.verdict if record.run is not None else record.status
        return found.model_copy(update={"verdict": verdict})
    try:
        artifact = entry.report.artifacts[0]
        worth = timed(cell, entry)
        limits = check_limits(cell.limits, artifact, worth)
        judged = {
            "limits": limits,
            "latency": worth.latency if worth is not None else None,
            "verdict": verdict_of(limits, artifact.report.verdict),
        }
        if reason := reason_of(limits):
            return found.model_copy(update=judged | {"reason": reason, "exit_code": NOT_EQUIVALENT})
        deliver(entry, cell.output, partial(seal, cell))
        return found.model_copy(update=judged | {"path": str(cell.output)})
    except Exception as error:
        failure = explain(error)
        return found.model_copy(
            update={"verdict": "failed", "reason": failure.message, "exit_code": failure.exit_code}
        )


def deliver(entry: Entry, output: Path, seal: Callable[[Artifact], None] = lambda artifact: None) -> None:
    """Copies the product to `output`, whole or not at all; what is there already and the same stays untouched.

    Args:
        seal: sees the files as they will be, and may refuse them.

    Raises:
        UsageError: it cannot be meant.
        MachineError: it cannot be written.
    """
    with writing(output, "output"):
        output.parent.mkdir(parents=True, exist_ok=True)
    source = entry.artifact
    try:
        with Staging(output, "output", folder=source.is_folder) as staging:
            if _is_there(source, output):
                return seal(source)
            if source.is_folder:
                seal(source)
                place = staging.folder / output.name
                with writing(output, "output"):
                    shutil.copytree(source.path, place, copy_function=copy_file)
                staging.commit_folder(place, output)
            else:
                copy = _copy(source, staging.folder, output)
                seal(copy)
                staging.commit(moves(copy, output))
    finally:
        Staging.settled = False  # others are still to come: Ctrl-C is in time for them


def _copy(source: Artifact, folder: Path, output: Path) -> Artifact:
    """The product in `folder`, under the name that it is to have where its files name each other."""
    with writing(output, "output"):
        for file in source.files:
            copy_file(file, folder / file.name)
    companions = tuple(folder / file.name for file in source.companions)
    copy = Artifact(folder / source.path.name, source.format, companions)
    if copy.format == "onnx" and companions:
        from onnxport.formats.model import renamed

        return renamed(copy, output.name)
    return copy


def _is_there(source: Artifact, output: Path) -> bool:
    """Whether `output` has the very files of `source`. Not known of an ONNX model with a data file: it names that."""
    if source.is_folder:
        places = {file: output / file.relative_to(source.path) for file in source.files}
        there = {file for file in output.rglob("*") if file.is_file()} if output.is_dir() else set()
        if there != set(places.values()):
            return False
    elif source.format == "onnx" and source.companions:
        return False
    else:
        places = moves(source, output)
    return all(_is_same(file, place) for file, place in places.items())


def _is_same(file: Path, place: Path) -> bool:
    """Whether two files have the same bytes; read in larger pieces than filecmp's, which take three times as long."""
    if not place.is_file() or place.stat().st_size != file.stat().st_size:
        return False
    with file.open("rb", buffering=0) as one, place.open("rb", buffering=0) as other:
        while True:
            piece = one.read(_PIECE)
            if piece != other.read(_PIECE):
                return False
            if not piece:
                return True
