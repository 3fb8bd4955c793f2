"""One runtime and one model: the answer of its probe, or the estimate by its data file."""

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
from onnxport.deployment.model_variants import ModelVariants
from onnxport.deployment.probes import NotAvailable, ProbeOptions
from onnxport.deployment.report import Placement
from onnxport.deployment.runtimes import PROBES, Runtime
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph import OperatorGraph
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model
from onnxport.optimizers.fixed_shapes import pin_shapes, resize_inputs


@dataclass(frozen=True)
class ProbedModel:
    """The model that runtimes are probed with."""

    path: Path  # the file that probes read, with the user's sizes and all shapes that follow from them
    model: Model | None  # the same in memory; None for other formats than ONNX
    folder: Path  # for intermediate files
    variants: ModelVariants  # makes variants of the model
    declared_path: Path | None = None  # the file with its declared inner shapes; None if that is `path`
    shapes: Mapping[str, GivenShape] = field(default_factory=dict)  # the user's sizes
    notes: tuple[str, ...] = ()  # on inputs for which the file fixes other sizes than the user

    @classmethod
    def prepare(
        cls, artifact: Artifact, shapes: Mapping[str, GivenShape], folder: Path, variants: ModelVariants
    ) -> ProbedModel:
        """Return the file itself, or a copy with the user's sizes in `folder`.

        Raises:
            UsageError: sizes that do not fit the model.
            InputError: the model cannot be read.
        """
        if artifact.format != "onnx":
            _check(artifact)
            return cls(artifact.path, None, folder, variants)
        model = Model.load(artifact.path)
        if not shapes:
            return cls(artifact.path, model, folder, variants)
        fixed, declared_path = model.clone(), artifact.path
        if notes := resize_inputs(fixed, shapes):
            (folder / "resized").mkdir()
            declared_path = fixed.save(folder / "resized" / artifact.path.name).path
        pin_shapes(fixed, shapes)
        path = fixed.save(folder / artifact.path.name).path
        if notes and not _runs(path, variants):
            raise UsageError(
                f"{artifact.path} does not run at the sizes of --shape",
                why=f"{notes[0]}, which ONNX Runtime refuses",
                fix="give sizes that fit its layers, or leave the option out",
            )
        return cls(path, fixed, folder, variants, declared_path, shapes, notes)

    def graph(self, view: View) -> OperatorGraph:
        return self.loaded if view == "loaded" else self.stored

    @cached_property
    def stored(self) -> OperatorGraph:
        """The graph of the file."""
        assert self.model is not None
        return estimation_graph(self.model)

    @cached_property
    def loaded(self) -> OperatorGraph:
        """The graph after ONNX Runtime has loaded it; that of the file if ONNX Runtime cannot load it."""
        assert self.model is not None
        to = self.folder / f"{self.path.stem}.loaded.onnx"
        try:
            self.variants.load(self.path, self.model.weight_bytes, to)
        except (InputError, MachineError, ChildBug):
            return self.stored
        return estimation_graph(Model(ir.load(to), to))


def _runs(path: Path, variants: ModelVariants) -> bool:
    try:
        return variants.sizes(path, {}) is not None
    except (InputError, MachineError, ChildBug):
        return False


def _check(artifact: Artifact) -> None:
    """Raise InputError for a file that is no model, if its reader is installed."""
    with contextlib.suppress(ImportError):
        if artifact.format == "tflite":
            from onnxport.formats.tflite.ports import read_signature

            read_signature(artifact.path, noted=False)
        elif artifact.format == "coreml":
            from onnxport.formats.mlpackage.reader import read_package

            read_package(artifact.path)


def estimate_runtime(subject: ProbedModel, runtime: Runtime) -> Estimate:
    """Estimate an ONNX model by the data file of `runtime`."""
    table = load_table(runtime.name)
    return estimate(subject.graph(table.graph_view), table)


def probe(subject: ProbedModel, runtime: Runtime, timeout: float) -> Placement | None:
    """Probe the runtime; None if it is not available after all. A crash or a hang has the extent "unknown"."""
    with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
        options = ProbeOptions(
            runtime.name, runtime.title, Path(folder), subject.folder, runtime.provider, shapes=subject.shapes
        )
        path = (
            subject.declared_path if runtime.uses_declared_shapes and subject.declared_path else subject.path
        )
        patience = "give it more time with --timeout SECONDS"
        target = f"{PROBES}:ProbeWorker"
        with subject.variants.start_probe(
            target, purpose=runtime.title, timeout=timeout, patience=patience
        ) as child:
            try:
                placement: Placement = child.call("probe", runtime.probe_module, path, options)
                return placement
            except (NotAvailable, MissingDependencyError):
                return None
            except (InputError, MachineError) as error:
                return _unknown(runtime, str(error))
            except ChildBug as bug:
                return _unknown(runtime, f"it failed: {str(bug).strip().splitlines()[-1]}")


def _unknown(runtime: Runtime, why: str) -> Placement:
    return Placement(
        runtime=runtime.name, title=runtime.title, how="asked", extent="unknown", version="", why=why
    )
