"""Options of the compiler's process, without pydantic, whose import is a quarter of its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from onnxport.converters.app_metadata import Normalization
    from onnxport.converters.params import Accelerators, Io, Layout, Precision, TfliteParams


@dataclass(frozen=True)
class Settings:
    """The fields of TfliteParams that lowering and compiling read."""

    layout: Layout
    allow_custom_ops: bool
    precision: Precision | None
    io: Io
    fit: Accelerators
    normalization: Mapping[str, Normalization]

    @classmethod
    def of(cls, params: TfliteParams) -> Self:
        """Return those of checked options."""
        return cls(**{field.name: getattr(params, field.name) for field in fields(cls)})
