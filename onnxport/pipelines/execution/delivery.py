"""Delivers products from the cache to the user's paths, if they stay within the user's limits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from onnxport.core import reads
from onnxport.core.errors import NOT_EQUIVALENT, PROVEN
from onnxport.formats.artifact import Artifact, Staging, writing
from onnxport.pipelines.cache import Entry
from onnxport.pipelines.cache.files import copy_file
from onnxport.pipelines.config.pipeline import Cell
from onnxport.pipelines.execution.limits import check_limits, reason_of, verdict_of
from onnxport.pipelines.runner.report import moves
from onnxport.reports.pipeline_report import CellRecord, FailureRecord, NodeRecord
from onnxport.reports.run_report import Worth

_PIECE = 1 << 18  # bytes


def deliver_cell(
    cell: Cell,
    chain: Sequence[NodeRecord],
    entry: Entry | None,
    measure: Callable[[], Worth] | None,
    explain: Callable[[Exception], FailureRecord],
    lock: Callable[[Cell, Artifact], None],
) -> CellRecord:
    """Deliver the product of a cell unless a limit is exceeded, and return the cell's record.

    Args:
        chain: records of the nodes from the model to the cell's own.
        entry: the product of its own node; None if that failed.
        measure: times the product; None without a limit on latency.
        explain: describes an error: an unwritable path is a failure of this cell only.
        lock: receives the files that are about to be delivered and may refuse them.
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
        at=cell.line and cell.line.record,
    )
    if entry is None:
        verdict = record.run.artifacts[0].report.verdict if record.run is not None else record.status
        return found.model_copy(update={"verdict": verdict})
    try:
        artifact = entry.report.artifacts[0]
        worth = measure() if measure is not None else None
        limits = check_limits(cell.limits, artifact, worth)
        judged = {
            "limits": limits,
            "latency": worth.latency if worth is not None else None,
            "verdict": verdict_of(limits, artifact.report.verdict),
        }
        if reason := reason_of(limits):
            return found.model_copy(update=judged | {"reason": reason, "exit_code": NOT_EQUIVALENT})
        deliver(entry, cell.output, partial(lock, cell))
        return found.model_copy(update=judged | {"path": str(cell.output)})
    except Exception as error:
        failure = explain(error)
        return found.model_copy(
            update={"verdict": "failed", "reason": failure.message, "exit_code": failure.exit_code}
        )


def deliver(entry: Entry, output: Path, lock: Callable[[Artifact], None] = lambda artifact: None) -> None:
    """Copy the product to `output`, completely or not at all; identical files there stay untouched.

    `lock` receives the files that are about to be delivered and may refuse them.

    Raises:
        UsageError, MachineError: `output` is impossible, or cannot be written.
    """
    with writing(output, "output"):
        output.parent.mkdir(parents=True, exist_ok=True)
    source = entry.artifact
    try:
        with Staging(output, "output", folder=source.is_folder) as staging:
            reads.wrote(_existing(source, output))  # before they are compared
            if _is_there(source, output):
                return lock(source)
            if source.is_folder:
                lock(source)
                place = staging.folder / output.name
                with writing(output, "output"):
                    shutil.copytree(source.path, place, copy_function=copy_file)
                staging.commit_folder(place, output)
                reads.wrote(_existing(source, output))
            else:
                copy = _copy(source, staging.folder, output)
                lock(copy)
                staging.commit(moves(copy, output))
                reads.wrote(_existing(copy, output))
    finally:
        Staging.settled = False  # further products follow: Ctrl-C may still stop the run


def _existing(artifact: Artifact, output: Path) -> Iterator[Path]:
    """Return the files that `artifact` has at `output` as far as they exist, and of a folder all that is in it."""
    places = [output, *output.rglob("*")] if artifact.is_folder else moves(artifact, output).values()
    return (place for place in places if place.exists())


def _copy(source: Artifact, folder: Path, output: Path) -> Artifact:
    """Copy the product to `folder`, under its final name if its files name each other."""
    with writing(output, "output"):
        for file in source.files:
            copy_file(file, folder / file.name)
    companions = tuple(folder / file.name for file in source.companions)
    copy = Artifact(folder / source.path.name, source.format, companions)
    if copy.format == "onnx" and companions:
        from onnxport.formats.model import rename

        return rename(copy, output.name)
    return copy


def _is_there(source: Artifact, output: Path) -> bool:
    """Return whether `output` has the files of `source`; False for an ONNX model whose data file is named in it."""
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
    """Compare two files in larger blocks than filecmp, which takes three times as long."""
    if not place.is_file() or place.stat().st_size != file.stat().st_size:
        return False
    with file.open("rb", buffering=0) as one, place.open("rb", buffering=0) as other:
        while True:
            piece = one.read(_PIECE)
            if piece != other.read(_PIECE):
                return False
            if not piece:
                return True
