"""Every runtime that was named, asked where it is here and else estimated: a DeploymentReport."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from onnxport.artifact import Artifact
from onnxport.deployment.asking import AskOptions, NotHere
from onnxport.deployment.estimating import Estimate, estimate
from onnxport.deployment.estimating.graph import Graph
from onnxport.deployment.estimating.reading import graph_of
from onnxport.deployment.estimating.table import load_table
from onnxport.deployment.params import ALL, DeploymentParams
from onnxport.deployment.record import DeploymentReport, Placement
from onnxport.deployment.runtimes import ASKING, Runtime, chosen
from onnxport.errors import InputError, MachineError, MissingDependencyError, UsageError
from onnxport.isolation import Child, ChildBug
from onnxport.model import Model
from onnxport.optimizers.pinning import pinned
from onnxport.shapes import GivenShape

_AT_ONCE = 4  # children; each holds the model


def deployment(
    path: str | os.PathLike[str], params: DeploymentParams, command: str = "inspect"
) -> DeploymentReport:
    """Asks or estimates each runtime of `params.runs_on`.

    Raises:
        UsageError: an unknown runtime, one that takes no files of this format, or sizes that do not fit the model.
        InputError: the model cannot be read.
        MissingDependencyError: a runtime that was named can be neither asked nor estimated.
    """
    artifact = Artifact.open(path)
    runtimes = chosen(params.runs_on, artifact.format)
    if params.shape and artifact.format != "onnx":
        raise UsageError(f"--shape is about open sizes of .onnx files, {path} is none", fix="leave it out")
    with tempfile.TemporaryDirectory(prefix="onnxport-") as scratch:
        subject = Subject.of(artifact, params.shape, Path(scratch))
        placements = _placements(subject, runtimes, params)
    return DeploymentReport(
        command=command,
        model=str(artifact.path),
        format=artifact.format,
        strict=params.error_on_fallback,
        placements=tuple(placements),
    )


@dataclass(frozen=True)
class Subject:
    """The model that runtimes are asked about.

    Attributes:
        path: the file that askers read, with the user's sizes in it.
        model: the same in memory; None in formats other than ONNX.
        folder: for files on the way.
    """

    path: Path
    model: Model | None
    folder: Path
    timeout: float = 120.0

    @classmethod
    def of(cls, artifact: Artifact, shapes: Mapping[str, GivenShape], folder: Path) -> Subject:
        if artifact.format != "onnx":
            return cls(artifact.path, None, folder)
        model = Model.load(artifact.path)
        if not shapes:
            return cls(artifact.path, model, folder)
        fixed = model.clone()
        pinned(fixed, shapes)
        return cls(fixed.save(folder / artifact.path.name).path, fixed, folder)

    def graph(self, view: str) -> Graph:
        return self.loaded if view == "loaded" else self.stored

    @cached_property
    def stored(self) -> Graph:
        """The graph of the file."""
        assert self.model is not None
        return graph_of(self.model)

    @cached_property
    def loaded(self) -> Graph:
        """What ONNX Runtime leaves of it; the graph of the file where ONNX Runtime cannot load that."""
        assert self.model is not None
        to = self.folder / "loaded.onnx"
        with Child(f"{ASKING}.loading:Loading", purpose="ONNX Runtime", timeout=self.timeout) as child:
            try:
                child.call("load", self.path, self.model.weight_bytes, to)
            except (InputError, MachineError):
                return self.stored
        return graph_of(Model(ir.load(to), to))


def _placements(subject: Subject, runtimes: Sequence[Runtime], params: DeploymentParams) -> list[Placement]:
    """In the order of `runtimes`; those that are asked answer while the others are estimated."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        asked = {
            each.name: pool.submit(_asked, subject, each, params.timeout) for each in runtimes if each.is_here
        }
        explicit = ALL not in params.runs_on
        found = [_placement(subject, each, asked.get(each.name), explicit) for each in runtimes]
    return [each for each in found if each is not None]


def _placement(
    subject: Subject, runtime: Runtime, asked: Future[Placement | None] | None, explicit: bool
) -> Placement | None:
    answer = asked.result() if asked is not None else None
    if answer is not None:
        return answer
    if runtime.has_table and subject.model is not None:
        return estimated(subject, runtime).placement
    if explicit:
        raise runtime.missing()
    return None


def estimated(subject: Subject, runtime: Runtime) -> Estimate:
    """What the data file of `runtime` says of the model."""
    table = load_table(runtime.name)
    return estimate(subject.graph(table.sees), table)


def _asked(subject: Subject, runtime: Runtime, timeout: float) -> Placement | None:
    """What the runtime says; None where it is not here after all. A crash or a hang is "unknown", with the reason."""
    with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
        options = AskOptions(runtime.name, runtime.title, Path(folder), runtime.provider)
        patience = "give it more time with --timeout SECONDS"
        child = Child(f"{ASKING}:Asking", purpose=runtime.title, timeout=timeout, patience=patience)
        with child:
            try:
                placement: Placement = child.call("ask", runtime.asker, subject.path, options)
                return placement
            except (NotHere, MissingDependencyError):
                return None
            except (InputError, MachineError) as error:
                return _unknown(runtime, str(error))
            except ChildBug as bug:
                return _unknown(runtime, f"it failed: {str(bug).strip().splitlines()[-1]}")


def _unknown(runtime: Runtime, why: str) -> Placement:
    return Placement(
        runtime=runtime.name, title=runtime.title, how="asked", extent="unknown", version="", why=why
    )
