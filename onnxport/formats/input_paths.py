"""The type of options that name a file or folder to read, by its path or its URL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from onnxport.formats.remote import fetch

_FETCH = BeforeValidator(fetch)
InputPath = Annotated[Path, _FETCH]


def takes_urls(field: FieldInfo) -> bool:
    """Return whether the values of an option are paths that may be URLs."""
    return any(map(_has_fetch, (field.annotation, *field.metadata)))


def _has_fetch(annotation: Any) -> bool:
    return annotation is _FETCH or any(map(_has_fetch, get_args(annotation)))
