"""The report of `inspect`, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.manifest import Manifest
from onnxport.inspection.memory.report import MemoryPlan

SHOWN = 5  # labels that are shown


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortRecord(_Record):
    """An input or output as the file has it.

    Attributes:
        shape: a dimension is a size, a symbol's name, or None where nothing is known.
        scale, zero_point: of quantized values, scale * (integer - zero_point); None for any other (TFLite).
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    scale: float | None = None
    zero_point: int | None = None


class LabelRecord(_Record):
    """A label file in a `.tflite` file.

    Attributes:
        count: the number of its labels; None where the file lacks it, or it cannot be read.
        first: the first few labels.
    """

    output: str
    file: str
    count: int | None
    first: tuple[str, ...]


class Kernels(_Record):
    """Kernels of ONNX Runtime's CPU provider, as the installed release registers them.

    Attributes:
        version: the release.
        registered: all of them.
        kept: those that stay in a build with the operator list.
        used: those kept that run nodes of the files, by their element types.
    """

    version: str
    registered: int
    kept: int
    used: int


class LibrarySize(_Record):
    """Published sizes of ONNX Runtime's library in bytes, which bound the size of the build.

    Attributes:
        least: a build without any operator.
        most: a build with at least the files' operators; None if no published build has them all.
        whole: the library with everything.
        beyond: what the files need and the build of size `most` lacks.
        sources: where the three sizes are published.
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
        operators: the number of forms of operators; an operator of two opsets counts twice.
        types: C++'s names of the element types that their nodes read and write.
        kernels: None if the installed ONNX Runtime does not list its kernels.
        lacks: what the nodes need and the list beside a file does not name; a build with that list cannot run them.
        command: the command that builds it, in ONNX Runtime's source tree.
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
    """The content of a model file.

    Attributes:
        size: bytes on disk, companion files included.
        opsets: operator domain to version; ONNX's own is "ai.onnx".
        operators: operator to how often it occurs, subgraphs and functions included, most frequent first.
        parameters: elements of all stored weights.
        dynamic: the open dimensions, as "input[axis]" or "input[axis] name".
        unusual: a sentence for each property that often causes trouble in tools.
        labels: the label files that apps find in a `.tflite` file.
        manifest: our manifest in an artefact of ours; None for other files.
        build: the build of ONNX Runtime for an `.ort` file, if asked for.
        plan: the memory and the work of one run, if asked for.
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
    labels: tuple[LabelRecord, ...] = ()
    build: ReducedBuild | None = None
    plan: MemoryPlan | None = None


def ports(specs: Iterable[TensorSpec]) -> tuple[PortRecord, ...]:
    return tuple(PortRecord(name=spec.name, dtype=spec.dtype, shape=spec.shape) for spec in specs)


def list_first(texts: Sequence[str]) -> str:
    """Return "3 texts: ant, bee, cat"; of many the first few."""
    shown = ", ".join(texts[:SHOWN])
    return f"{len(texts)} texts: {shown}{', ...' if len(texts) > SHOWN else ''}"


def count(operators: Iterable[str]) -> dict[str, int]:
    """Return how often each operator occurs, most frequent first."""
    return dict(sorted(Counter(operators).items(), key=lambda item: (-item[1], item[0])))


def list_dynamic(inputs: Iterable[PortRecord]) -> tuple[str, ...]:
    """Return the open dimensions as "input[axis]", with the dimension's name if it has one."""
    return tuple(
        f"{port.name}[{axis}]" + (f" {dim}" if dim else "")
        for port in inputs
        for axis, dim in enumerate(port.shape)
        if not isinstance(dim, int)
    )


def own_manifest(text: str | None) -> dict[str, Any] | None:
    """Return our manifest in an artefact without its ports and taps; None where `text` is no manifest."""
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
        **({"labels": dict(note.labels)} if note.labels else {}),
    }
