"""Describes the differences between a pipeline and its lock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from onnxport.core.errors import UsageError, printable
from onnxport.core.urls import is_url, shown
from onnxport.core.user_modules import import_from
from onnxport.pipelines.config.pipeline import Cell, Node, Pipeline
from onnxport.pipelines.graph.cache_keys import inputs_of
from onnxport.pipelines.graph.digests import digest_of_model, find_change
from onnxport.pipelines.lock.entries import (
    CODE,
    LockedStage,
    code_in,
    default_of,
    params_of,
    source_of,
    stage_of,
)
from onnxport.pipelines.lock.file import Lock, place_of
from onnxport.reports.phrases import name_list
from onnxport.validate.report import RIGHT

_SHOWN = 12  # of a digest's 64 digits
_MOST = 3  # artefacts that are named behind a difference


@dataclass(frozen=True)
class Difference:
    """One difference from the lock: `said` is what differs, before -> now; `artefact` is a path.

    The kind is "artefact", "chain", "source", "files", "option", "version" or "proof"; "url" where a URL has other
    content.
    """

    kind: str
    said: str
    artefact: str


class FrozenError(UsageError):
    """A pipeline differs from its lock; `rows` describe the differences."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", rows: Sequence[str] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.rows = tuple(rows)

    def __str__(self) -> str:
        return "\n".join([f"{self.what}:", *(printable(f"  {row}") for row in self.rows), self.fix])


def check_frozen(comparison: Comparison, cells: Sequence[Cell]) -> None:
    """Refuse a run of `cells` that differs from the lock, which has no others if these are all (FrozenError)."""
    found = [each for cell in cells for each in comparison.of(cell)]
    if len(cells) == len(comparison.pipeline.cells):
        found += comparison.removed()
    if not found:
        return
    lock, rows = comparison.lock.path, _rows(found)
    count = "one thing differs" if len(rows) == 1 else f"{len(rows)} things differ"
    fix = f"undo the change, or run without --frozen, review {lock.name} and commit it"
    raise FrozenError(f"{count} from {lock}", rows=rows, fix=fix)


def check_urls(comparison: Comparison, cells: Sequence[Cell]) -> None:
    """Refuse a run of `cells` whose URLs have other content than the lock says (FrozenError)."""
    found = [each for cell in cells for each in comparison.of(cell) if each.kind == "url"]
    if found:
        what = f"a URL has other content than {comparison.lock.path} says"
        fix = "if the new content is right, run once with --update-sources and commit the lock"
        raise FrozenError(what, rows=_rows(found), fix=fix)


@dataclass
class Comparison:
    """Compares what the artefacts of a pipeline depend on now with their lock."""

    pipeline: Pipeline
    lock: Lock
    _digests: dict[str, str] = field(default_factory=dict)
    _stages: dict[tuple[str, str], LockedStage] = field(default_factory=dict)

    def of(self, cell: Cell) -> Iterator[Difference]:
        """Return the differences of one artefact; InputError if a file is missing or unreadable."""
        place = place_of(cell, self.pipeline)
        locked = self.lock.artefacts.get(place)
        if locked is None:
            yield Difference("artefact", self._unknown(cell), place)
            return
        if locked.verdict not in RIGHT:
            said = f"verdict {locked.verdict}: --frozen accepts only proven or measured artefacts"
            yield Difference("proof", said, place)
        before = {stage.name: stage for stage in locked.stages}
        chain = cell.node.chain
        was, now = (" > ".join(names) for names in (before, [node.name for node in chain]))
        if was != now:
            yield Difference("chain", f"targets.{cell.target}: stages {was} -> {now}", place)
        for node in chain:
            if node.name in before:
                stage = self._stage(node, before)
                for kind, said in _stage_differences(before[node.name], stage, Spelling(node, self.pipeline)):
                    yield Difference(kind, said, place)

    def removed(self) -> Iterator[Difference]:
        """Return the artefacts of the lock that the file no longer has."""
        wanted = {place_of(cell, self.pipeline) for cell in self.pipeline.cells}
        names = {cell.name for cell in self.pipeline.cells}
        for place, locked in self.lock.artefacts.items():
            if place not in wanted and locked.name not in names:
                yield Difference("artefact", f"in the lock, not in {self.pipeline.path}", place)

    def _unknown(self, cell: Cell) -> str:
        former = [place for place, each in self.lock.artefacts.items() if each.name == cell.name]
        if len(former) == 1:
            return f"targets.{cell.target}.output: {former[0]} -> {place_of(cell, self.pipeline)}"
        return f"in {self.pipeline.path}, not in the lock"

    def _stage(self, node: Node, before: Mapping[str, LockedStage]) -> LockedStage:
        """Return what the product of `node` depends on now, given the locked products before it."""
        made = tuple(before[each.name].product if each.name in before else "" for each in node.chain[:-1])
        origin = self._origin(node, before)
        known = self._stages.get((node.name, origin))
        if known is None:
            known = stage_of(node, inputs_of(node, origin, made))
            self._stages[node.name, origin] = known
        return known

    def _origin(self, node: Node, before: Mapping[str, LockedStage]) -> str:
        """Return the digest of the model that the product is proven against, or of its export."""
        if node.exported is not None:
            return before[node.exported.name].product if node.exported.name in before else ""
        if node.model.name not in self._digests:
            self._digests[node.model.name] = digest_of_model(node.model.origin)
        return self._digests[node.model.name]


@dataclass(frozen=True)
class Spelling:
    """The names of a node's parts in the pipeline file."""

    node: Node
    pipeline: Pipeline

    @property
    def owner(self) -> str:
        """The section with the options of the node."""
        if self.node.step is None:
            return f"models.{self.node.model.name}.export"
        name = self.node.name.removeprefix(f"{self.node.model.name}/")
        first = name.partition("/")[0]
        # Perhaps of another target with the same node.
        is_of_target = any(cell.target == first for cell in self.pipeline.cells)
        return f"targets.{first}" if is_of_target else f"stages.{name}"

    @property
    def source(self) -> str:
        return source_of(self.node.model, self.pipeline.folder)


_IN_WORDS = {"stage", "source", "options", "proof", CODE}


def _stage_differences(was: LockedStage, now: LockedStage, words: Spelling) -> Iterator[tuple[str, str]]:
    """Return kind and description of each difference between two states of a stage."""
    if was.said["stage"] != now.said["stage"]:
        yield "option", f"{words.owner}: {was.said['stage']} -> {now.said['stage']}"
        return
    if was.said["source"] != now.said["source"]:
        digests = f"{_short(was.said['source'])} -> {_short(now.said['source'])}"
        kind = "url" if is_url(words.source) else "source"
        yield kind, f"{words.source}: the model has changed, {digests}"
    params, proof = params_of(words.node), words.node.validation
    yield from _option_differences(words.owner, params, was.said["options"], now.said["options"])
    if proof is None or "proof" not in was.said:
        if ("proof" in was.said) != (proof is not None):
            yield "proof", f"validate of {words.owner}: " + ("none -> some" if proof else "some -> none")
    else:
        yield from _option_differences("validate", proof, was.said["proof"], now.said["proof"])
    with import_from(words.pipeline.folder):
        found = [find_change(each) for each in code_in(was, words.pipeline.folder)]
    yield from (("files", f"{words.owner}: {said}") for said in found if said)
    for name in sorted((was.said.keys() | now.said.keys()) - _IN_WORDS):
        if was.said.get(name) != now.said.get(name):
            values = f"{show(was.said.get(name))} -> {show(now.said.get(name))}"
            yield "files", f"{words.owner}, {name}: {values}"
    for name in sorted(was.versions.keys() | now.versions.keys()):
        if was.versions.get(name) != now.versions.get(name):
            yield "version", f"{name} {was.versions.get(name, 'none')} -> {now.versions.get(name, 'none')}"


def _option_differences(
    owner: str, params: BaseModel, was: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Return the differences between two sets of options, which leave out default values."""
    for name in sorted(was.keys() | now.keys()):
        if name in was and name in now and was[name] == now[name]:
            continue
        before, after = (each.get(name, default_of(params, name)) for each in (was, now))
        if is_content(before) and is_content(after):
            path = shown(str(getattr(params, name, "")))
            said = f"{owner}.{name}: {path} has changed, {changes(before, after)}"
            yield "url" if is_url(path) else "files", said
        else:
            yield "option", f"{owner}.{name}: {show(before)} -> {show(after)}"


def is_content(value: Any) -> bool:
    """Return whether it is the digest of a file or folder (digests.describe)."""
    return isinstance(value, dict) and "sha256" in value


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    names = [name for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
    return ", ".join(f"{name} {show(was.get(name))} -> {show(now.get(name))}" for name in sorted(names))


def show(value: Any) -> str:
    if isinstance(value, str):
        return _short(value) if len(value) == 64 else value
    return "none" if value is None else json.dumps(value, default=str)


def _short(digest: str) -> str:
    return digest[:_SHOWN]


def _rows(found: Iterable[Difference]) -> list[str]:
    concerned: dict[str, list[str]] = {}
    for each in found:
        if each.artefact not in concerned.setdefault(each.said, []):
            concerned[each.said].append(each.artefact)
    return [f"{said}   {name_list(places, _MOST)}" for said, places in concerned.items()]
