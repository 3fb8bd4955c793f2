"""Plans a run: which nodes are cached, which would be made and why, and the memory and disk they need."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.formats.artifact import Artifact
from onnxport.pipelines.cache.entries import Note
from onnxport.pipelines.cache.store import Cache, EntrySummary
from onnxport.pipelines.config.pipeline import Cell, Node, Pipeline
from onnxport.pipelines.executors.memory import memory_of_stage
from onnxport.pipelines.graph.cache_keys import Inputs, inputs_of, key_of
from onnxport.pipelines.graph.digests import digest_of_model, with_external_data
from onnxport.pipelines.lock.differences import Spelling, changes, is_content, show

PLAN_SCHEMA_VERSION: Literal[1] = 1
# Bytes of weights in these precisions as a share of float32's, scales included.
_SHARES = {
    **dict.fromkeys(("fp16", "bf16", "mixed"), 0.5),
    **dict.fromkeys(("int8", "int16x8", "dynamic", "int8-dynamic", "int8-weights"), 0.27),
    "int4-weights": 0.16,
}
# Core ML's, by the option `weights`.
_PALETTES = {"int8": 0.26, "int4": 0.15, "sparse50": 0.55, "sparse75": 0.3, "sparse90": 0.15} | {
    f"palette{bits}": bits / 32 + 0.01 for bits in (8, 6, 4, 3, 2, 1)
}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedNode(_Record):
    """One stage on one model.

    Attributes:
        why: it would be made; empty if it is cached.
        key: in the cache; empty if it depends on nodes that are not made yet.
        size: bytes of its product; None if unknown.
        size_from: "cache" for the product itself, "earlier" for an earlier product of this node, "estimate" from the
            model's weights and the precision.
        memory: estimated bytes to make it; 0 if it is cached.
    """

    name: str
    model: str
    stage: str
    after: str
    status: Literal["cached", "would run"]
    why: str = ""
    key: str = ""
    size: int | None = None
    size_from: Literal["cache", "earlier", "estimate", ""] = ""
    memory: int = 0


class PlannedCell(_Record):
    """One artefact: its path, and whether something is there."""

    name: str
    node: str
    path: str
    is_there: bool
    size: int | None
    size_from: str


class Plan(_Record):
    """The plan of a run.

    Attributes:
        cache: the folder of products.
        memory: estimated bytes of the largest node that would run; for each of --jobs.
        disk: bytes that would be added to the cache and to the artefacts' paths, as far as sizes are known.
        free: bytes left on the disk of the cache; None if unknown.
    """

    schema_version: Literal[1] = PLAN_SCHEMA_VERSION
    command: str = "plan"
    file: str
    cache: str
    nodes: tuple[PlannedNode, ...]
    cells: tuple[PlannedCell, ...]
    memory: int
    disk: int
    free: int | None
    exit_code: int = 0


@dataclass
class Planner:
    """Plans a run of `cells`."""

    pipeline: Pipeline
    cells: Sequence[Cell]
    cache: Cache
    nodes: dict[str, PlannedNode] = field(default_factory=dict)
    _notes: dict[str, Note] = field(default_factory=dict)

    def plan(self) -> Plan:
        """Return the plan; InputError if a named file is missing or unreadable."""
        earlier = [each for each in self.cache.kept() if each.note is not None]
        wanted = {id(node) for cell in self.cells for node in cell.node.chain}
        for node in self.pipeline.nodes:
            if id(node) in wanted:
                self.nodes[node.name] = self._plan_node(node, earlier)
        made = [node for node in self.nodes.values() if node.status == "would run"]
        cells = tuple(self._cell(cell) for cell in self.cells)
        return Plan(
            file=str(self.pipeline.path),
            cache=str(self.cache.folder),
            nodes=tuple(self.nodes.values()),
            cells=cells,
            memory=max((node.memory for node in made), default=0),
            disk=sum(node.size or 0 for node in made)
            + sum(cell.size or 0 for cell in cells if not cell.is_there),
            free=_free(self.cache.folder),
        )

    def _plan_node(self, node: Node, earlier: Sequence[EntrySummary]) -> PlannedNode:
        blocker = next((each for each in node.chain[:-1] if each.name not in self._notes), None)
        key, why = "", ""
        inputs: Inputs | None = None
        if blocker is None:
            made = tuple(self._notes[each.name].digest for each in node.chain[:-1])
            exported = node.exported
            origin = (
                digest_of_model(node.model.origin) if exported is None else self._notes[exported.name].digest
            )
            inputs = inputs_of(node, origin, made)
            key = key_of(inputs)
            note, why = self.cache.look(key)
            if note is not None:
                self._notes[node.name] = note
                found = note.report.artifacts[0].size
                return self._record(node, status="cached", key=key, size=found, size_from="cache")
        own = [each.note for each in earlier if each.note is not None and each.note.node == node.name]
        if blocker is not None:
            why = f"{blocker.name} would run before"
        elif not why and inputs is not None:
            # The difference from the most similar cached product of this node.
            words = Spelling(node, self.pipeline)
            all_differences = [tuple(_differences(words, each.inputs, inputs)) for each in own]
            fewest: tuple[str, ...] = min(all_differences, key=len) if own else ()
            why = "; ".join(fewest) or "it is new"
        size, size_from = self._size(node, own)
        return self._record(
            node,
            status="would run",
            why=why,
            key=key,
            size=size,
            size_from=size_from,
            memory=memory_of_stage(node.stage, _weights(node) or 0),
        )

    def _size(self, node: Node, own: Sequence[Note]) -> tuple[int | None, str]:
        if own:
            return own[-1].report.artifacts[0].size, "earlier"
        weights = _weights(node)
        if not weights:
            return None, ""
        share = min((_share(each) for each in node.chain), default=1.0)
        return round(weights * share), "estimate"

    def _record(self, node: Node, **facts: Any) -> PlannedNode:
        after = node.after.name if node.after else ""
        return PlannedNode(name=node.name, model=node.model.name, stage=node.stage, after=after, **facts)

    def _cell(self, cell: Cell) -> PlannedCell:
        node = self.nodes[cell.node.name]
        return PlannedCell(
            name=cell.name,
            node=node.name,
            path=str(cell.output),
            is_there=cell.output.exists(),
            size=node.size,
            size_from=node.size_from,
        )


def _differences(words: Spelling, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if was.get("stage") != now["stage"]:
        yield f"{words.owner}: {was.get('stage')} -> {now['stage']}"
        return
    if was.get("source") != now["source"]:
        yield f"{words.source}: the model has changed"
    if was.get("before") != now["before"]:
        before = words.node.after
        yield f"the product of {before.name} has changed" if before is not None else "its chain"
    yield from _options(words.owner, was.get("params"), now["params"])
    if (was.get("proof") is None) != (now["proof"] is None):
        yield f"validate of {words.owner}: " + ("some -> none" if now["proof"] is None else "none -> some")
    else:
        yield from _options("validate", was.get("proof"), now["proof"])
    versions: tuple[Mapping[str, str], ...] = (was.get("versions") or {}, now["versions"])
    for name in sorted(versions[0].keys() | versions[1].keys()):
        old, new = (each.get(name, "none") for each in versions)
        if old != new:
            yield "onnxport's own code has changed" if name == "sources" else f"{name} {old} -> {new}"
    known = {"stage", "source", "before", "params", "proof", "versions"}
    for name in sorted((was.keys() | now.keys()) - known):
        if was.get(name) != now.get(name):
            yield f"{name}: {show(was.get(name))} -> {show(now.get(name))}"


def _options(owner: str, was: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    was, now = was or {}, now or {}
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if before == after:
            continue
        if before is not None and after is not None and is_content(before) and is_content(after):
            yield f"{owner}.{name} has changed: {changes(before, after)}"
        else:
            yield f"{owner}.{name}: {show(before)} -> {show(after)}"


def _weights(node: Node) -> int | None:
    """Return the bytes of the source model; None if only its code defines it."""
    origin = node.model.origin
    return (with_external_data(origin).size if isinstance(origin, Artifact) else origin.size) or None


def _share(node: Node) -> float:
    """Return the size of a stage's product as a share of the float32 model's."""
    params = node.step.params if node.step is not None else None
    if getattr(params, "fp16", False):
        return _SHARES["fp16"]
    palette = _PALETTES.get(getattr(params, "weights", None) or "", 1.0)
    return min(palette, _SHARES.get(getattr(params, "precision", None) or "", 1.0))


def _free(folder: Path) -> int | None:
    near = next((place for place in (folder, *folder.absolute().parents) if place.exists()), None)
    with contextlib.suppress(OSError):
        return None if near is None else shutil.disk_usage(near).free
    return None
