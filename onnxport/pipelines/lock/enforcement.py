"""The lock in a run: checked before it, compared with its products, and updated after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxport.core.errors import NotProvenError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.formats.remote import has_copies
from onnxport.pipelines.cache import Entry
from onnxport.pipelines.config.pipeline import Cell, Pipeline
from onnxport.pipelines.lock.differences import Comparison, check_frozen, check_urls
from onnxport.pipelines.lock.entries import (
    LockedArtefact,
    LockedFiles,
    source_of,
    stage_of,
    with_code,
)
from onnxport.pipelines.lock.file import Lock, lock_of, place_of, update
from onnxport.validate.report import RIGHT


class LockGuard:
    """Checks and updates the lock in one run of `cells`; if `frozen`, everything must match it and it is not written.

    URLs must have the content that the lock says, unless `update_sources`.

    Raises:
        UsageError: the lock is damaged, or a URL has other content; or, if `frozen`, missing or different.
    """

    def __init__(
        self, pipeline: Pipeline, cells: Sequence[Cell], *, frozen: bool, update_sources: bool = False
    ) -> None:
        self._pipeline, self._made = pipeline, dict[str, LockedArtefact]()
        lock = Lock.read(lock_of(pipeline.path))  # a damaged lock is refused before anything runs
        self._frozen: Lock | None = None
        if frozen:
            if lock is None:
                path = lock_of(pipeline.path)
                fix = f"run without --frozen once, and commit {path.name}"
                raise UsageError(f"--frozen needs {path}, which does not exist", fix=fix)
            check_frozen(Comparison(pipeline, lock), cells)
            self._frozen = lock
        elif lock is not None and has_copies() and not update_sources:
            check_urls(Comparison(pipeline, lock), cells)

    @property
    def is_frozen(self) -> bool:
        return self._frozen is not None

    def record(self, cell: Cell, artifact: Artifact, entries: Mapping[str, Entry]) -> LockedFiles:
        """Record a product that is about to be delivered to the cell's output, and return its digests.

        Raises:
            NotProvenError: the run is frozen, and the product differs from the lock or is unproven.
        """
        entry = entries[cell.node.name]
        locked = LockedArtefact(
            model=cell.model,
            target=cell.target,
            matrix=dict(cell.values),
            source=source_of(cell.node.model, self._pipeline.folder),
            verdict=entry.report.artifacts[0].report.verdict,
            made=LockedFiles.of(artifact, cell.output),
            stages=tuple(
                with_code(
                    stage_of(node, made.inputs, made.digest), made.report.consulted, self._pipeline.folder
                )
                for node in cell.node.chain
                for made in [entries[node.name]]
            ),
        )
        place = place_of(cell, self._pipeline)
        if self._frozen is not None:
            _check(cell.output, locked, self._frozen.artefacts[place])
        self._made[place] = locked
        return locked.made

    def close(self) -> None:
        """Write the recorded products to the lock, unless the run is frozen; raises as `update` does."""
        if self._frozen is None:
            update(self._pipeline, self._made)


def _check(output: Path, now: LockedArtefact, before: LockedArtefact) -> None:
    if now.verdict not in RIGHT:
        what = f"{output} is {now.verdict}, but --frozen delivers only proven or measured artefacts"
        raise NotProvenError(what)
    if now.made.digest == before.made.digest:
        return
    pairs = zip(before.stages, now.stages, strict=True)
    first = next((stage.name for was, stage in pairs if was.product != stage.product), "its delivery")
    raise NotProvenError(
        f"the bytes of {output} differ from the lock, {before.made.digest[:12]} -> {now.made.digest[:12]}",
        why=f"{first} returned something else for the same inputs; another CPU or library build can cause this",
        fix="it was not delivered; use a machine like the one that made the lock, or run without --frozen",
    )
