"""The one way to write a named value: `NAME=VALUE`, split at the last `=` since ONNX names carry `:` and `/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator

from onnxport.errors import UsageError


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


# How params models take named texts, entries under keys of the user's own, and named numbers.
Texts = Annotated[dict[str, str], BeforeValidator(parse_pairs)]
Entries = Annotated[
    dict[str, str], BeforeValidator(partial(parse_pairs, form="write KEY=TEXT", at_first=True))
]
Numbers = Annotated[dict[str, float], BeforeValidator(parse_pairs)]
