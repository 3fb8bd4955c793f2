"""The syntax of named values: `NAME=VALUE`, split at the last `=`; ONNX names may contain `:`, `/` and `=`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from onnxport.core.errors import UsageError


def parse_pairs(
    given: str | Sequence[str] | Mapping[str, object],
    *,
    what: str = "named values",
    form: str = "write NAME=VALUE",
    at_first: bool = False,
) -> dict[str, object]:
    """Parse one or several texts `NAME=VALUE`; Python callers may pass a mapping.

    Args:
        what: the plural of the values, for errors.
        form: the fix for a text of another form.
        at_first: split at the first `=`, for names of the user's own.

    Raises:
        UsageError: a text of another form, or a name given twice.
    """
    if isinstance(given, Mapping):
        return dict(given)
    texts = [given] if isinstance(given, str) else given
    if not (isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts)):
        raise UsageError(f"{what} cannot be {given!r}", fix=form)
    pairs: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=") if at_first else text.rpartition("=")
        if not separator or not name:
            lacks = "name before '='" if separator or not text.isidentifier() else "value"
            raise UsageError(f"{text!r} has no {lacks}", fix=form)
        if name in pairs:
            raise UsageError(f"{name!r} is given twice", fix="give each name once")
        pairs[name] = value
    return pairs


def parse_settings(given: str | Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    """Parse settings, which YAML and Python may write as numbers, or as lists for `0.5,0.4,0.4` (see `parse_pairs`)."""
    return {name: _join(value) for name, value in parse_pairs(given).items()}


def parse_entries(given: str | Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    """Parse entries; numbers, booleans and lists become their text in YAML (see `parse_pairs`)."""
    pairs = parse_pairs(given, form="write KEY=TEXT", at_first=True)
    return {name: _as_yaml(value) if isinstance(value, _PLAIN) else value for name, value in pairs.items()}


_PLAIN = (bool, int, float, list)


def _join(value: object) -> object:
    if isinstance(value, list | tuple):
        return ",".join(str(_join(each)) for each in value)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_yaml(value: object) -> str:
    import yaml

    dumped: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _json(*kinds: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", *kinds]}})


# Field types of params models: names of names, settings, entries under the user's own keys, named numbers.
Texts = Annotated[dict[str, str], BeforeValidator(parse_pairs)]
Settings = Annotated[dict[str, str], BeforeValidator(parse_settings), _json("number", "array")]
Entries = Annotated[dict[str, str], BeforeValidator(parse_entries), _json("number", "boolean", "array")]
Numbers = Annotated[dict[str, float], BeforeValidator(parse_pairs)]
