"""Puts URLs in place of local copies in a report, before a form escapes its texts."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from onnxport.core.urls import shown
from onnxport.formats.remote import has_copies

R = TypeVar("R", bound=BaseModel)


def with_urls(report: R) -> R:
    """Return a report with URLs in place of the paths of their copies."""
    return type(report).model_validate(_replace_copies(report.model_dump())) if has_copies() else report


def _replace_copies(value: Any) -> Any:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {_replace_copies(key): _replace_copies(each) for key, each in value.items()}
    return type(value)(map(_replace_copies, value)) if isinstance(value, list | tuple) else value
