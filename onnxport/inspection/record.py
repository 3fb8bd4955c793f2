"""The form in which every format's reader answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from onnxport.artifact import Artifact, Dim, TensorSpec
from onnxport.manifest import Manifest


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortRecord(_Record):
    """An input or output; a dimension is a size, a symbol's name, or None where nothing is known."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]


class Inspection(_Record):
    """What a model file holds.

    Attributes:
        size: bytes on disk, companion files included.
        opsets: operator domain to version; ONNX's own is "ai.onnx".
        operators: operator to how often it occurs, subgraphs and functions included, most frequent first.
        parameters: elements of all stored weights.
        dynamic: the open dimensions, as "input[axis]" or "input[axis] name".
        unusual: sentences about what tools tend to stumble over.
        manifest: what an artefact of ours says of itself; None in other files.
    """

    path: str
    format: str
    size: int
    files: tuple[str, ...]
    producer: str
    ir_version: int | None
    opsets: dict[str, int]
    inputs: tuple[PortRecord, ...]
    outputs: tuple[PortRecord, ...]
    operators: dict[str, int]
    parameters: int
    dynamic: tuple[str, ...]
    unusual: tuple[str, ...]
    manifest: dict[str, Any] | None


def ports(specs: Iterable[TensorSpec]) -> tuple[PortRecord, ...]:
    return tuple(PortRecord(name=spec.name, dtype=spec.dtype, shape=spec.shape) for spec in specs)


def file_names(artifact: Artifact) -> tuple[str, ...]:
    return artifact.names


def counted(operators: Iterable[str]) -> dict[str, int]:
    """Operator to how often it occurs, most frequent first."""
    return dict(sorted(Counter(operators).items(), key=lambda item: (-item[1], item[0])))


def dynamic(inputs: Iterable[PortRecord]) -> tuple[str, ...]:
    """The open dimensions: "input[axis]", with its name where it has one."""
    return tuple(
        f"{port.name}[{axis}]" + (f" {dim}" if dim else "")
        for port in inputs
        for axis, dim in enumerate(port.shape)
        if not isinstance(dim, int)
    )


def own_manifest(text: str | None) -> dict[str, Any] | None:
    """The note that an artefact of ours carries, without its ports and taps; None where `text` is no such note."""
    if text is None:
        return None
    try:
        note = Manifest.from_json(text)
    except (ValueError, KeyError, TypeError):
        return None
    return {
        "source": note.source,
        "made_by": dict(note.made_by),
        "options": dict(note.options),
        "validation": note.validation,
    }


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)
