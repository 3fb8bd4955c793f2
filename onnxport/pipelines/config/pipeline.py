"""What a pipeline.yaml comes to when its patterns, options and matrices are written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.config.document import Line
from onnxport.pipelines.jobs import Step
from onnxport.validate.params import ValidateParams


@dataclass(frozen=True)
class Limits:
    """What an artefact may cost beside accuracy; None for no limit.

    Attributes:
        size: bytes on disk.
        size_ratio: of the source's bytes.
        latency_ratio: of the time that the source takes in ONNX Runtime beside it, on the same machine.
        places: where the file says so, by the key.
    """

    size: int | None = None
    size_ratio: float | None = None
    latency_ratio: float | None = None
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NamedModel:
    """A model of the pipeline.

    Attributes:
        origin: an ONNX file, or what has to be exported first.
        export: how; None for an ONNX file.
        validation: how the export is judged.
    """

    name: str
    origin: Artifact | Source
    export: ExportParams | None = None
    validation: ValidateParams | None = None


@dataclass(frozen=True)
class Node:
    """One stage on one model: what runs once however many artefacts come from it.

    Attributes:
        name: unique in the pipeline and the same from run to run: MODEL/STAGE, MODEL/TARGET, MODEL/TARGET/VALUE.
        step: the stage with its params; None for the export, whose params are the model's.
        after: the node whose product it takes; None where it takes the model.
        validation: how its product is judged; None to let it out unproven.
        latency: whether its product is timed.
        line: where the file asks for it.
    """

    name: str
    model: NamedModel
    step: Step | None
    after: Node | None
    validation: ValidateParams | None
    latency: bool = True
    line: Line | None = None

    @property
    def chain(self) -> tuple[Node, ...]:
        """The nodes from the model to this one."""
        return (*(self.after.chain if self.after else ()), self)

    @property
    def stage(self) -> str:
        return "export" if self.step is None else self.step.stage.name


@dataclass(frozen=True)
class Cell:
    """One artefact that the user wants: a target of a model, in one combination of its matrix.

    Attributes:
        node: whose product it is.
        values: the matrix' keys and what they are here, as text.
        output: where it goes.
        line: where the file has its target.
    """

    model: str
    target: str
    node: Node
    output: Path
    values: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    line: Line | None = None

    @property
    def name(self) -> str:
        return "/".join((self.model, self.target, *self.values.values()))


@dataclass(frozen=True)
class Pipeline:
    """All of it.

    Attributes:
        path: the file.
        nodes: in an order in which each stands behind what it takes.
        cells: in the order of the file.
        reports: files and folders to write the report to.
        diagnose: whether the ONNX node behind a failed proof is looked for.
    """

    path: Path
    nodes: tuple[Node, ...]
    cells: tuple[Cell, ...]
    reports: tuple[Path, ...] = ()
    diagnose: bool = True

    @property
    def folder(self) -> Path:
        """What relative paths in the file start from."""
        return self.path.parent
