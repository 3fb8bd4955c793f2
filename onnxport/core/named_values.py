"""The one way to write a named value: `NAME=VALUE`, split at the last `=` since ONNX names carry `:` and `/`."""

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
    """Reads `NAME=VALUE` texts or a single one, or takes a mapping as Python callers write it.

    Args:
        what: what the values are, for errors.
        form: the way out for a text of another form.
        at_first: split at the first `=`: the names are the user's own, the values anything.

    Raises:
        UsageError: a text of another form, or a name given twice.
    """
    if isinstance(given, Mapping):
        return dict(given)
    texts = [given] if isinstance(given, str) else given
    if not (isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts)):
        raise UsageError(f"{what} are not given by {given!r}", fix=form)
    pairs: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=") if at_first else text.rpartition("=")
        if not separator or not name:
            raise UsageError(f"{text!r} gives no value a name", fix=form)
        if name in pairs:
            raise UsageError(f"{name!r} is given twice")
        pairs[name] = value
    return pairs


def parse_settings(given: str | Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    """The same of settings, which a YAML file or Python may write as numbers, or as lists for `0.5,0.4,0.4`.

    Raises:
        UsageError: as `parse_pairs`.
    """
    return {name: _listed(value) for name, value in parse_pairs(given).items()}


def parse_entries(given: str | Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    """The same of entries whose text may be read as YAML: numbers, booleans and lists become what YAML reads so.

    Raises:
        UsageError: as `parse_pairs`.
    """
    pairs = parse_pairs(given, form="write KEY=TEXT", at_first=True)
    return {name: _as_yaml(value) if isinstance(value, _PLAIN) else value for name, value in pairs.items()}


_PLAIN = (bool, int, float, list)


def _listed(value: object) -> object:
    if isinstance(value, list | tuple):
        return ",".join(str(_listed(each)) for each in value)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_yaml(value: object) -> str:
    import yaml

    dumped: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _json(*kinds: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", *kinds]}})


# How params models take names of names, settings, entries under keys of the user's own, and named numbers.
Texts = Annotated[dict[str, str], BeforeValidator(parse_pairs)]
Settings = Annotated[dict[str, str], BeforeValidator(parse_settings), _json("number", "array")]
Entries = Annotated[dict[str, str], BeforeValidator(parse_entries), _json("number", "boolean", "array")]
Numbers = Annotated[dict[str, float], BeforeValidator(parse_pairs)]
