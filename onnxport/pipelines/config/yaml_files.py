"""Reads YAML files into a Document with the line of every key.

Duplicate keys, tags that create objects and exploding aliases are refused. `include` adds whole entries of other files
below the pipeline's folder; the including file replaces them by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import yaml

from onnxport.core import limits, reads
from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.core.missing_paths import missing_path
from onnxport.core.regular_file import NotRegularError, OutsideError, TooLargeError, read_regular
from onnxport.pipelines.config.document import Document, Line, Place, raise_all, show, spell
from onnxport.pipelines.config.scalars import MERGE, CoreLoader, is_text, short_tag, value_of

_CONTAINERS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
# Sections that an including file extends entry by entry; any other key is replaced as a whole.
_BY_NAME = ("models", "stages", "targets", "validate")


def load(path: Path) -> Document:
    """Read `path` with the files that it includes.

    Raises:
        InputError: missing or unreadable.
        UsageError, BadPipelineError: no YAML, or YAML that no pipeline may have.
    """
    return _include_files(_compose(path), path.parent, (path.resolve(),))


def _compose(path: Path, within: Path | None = None) -> Document:
    """Read one file, which has to lie in the folder `within`."""
    text = _text(path, within)
    composer = _Composer(path)
    try:
        root = yaml.compose(text, Loader=CoreLoader)
        data = None if root is None else composer.value(root, ())
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(path, text, error) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(
            f"{path}:{line} is not valid YAML", why=f"a character {error.character:#04x}"
        ) from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply for a pipeline") from None
    if root is None:
        raise UsageError(f"{path} is empty", fix="begin it with version: 1")
    raise_all(str(path), composer.faults)
    if not isinstance(data, dict):
        where = f"{path}:{root.start_mark.line + 1}"
        raise UsageError(f"{where}: {show(data)} where keys are expected", fix="begin with version: 1")
    return Document(path, data, composer.lines)


def _text(path: Path, within: Path | None) -> str:
    try:
        reads.note(path)
        content = read_regular(path, limits.limit("yaml-bytes"), within)
    except IsADirectoryError:
        raise InputError(f"{path} is a directory", fix="give the pipeline.yaml in it") from None
    except NotRegularError:
        raise InputError(f"{path} is not a regular file", fix="give a pipeline.yaml") from None
    except TooLargeError as error:
        why = f"it is larger than {limits.limit('yaml-bytes'):,} bytes"
        fix = limits.advice("yaml-bytes", error.size)
        raise UsageError(f"{path} is not a pipeline", why=why, fix=fix) from None
    except OutsideError:
        raise UsageError(f"{path} lies outside of the pipeline's folder", fix="copy it there") from None
    except (FileNotFoundError, NotADirectoryError):
        raise missing_path(path, fix="write one with: onnxport init") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} cannot be read", why=why) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line} is not UTF-8", fix="save the file as UTF-8") from None


_IN_QUOTES = "while scanning a quoted scalar"
# PyYAML's most frequent messages, with the way out.
_MENDED = {
    "found unexpected end of stream": "close the quotes",
    "found unexpected document separator": "close the quotes",
    "but found another document": "keep one, without ---",
    "could not find expected ':'": "write KEY: VALUE",
    "mapping values are not allowed here": "put text with a colon in quotes, indent keys of one mapping alike",
    "expected <block end>, but found '<block mapping start>'": "indent keys of one mapping alike",
}


def _yaml_error(path: Path, text: str, error: yaml.MarkedYAMLError) -> UsageError:
    mark = error.problem_mark or error.context_mark
    if error.context == _IN_QUOTES:  # where they begin, not where the file ends
        mark = error.context_mark
    line = next(iter(text.splitlines()[mark.line :]), "") if mark else ""
    problem = " ".join((error.problem or "").split())
    fix = _MENDED.get(problem, "")
    if "\\t" in problem:
        fix = "indent with spaces"
    elif "${" in line:
        fix = 'between { } or [ ] write a variable in quotes: "${NAME}"'
    where = f"{path}:{mark.line + 1}" if mark else str(path)
    return UsageError(f"{where} is not valid YAML", why=problem.removeprefix("but "), fix=fix)


@dataclass
class _Composer:
    """Converts the nodes of one file to values."""

    path: Path
    lines: dict[Place, Line] = field(default_factory=dict)
    faults: list[OnnxportError] = field(default_factory=list)
    _count: int = 0
    _most: int = field(default_factory=partial(limits.limit, "yaml-values"))  # with aliases expanded
    _deepest: int = field(default_factory=partial(limits.limit, "yaml-depth"))

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._count += 1
        if self._count > self._most or len(place) > self._deepest:
            name = "yaml-values" if self._count > self._most else "yaml-depth"
            raise UsageError(
                f"{self.path}:{node.start_mark.line + 1}: too large for a pipeline, with all aliases expanded",
                why=f"at most {self._most} values are allowed, nested at most {self._deepest} deep",
                fix=limits.advice(name, 2 * limits.limit(name)),
            )
        self.lines.setdefault(place, Line(self.path, node.start_mark.line + 1))
        if isinstance(node, yaml.ScalarNode):
            try:
                return value_of(node)
            except OnnxportError as error:
                return self._fault(node, place, error)
        if node.tag not in _CONTAINERS:
            what = f"the tag {short_tag(node.tag)} is not in YAML's core schema"
            return self._fault(node, place, UsageError(what, fix="leave it out"))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, number)) for number, item in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for merged in reversed(list(self._merge_values(node, place))):
            values |= self._mapping(merged, place)
        own: set[str] = set()
        for key_node, value_node in node.value:
            if key_node.tag == MERGE or (key := self._key(key_node, place)) is None:
                continue
            if key in own:
                what = f"repeats the key of line {self.lines[(*place, key)].number}"
                self._fault(key_node, (*place, key), UsageError(what, fix="keep one"))
                continue
            if value_node.start_mark.index == key_node.end_mark.index:  # {shape: image=1,3,8,8}
                fix = "write KEY: VALUE; a value with commas goes into quotes"
                self._fault(key_node, (*place, key), UsageError("has no value", fix=fix))
                continue
            own.add(key)
            self.lines[(*place, key)] = Line(self.path, key_node.start_mark.line + 1)
            values[key] = self.value(value_node, (*place, key))
        return values

    def _key(self, node: yaml.Node, place: Place) -> str | None:
        """Return a key as written: the inputs of many models have names like 1 or 495."""
        if not isinstance(node, yaml.ScalarNode) or not node.value or not is_text(node.value):
            what = UsageError("a key has to be text", fix="write KEY: VALUE")
        elif "${" in node.value:
            what = UsageError(f"the key {node.value!r} has a variable", fix="use variables in values only")
        else:
            return str(node.value)
        self._fault(node, place, what)
        return None

    def _merge_values(self, node: yaml.MappingNode, place: Place) -> Iterator[yaml.MappingNode]:
        """Return the mappings that `<<` merges in, in order."""
        for key_node, value_node in node.value:
            if key_node.tag != MERGE:
                continue
            found = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for each in found:
                if isinstance(each, yaml.MappingNode):
                    yield each
                else:
                    error = UsageError("<< needs a mapping", fix="write <<: *NAME")
                    self._fault(key_node, (*place, "<<"), error)

    def _fault(self, node: yaml.Node, place: Place, error: OnnxportError) -> None:
        key = f", {spell(place)}" if place else ""
        error.what = f"{self.path}:{node.start_mark.line + 1}{key}: {error.what}"
        self.faults.append(error)


def _include_files(document: Document, folder: Path, way: tuple[Path, ...]) -> Document:
    """Merge `document` over its includes, all below `folder`; `way` is the chain of including files, resolved."""
    given = document.data.get("include")
    rest = {key: value for key, value in document.data.items() if key != "include"}
    names = given if isinstance(given, list) else [] if given is None else [given]
    merged = Document(document.path, {})
    for number, name in enumerate(names):
        where = document.where(("include", number) if isinstance(given, list) else ("include",))
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where}: {show(name)} is not a file", fix="give a path, or a list of several")
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            what = f"{where}: {name} lies outside of the pipeline's folder"
            raise UsageError(what, fix="give a path below that folder")
        file = folder / name
        resolved = file.resolve()
        if not resolved.is_relative_to(folder.resolve()):
            raise UsageError(f"{where}: {name} lies outside of the pipeline's folder", fix="copy it there")
        if resolved in way:
            raise UsageError(f"{where}: {name} includes itself", fix="leave one include out")
        try:
            merged = _merge(_include_files(_compose(file, folder), folder, (*way, resolved)), merged)
        except InputError as error:
            raise InputError(f"{where}: {error.what}", why=error.why) from error
    return _merge(replace(document, data=rest), merged)


def _merge(document: Document, base: Document) -> Document:
    data = dict(base.data)
    lines = dict(base.lines)
    for key, value in document.data.items():
        before = data.get(key)
        if key in _BY_NAME and isinstance(before, dict) and isinstance(value, dict):
            replaced: set[Place] = {(key, name) for name in value}
            data[key] = {**before, **value}
        else:
            replaced = {(key,)}
            data[key] = value
        lines = {place: line for place, line in lines.items() if not {place[:1], place[:2]} & replaced}
    return Document(document.path, data, {**lines, **document.lines})
