"""The lock in a run: asked before anything is made, held to what comes out, and brought up to date behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxport.core.errors import NotProvenError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.cache import Entry
from onnxport.pipelines.config.pipeline import Cell, Node, Pipeline
from onnxport.pipelines.lock.differences import Comparison, check_frozen
from onnxport.pipelines.lock.entries import (
    LockedArtefact,
    LockedFiles,
    LockedStage,
    source_of,
    stage_of,
    with_code,
)
from onnxport.pipelines.lock.file import Lock, lock_of, place_of, update
from onnxport.validate.report import RIGHT


class LockGuard:
    """Keeps the lock of one run.

    Args:
        cells: those that are asked for.
        frozen: whether all has to be as the lock says, which is then not written.

    Raises:
        UsageError: the lock is damaged; or `frozen`, and there is none or something differs.
    """

    def __init__(self, pipeline: Pipeline, cells: Sequence[Cell], *, frozen: bool) -> None:
        self._pipeline, self._made = pipeline, dict[str, LockedArtefact]()
        lock = Lock.read(lock_of(pipeline.path))  # what is damaged is refused before anything runs
        self._frozen: Lock | None = None
        if frozen:
            if lock is None:
                path = lock_of(pipeline.path)
                raise UsageError(
                    f"--frozen needs {path}, which does not exist",
                    fix=f"run without --frozen once, and commit {path.name}",
                )
            check_frozen(Comparison(pipeline, lock), cells)
            self._frozen = lock

    def record(self, cell: Cell, artifact: Artifact, entries: Mapping[str, Entry]) -> LockedFiles:
        """Notes what is about to be delivered, and gives its bytes.

        Args:
            artifact: as it will be at the cell's output, wherever it is now.
            entries: products by node.

        Raises:
            NotProvenError: the run is frozen and this is not what the lock says, or unproven.
        """
        entry = entries[cell.node.name]
        locked = LockedArtefact(
            model=cell.model,
            target=cell.target,
            matrix=dict(cell.values),
            source=source_of(cell.node.model, self._pipeline.folder),
            verdict=entry.report.artifacts[0].report.verdict,
            made=LockedFiles.of(artifact, cell.output),
            stages=tuple(self._stage(node, entries[node.name]) for node in cell.node.chain),
        )
        place = place_of(cell, self._pipeline)
        if self._frozen is not None:
            _check(cell.output, locked, self._frozen.artefacts[place])
        self._made[place] = locked
        return locked.made

    def _stage(self, node: Node, entry: Entry) -> LockedStage:
        stage = stage_of(node, entry.inputs, entry.digest)
        return with_code(stage, entry.report.consulted, self._pipeline.folder)

    def close(self) -> None:
        """Writes what was noted, unless the run is frozen.

        Raises:
            UsageError: the lock was damaged meanwhile.
            MachineError: it cannot be written.
        """
        if self._frozen is None:
            update(self._pipeline, self._made)


def _check(output: Path, now: LockedArtefact, before: LockedArtefact) -> None:
    if now.verdict not in RIGHT:
        raise NotProvenError(
            f"{output} is {now.verdict}, and --frozen delivers what is proven or measured only"
        )
    if now.made.digest == before.made.digest:
        return
    pairs = zip(before.stages, now.stages, strict=True)
    first = next((stage.name for was, stage in pairs if was.product != stage.product), "its delivery")
    raise NotProvenError(
        f"{output} has other bytes than the lock says, {before.made.digest[:12]} -> {now.made.digest[:12]}",
        why=f"{first} gave something else from the same inputs, as on another kind of CPU or with another build "
        "of a library",
        fix="it was not delivered; make it on a machine like the one that made the lock, or run without --frozen",
    )
