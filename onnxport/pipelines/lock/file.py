"""The lock on disk: its path, reading, and updates by runs that may end at the same time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from onnxport.core import limits, reads
from onnxport.core.errors import InputError, UsageError
from onnxport.core.regular_file import NotRegularError, TooLargeError, read_regular
from onnxport.formats.artifact import Staging, writing
from onnxport.pipelines.config.pipeline import Cell, Pipeline
from onnxport.pipelines.lock.entries import LockedArtefact, LockedFiles, LockedStage, relative

FORM: Literal[1] = 1
# The key that marks our locks, and the version of their form.
MARK = "onnxport_lock"
_HEAD = """\
# Written by onnxport run: what each artefact was made from, and its bytes. Commit it with {pipeline}; do not edit it.
"""
ANEW = "restore it from version control, or delete it: a run without --frozen writes it anew"

# The suffix of a stage with several states.
_STATE = re.compile("@[0-9a-f]{12}$")

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _OnOneLine(list[str]):
    """A list written in brackets."""


class _Dumper(yaml.SafeDumper):
    """Writes no anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _FastDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The same by libyaml, where PyYAML has it: a third of the time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _each in (_Dumper, _FastDumper):
    _each.add_representer(
        _OnOneLine,
        lambda dumper, each: dumper.represent_sequence("tag:yaml.org,2002:seq", each, flow_style=True),
    )

# What libyaml writes otherwise than PyYAML: characters beyond 16 bits, U+0085, and empty keys.
_OTHERWISE = re.compile(r"\\[UN]|^ *'':", re.MULTILINE)
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Levels of a lock. Deeper ones cost libyaml the square of their number, and its binding the process.
_DEEPEST = 50


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class StageForm(_Section):
    """A stage on a model: what its product followed from, options and proof where they are not the default."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, defer_build=True)

    stage: str
    source: Digest = Field(description="SHA-256 of the model that the product is proven against.")
    options: dict[str, Any] = Field(default={}, description="With SHA-256 for the files that they name.")
    proof: dict[str, Any] | None = Field(
        default=None, description="Its options; absent where there was none."
    )
    needs: list[str] = Field(description="What its versions are of.")
    versions: dict[str, str] = Field(default={}, description="Those that are not the ones at the head.")
    product: Digest = Field(description="SHA-256 of the names and contents of the files that it made.")


class ArtefactForm(_Section):
    """An artefact."""

    model: str
    target: str
    matrix: dict[str, str] = {}
    source: str = Field(description="The model's path from here, or package.module:function.")
    verdict: str
    size: int = Field(ge=0, description="Bytes.")
    digest: Digest = Field(description="SHA-256 of the names and contents of its files.")
    files: dict[str, Digest] = Field(min_length=1, description="SHA-256 of each.")
    stages: list[str] = Field(min_length=1, description="Those that made it, from the model on.")


class LockForm(_Section):
    """A pipeline.lock."""

    onnxport_lock: Literal[1] = Field(description="The version of this form.")
    pipeline: str = Field(description="The name of the pipeline's file, which lies beside it.")
    versions: dict[str, str] = Field(default={}, description="Of Python, the platform and the libraries.")
    artefacts: dict[str, ArtefactForm] = Field(default={}, description="By their path from here.")
    stages: dict[str, StageForm] = Field(default={}, description="By model and name.")


def schema() -> str:
    """Return the JSON Schema of the lock, docs/schema/pipeline-lock.schema.json."""
    head = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"urn:onnxport:schema:pipeline-lock:{FORM}",
        "title": "Lock of an onnxport pipeline",
    }
    return json.dumps({**LockForm.model_json_schema(), **head}, indent=2) + "\n"


def text_of(pipeline: str, artefacts: Mapping[str, LockedArtefact]) -> str:
    """Return the content of the lock of the file `pipeline`, with `artefacts` by their path from its folder."""
    stages = {id(stage): stage for each in artefacts.values() for stage in each.stages}.values()
    names, versions = _names(stages), _common_versions(stages)
    content = {
        MARK: FORM,
        "pipeline": pipeline,
        "versions": versions,
        "artefacts": {place: _artefact(artefacts[place], names) for place in sorted(artefacts)},
        "stages": dict(sorted((names[_state(stage)], _stage(stage, versions)) for stage in stages)),
    }
    return _HEAD.format(pipeline=pipeline) + written(content)


def written(content: Mapping[str, Any]) -> str:
    """Return YAML with the same bytes on every machine, with libyaml or without."""
    # A digest is wider than YAML's lines.
    settings: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1000}
    with contextlib.suppress(UnicodeEncodeError):  # a file's name that is no text
        found: str = yaml.dump(content, Dumper=_FastDumper, **settings)
        if not _OTHERWISE.search(found):
            return found
    slow: str = yaml.dump(content, Dumper=_Dumper, **settings)
    return slow


def parse(path: Path, text: str) -> dict[str, LockedArtefact]:
    """Return the artefacts of a lock, by their path from its folder; UsageError with the line if it is damaged."""
    lines: dict[tuple[str | int, ...], int] = {}
    try:
        _check_events(text, path)
        loader = _FastLoader(text)
        root = loader.get_single_node()
        if root is not None:
            for place, line in _lines(root, ()):
                if lines.setdefault(place, line) != line:
                    raise UsageError(f"{path}:{line} is damaged: the key {place[-1]} occurs twice", fix=ANEW)
        data = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        why = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UsageError(f"{where} is damaged: it is not valid YAML", why=why, fix=ANEW) from error
    if not isinstance(data, dict) or MARK not in data:
        raise UsageError(f"{path} is not an onnxport lock", why=f"it has no key {MARK}", fix=ANEW)
    if data[MARK] != FORM:
        raise UsageError(
            f"{path}:{lines[(MARK,)]}, {MARK}: the lock is of version {data[MARK]!r}, this onnxport knows {FORM}",
            fix=f"use the onnxport that wrote it, or {ANEW}",
        )
    try:
        return _artefacts(path, LockForm.model_validate(data), lines)
    except ValidationError as error:
        refusal = error.errors(include_url=False)[0]
        place = tuple(refusal["loc"])
        raise UsageError(f"{_where(path, place, lines)} is damaged: {refusal['msg']}", fix=ANEW) from None


def _artefacts(
    path: Path, form: LockForm, lines: Mapping[tuple[str | int, ...], int]
) -> dict[str, LockedArtefact]:
    stages = {}
    for name, stage in form.stages.items():
        said = {"stage": stage.stage, "source": stage.source, "options": stage.options}
        said |= {**(stage.model_extra or {}), **({} if stage.proof is None else {"proof": stage.proof})}
        known = {**form.versions, **stage.versions}
        needed = {each: known[each] for each in stage.needs if each in known}
        stages[name] = LockedStage(_STATE.sub("", name), said, needed, stage.product)
    found = {}
    for place, each in form.artefacts.items():
        for number, name in enumerate(each.stages):
            if name not in stages:
                where = _where(path, ("artefacts", place, "stages", number), lines)
                raise UsageError(f"{where} is damaged: it has no stage {name!r}", fix=ANEW)
        made = LockedFiles(each.files, each.digest, each.size)
        chain = tuple(stages[name] for name in each.stages)
        found[place] = LockedArtefact(
            each.model, each.target, each.matrix, each.source, each.verdict, made, chain
        )
    return found


def _artefact(each: LockedArtefact, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "model": each.model,
        "target": each.target,
        **({"matrix": dict(each.matrix)} if each.matrix else {}),
        "source": each.source,
        "verdict": each.verdict,
        "size": each.made.size,
        "digest": each.made.digest,
        "files": dict(each.made.files),
        "stages": [names[_state(stage)] for stage in each.stages],
    }


def _stage(stage: LockedStage, agreed: Mapping[str, str]) -> dict[str, Any]:
    first = {key: stage.said[key] for key in ("stage", "source", "options", "proof") if key in stage.said}
    own = {name: text for name, text in stage.versions.items() if name not in agreed}
    return {
        **first,
        **{key: stage.said[key] for key in sorted(stage.said.keys() - first.keys())},
        "needs": _OnOneLine(sorted(stage.versions)),
        **({"versions": dict(sorted(own.items()))} if own else {}),
        "product": stage.product,
    }


def _names(stages: Iterable[LockedStage]) -> dict[str, str]:
    """Return the name of each state of a stage: its node's, unless the node has several states."""
    states: dict[str, set[str]] = {}
    for stage in stages:
        states.setdefault(stage.name, set()).add(_state(stage))
    return {
        state: name if len(found) == 1 else f"{name}@{state[:12]}"
        for name, found in states.items()
        for state in found
    }


def _common_versions(stages: Iterable[LockedStage]) -> dict[str, str]:
    """Return the versions that are the same in all stages that need them."""
    found: dict[str, set[str]] = {}
    for stage in stages:
        for name, text in stage.versions.items():
            found.setdefault(name, set()).add(text)
    return {name: next(iter(texts)) for name, texts in sorted(found.items()) if len(texts) == 1}


def _state(stage: LockedStage) -> str:
    content = (stage.name, stage.said, stage.versions, stage.product)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _too_large(path: Path, size: int) -> UsageError:
    why = f"it is larger than {limits.limit('lock-bytes'):,} bytes"  # those of thousands of artefacts
    return UsageError(f"{path} is not a lock", why=why, fix=f"{ANEW}; {limits.advice('lock-bytes', size)}")


def _check_events(text: str, path: Path) -> None:
    """Refuse what no lock of ours has, before its nodes are made.

    These are aliases, a few lines of which can stand for more than any memory holds, and deep nesting.
    """
    anchors: dict[str, int] = {}
    depth = 0
    events: Iterator[Any] = yaml.parse(text, Loader=_FastLoader)
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            where = f"{path}:{anchors.get(str(event.anchor), line)}"
            raise UsageError(f"{where} is damaged: it has an alias of what begins here", fix=ANEW)
        if getattr(event, "anchor", None):
            anchors[event.anchor] = line
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise UsageError(f"{path}:{line} is damaged: it is nested too deeply", fix=ANEW)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _lines(node: yaml.Node, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Return the line, from 1, of every key and item."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*place, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*place, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*place, number), item.start_mark.line + 1
            yield from _lines(item, (*place, number))


def _where(path: Path, place: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]) -> str:
    line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    return f"{path}{f':{line}' if line else ''}, {' > '.join(map(str, place)) or 'the file'}"


SUFFIX = ".lock"


@dataclass(frozen=True)
class Lock:
    """The content of a lock: artefacts by their path from its folder."""

    path: Path
    artefacts: Mapping[str, LockedArtefact]

    @classmethod
    def read(cls, path: Path) -> Lock | None:
        """Read the lock at `path`; None if there is no file.

        Raises:
            UsageError, InputError: it is damaged or of another version, or it cannot be read.
        """
        try:
            reads.note(path)
            text = read_regular(path, limits.limit("lock-bytes")).decode()
        except FileNotFoundError:
            return None
        except TooLargeError as error:
            raise _too_large(path, error.size) from None
        except NotRegularError as error:
            raise InputError(f"{path} cannot be read", why=str(error)) from None
        except UnicodeDecodeError:
            text = "\0"  # which YAML refuses
        except OSError as error:
            raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error
        return cls(path, parse(path, text))


def lock_of(pipeline: Path) -> Path:
    """Return the path of the lock of a pipeline's file."""
    return pipeline.with_suffix(SUFFIX)


def place_of(cell: Cell, pipeline: Pipeline) -> str:
    """Return the key of a cell's artefact in the lock."""
    return relative(cell.output, pipeline.folder)


def update(pipeline: Pipeline, made: Mapping[str, LockedArtefact]) -> None:
    """Write `made` to the pipeline's lock, and keep the entries of other artefacts of the file.

    Raises:
        UsageError, MachineError: the lock that is there is damaged, or cannot be written.
    """
    path = lock_of(pipeline.path)
    wanted = {place_of(cell, pipeline) for cell in pipeline.cells}
    with writing(path, "the pipeline"), _exclusive(path.parent):
        before = Lock.read(path)
        kept = {} if before is None else before.artefacts
        artefacts = {place: each for place, each in {**kept, **made}.items() if place in wanted}
        text = text_of(pipeline.path.name, artefacts)
        if (before is None and not artefacts) or (before is not None and path.read_bytes() == text.encode()):
            return
        with Staging(path, "the pipeline") as staging:
            staged = staging.folder / path.name
            staged.write_text(text, encoding="utf-8", newline="\n")
            staging.commit({staged: path})
            reads.wrote([path])
            Staging.settled = False  # Ctrl-C may still stop what follows


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Make other runs that update a lock in `folder` wait; on systems without flock the last one wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a network's file system may lock no folder
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
