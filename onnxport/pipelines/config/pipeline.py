"""A pipeline.yaml with its patterns, options and matrices expanded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.config.document import Line
from onnxport.pipelines.runner.jobs import Step
from onnxport.validate.params import ValidateParams


@dataclass(frozen=True)
class Limits:
    """Limits on size, time and memory; None for no limit.

    Attributes:
        size: bytes on disk.
        size_ratio: of the source's bytes.
        latency: milliseconds of a run on this machine.
        latency_ratio: of the source's time in ONNX Runtime on the same machine.
        load: milliseconds of loading on this machine.
        memory: bytes that runtime and model add to a bare process.
        places: of the limits in the file, by key.
    """

    size: int | None = None
    size_ratio: float | None = None
    latency: float | None = None
    latency_ratio: float | None = None
    load: float | None = None
    memory: int | None = None
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_timed(self) -> bool:
        """Return whether a limit needs runs of the artefact."""
        return any(each is not None for each in (self.latency, self.latency_ratio, self.load, self.memory))


@dataclass(frozen=True)
class NamedModel:
    """A model of the pipeline: an ONNX file, or a source to export with the options of that and of its proof."""

    name: str
    origin: Artifact | Source
    export: ExportParams | None = None
    validation: ValidateParams | None = None


@dataclass(frozen=True)
class Node:
    """One stage on one model; it runs once, however many artefacts depend on it.

    Attributes:
        name: unique in the pipeline and the same from run to run: MODEL/STAGE, MODEL/TARGET, MODEL/TARGET/VALUE.
        step: the stage with its params; None for the export, whose params are the model's.
        after: the node whose product it takes; None for the model itself.
        validation: of its product; None to deliver it unproven.
        latency: whether its product is timed.
        resources: what it needs of a worker of a cluster.
    """

    name: str
    model: NamedModel
    step: Step | None
    after: Node | None
    validation: ValidateParams | None
    latency: bool = True
    line: Line | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def chain(self) -> tuple[Node, ...]:
        """The nodes from the model to this one."""
        return (*(self.after.chain if self.after else ()), self)

    @property
    def exported(self) -> Node | None:
        """The export before this node, whose product is what it is proven against; None for the model itself."""
        first = self.chain[0]
        return first if first.step is None and first is not self else None

    @property
    def stage(self) -> str:
        return "export" if self.step is None else self.step.stage.name


@dataclass(frozen=True)
class Cell:
    """One requested artefact: a target of a model, in one combination of its matrix.

    Attributes:
        node: whose product it is.
        values: the matrix keys with their values here, as text.
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
    """A pipeline.

    Attributes:
        nodes: each behind the nodes that it depends on.
        cells: in the order of the file.
        reports: files and folders to write the report to.
        diagnose: whether to search the ONNX node behind a failed proof.
    """

    path: Path
    nodes: tuple[Node, ...]
    cells: tuple[Cell, ...]
    reports: tuple[Path, ...] = ()
    diagnose: bool = True

    @property
    def folder(self) -> Path:
        """The folder of the file, which relative paths start from."""
        return self.path.parent
