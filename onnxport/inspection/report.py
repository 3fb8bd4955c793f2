"""The form in which every format's reader answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from onnxport.formats.artifact import Artifact, Dim, TensorSpec
from onnxport.formats.manifest import Manifest


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortRecord(_Record):
    """An input or output; a dimension is a size, a symbol's name, or None where nothing is known."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]


class Kernels(_Record):
    """Kernels of ONNX Runtime's CPU provider, as the installed release registers them.

    Attributes:
        version: the release.
        registered: all.
        kept: those that the operator list leaves in a build.
        used: those of them that run the files' nodes in the types that these have.
    """

    version: str
    registered: int
    kept: int
    used: int


class LibrarySize(_Record):
    """What is published of the size of ONNX Runtime's library, which bounds that of the build; bytes.

    Attributes:
        least: of a build without any operator.
        most: of one with more operators than the files have; None where they have some that it lacks.
        whole: of the library with everything.
        beyond: what the files have beyond the build of size `most`.
        sources: where the three are from.
    """

    platform: str
    least: int
    most: int | None
    whole: int
    beyond: tuple[str, ...]
    sources: tuple[str, ...]


class ReducedBuild(_Record):
    """The build of ONNX Runtime that runs some `.ort` files and nothing else.

    Attributes:
        files: the `.ort` files.
        config: the file that lists the operators.
        config_is_there: whether it exists.
        operators: how many forms of operators they have; one of two opsets counts twice.
        types: C++'s names of the element types that their nodes read and write.
        kernels: None where the installed ONNX Runtime does not tell its own.
        lacks: what the list beside a file does not name of what its nodes need; a build by it would not run them.
        command: how ONNX Runtime is built so, in its source tree.
    """

    files: tuple[str, ...]
    config: str
    config_is_there: bool
    operators: int
    types: tuple[str, ...]
    kernels: Kernels | None
    lacks: tuple[str, ...]
    command: str
    library: LibrarySize


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
        build: what ONNX Runtime is built with for an `.ort` file; None of other formats, and where nobody asked.
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
    build: ReducedBuild | None = None


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
