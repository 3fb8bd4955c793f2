"""One runtime and one model: what it answers where it is here, and what its data file says where it is not."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from onnxport.core.child_process import ChildBug
from onnxport.core.errors import InputError, MachineError, MissingDependencyError, UsageError
from onnxport.deployment.estimation import Estimate, estimate
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.estimation.table import View, load_table
from onnxport.deployment.model_variants import Workshop
from onnxport.deployment.probes import AskOptions, NotHere
from onnxport.deployment.report import Placement
from onnxport.deployment.runtimes import ASKING, Runtime
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph import OperatorGraph
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model
from onnxport.optimizers.fixed_shapes import pinned, resized


@dataclass(frozen=True)
class Subject:
    """The model that runtimes are asked about.

    Attributes:
        path: the file that askers read, with the user's sizes in it and all shapes following from them.
        model: the same in memory; None in formats other than ONNX.
        folder: for files on the way.
        workshop: who makes what ONNX Runtime leaves of it.
        stored_as: the file with its inner shapes as they are declared; None where that is `path`.
        shapes: the user's sizes.
        notes: of inputs whose sizes the file fixes otherwise than the user.
    """

    path: Path
    model: Model | None
    folder: Path
    workshop: Workshop
    stored_as: Path | None = None
    shapes: Mapping[str, GivenShape] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, artifact: Artifact, shapes: Mapping[str, GivenShape], folder: Path, workshop: Workshop
    ) -> Subject:
        """The file itself, or a copy with the user's sizes in `folder`.

        Raises:
            UsageError: sizes that do not fit the model.
            InputError: the model cannot be read.
        """
        if artifact.format != "onnx":
            _check(artifact)
            return cls(artifact.path, None, folder, workshop)
        model = Model.load(artifact.path)
        if not shapes:
            return cls(artifact.path, model, folder, workshop)
        fixed, stored_as = model.clone(), artifact.path
        if notes := resized(fixed, shapes):
            (folder / "resized").mkdir()
            stored_as = fixed.save(folder / "resized" / artifact.path.name).path
        pinned(fixed, shapes)
        path = fixed.save(folder / artifact.path.name).path
        if notes and not _runs(path, workshop):
            raise UsageError(
                f"{artifact.path} does not run at the sizes of --shape",
                why=f"{notes[0]}, which ONNX Runtime refuses",
                fix="give sizes that its layers fit, or leave the option out",
            )
        return cls(path, fixed, folder, workshop, stored_as, shapes, notes)

    def graph(self, view: View) -> OperatorGraph:
        return self.loaded if view == "loaded" else self.stored

    @cached_property
    def stored(self) -> OperatorGraph:
        """The graph of the file."""
        assert self.model is not None
        return estimation_graph(self.model)

    @cached_property
    def loaded(self) -> OperatorGraph:
        """What ONNX Runtime leaves of it; the graph of the file where ONNX Runtime cannot load that."""
        assert self.model is not None
        to = self.folder / f"{self.path.stem}.loaded.onnx"
        try:
            self.workshop.load(self.path, self.model.weight_bytes, to)
        except (InputError, MachineError, ChildBug):
            return self.stored
        return estimation_graph(Model(ir.load(to), to))


def _runs(path: Path, workshop: Workshop) -> bool:
    try:
        return workshop.sizes(path, {}) is not None
    except (InputError, MachineError, ChildBug):
        return False


def _check(artifact: Artifact) -> None:
    """Refuses what is no model before any runtime is asked about it (InputError); where its reader is here."""
    with contextlib.suppress(ImportError):
        if artifact.format == "tflite":
            from onnxport.formats.tflite.ports import read_ends

            read_ends(artifact.path, noted=False)
        elif artifact.format == "coreml":
            from onnxport.formats.mlpackage.reader import read_package

            read_package(artifact.path)


def estimated(subject: Subject, runtime: Runtime) -> Estimate:
    """What the data file of `runtime` says of an ONNX model."""
    table = load_table(runtime.name)
    return estimate(subject.graph(table.sees), table)


def asked(subject: Subject, runtime: Runtime, timeout: float) -> Placement | None:
    """What the runtime says; None where it is not here after all. A crash or a hang is "unknown", with the reason."""
    with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
        options = AskOptions(
            runtime.name,
            runtime.title,
            Path(folder),
            subject.folder,
            runtime.provider,
            shapes=subject.shapes,
        )
        path = subject.stored_as if runtime.as_stored and subject.stored_as else subject.path
        patience = "give it more time with --timeout SECONDS"
        target = f"{ASKING}:Asking"
        with subject.workshop.asker(
            target, purpose=runtime.title, timeout=timeout, patience=patience
        ) as child:
            try:
                placement: Placement = child.call("ask", runtime.asker, path, options)
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
