"""Scalars of a YAML file, with environment variables filled in.

They follow the core schema of YAML 1.2: `on`, `no`, 1_000 and 12:30 are text. A number keeps its source text, since
`model_version: 1.10` means text.
"""

from __future__ import annotations

import os
import re
from typing import Any, Self

import yaml

from onnxport.core.errors import UsageError
from onnxport.core.reads import note_variable

_PREFIX = "tag:yaml.org,2002:"
_BOOL, _NULL, _INT, _FLOAT, MERGE = (f"{_PREFIX}{kind}" for kind in ("bool", "null", "int", "float", "merge"))
TEXT = f"{_PREFIX}str"
_MOST_DIGITS = 40
_AMBIGUOUS = re.compile(r"[-+]?0[0-9]+")
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<inside>[^{}]*)(?P<end>\}?)", re.DOTALL)
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class _Written:
    """A number with its source text."""

    written: str

    def __str__(self) -> str:
        return self.written


class Whole(_Written, int):
    """An integer with its source text."""

    @classmethod
    def of(cls, text: str) -> Self:
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        number = cls(int(text, base))
        number.written = text
        return number


class Decimal(_Written, float):
    """A float with its source text."""

    @classmethod
    def of(cls, text: str) -> Self:
        number = cls(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1].isalpha() else text)
        number.written = text
        return number


class CoreLoader(yaml.SafeLoader):
    """Parses YAML with the scalars of YAML 1.2's core schema, and `<<`."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own form


for _tag, _pattern, _first in (
    (_BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        _FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    (MERGE, "<<", "<"),
):
    CoreLoader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_first))
_RESOLVER = CoreLoader("")


def value_of(node: yaml.ScalarNode) -> Any:
    """Return the value of a scalar; UsageError for an unset variable, an ambiguous number or a foreign tag."""
    text, tag = node.value, node.tag
    if "${" in text:
        text = substitute(text)
        if node.style is None and text:
            tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    if not is_text(text):
        what = "this has a character that no path or name may have"
        raise UsageError(what, fix="leave out \\0 and \\ud800 to \\udfff")
    if tag in (TEXT, MERGE):
        return text
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() == "true"
    if tag in (_INT, _FLOAT):
        return _number(text, tag)
    raise UsageError(f"the tag {short_tag(node.tag)} is not in YAML's core schema", fix="leave it out")


def is_text(text: str) -> bool:
    """Return whether a text can be part of a path in UTF-8: without NUL and lone surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _number(text: str, tag: str) -> Whole | Decimal:
    if tag == _INT and _AMBIGUOUS.fullmatch(text):
        raise UsageError(
            f"{text} is octal in some versions of YAML and decimal in others",
            fix=f'write {int(text)}, or "{text}" for text',
        )
    try:
        if len(text) > _MOST_DIGITS:
            raise ValueError(text)
        return Whole.of(text) if tag == _INT else Decimal.of(text.lower())
    except ValueError:
        raise UsageError(f"{text[:_MOST_DIGITS]} is not a number", fix="put text into quotes") from None


def short_tag(tag: str) -> str:
    """Return a tag as it is written in a file."""
    return tag.replace(_PREFIX, "!!")


def substitute(text: str) -> str:
    """Fill ${NAME} and ${NAME:-default} into `text` from the environment, without new lines or keys; $${ means ${."""
    return _VARIABLE.sub(_value, text)


def _value(found: re.Match[str]) -> str:
    if found.group() == "$${":
        return "${"
    variable = _INSIDE.fullmatch(found["inside"])
    if not (found["end"] and variable):
        raise UsageError(
            f"{found.group()!r} names no variable",
            fix="write ${NAME} or ${NAME:-default}, or $${ for a plain ${",
        )
    name, default = variable["name"], variable["default"]
    note_variable(name)
    given = os.environ.get(name)
    if default is not None:
        return given or default
    if given is None:
        fix = f"set it, or write ${{{name}:-default}}"
        raise UsageError(f"the environment variable {name} is not set", fix=fix)
    return given


def source_text(value: object) -> str:
    """Return a scalar as it is written in the file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def to_plain(value: Any) -> Any:
    """Return `value` with plain numbers, for libraries that check types."""
    if isinstance(value, Whole):
        return int(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    return {key: to_plain(each) for key, each in value.items()} if isinstance(value, dict) else value
