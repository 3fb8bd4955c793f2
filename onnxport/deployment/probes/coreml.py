"""Core ML, by way of our own conversion: which nodes have no equivalent in it.

Which of the compute units runs an operation only Core ML tells, on the device (MLComputePlan): nothing is said of that.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from onnxport.converters.coreml.compiler import CoremlConverter
from onnxport.converters.params import CoremlParams
from onnxport.core.errors import CannotConvertError
from onnxport.deployment.probes import AskOptions
from onnxport.deployment.probes.conversion import node_count, refused
from onnxport.deployment.report import Placement
from onnxport.formats.manifest import Manifest
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare

_UNITS = "which compute unit runs what is known on the device alone (MLComputePlan)"
_PACKAGE = "only Core ML tells whether it loads a package and on which compute units it runs: ask on macOS"


def ask(path: Path, options: AskOptions) -> Placement:
    """Lowers the model; of a package only Core ML itself could tell more than that it is one."""
    answer = Placement(
        runtime=options.runtime,
        title=options.title,
        how="asked",
        extent="unknown",
        version=f"coremltools {version('coremltools')}",
    )
    if path.suffix != ".onnx":
        return _of_package(path, answer)
    answer = answer.model_copy(update={"notes": (_UNITS,)})
    model = Model.load(path)
    try:
        with CoremlConverter() as converter:
            prepared = prepare(model, shapes={}, native=converter.native_ops, unrolls=True)
            note = Manifest(model.artifact.digest(), {}, {}, "skipped")
            converter.lower(prepared.model, options.folder, CoremlParams(), note)
    except CannotConvertError as error:
        return refused(path, answer, error)
    nodes = node_count(model)
    return answer.model_copy(update={"extent": "all", "nodes": nodes, "taken": nodes})


def _of_package(path: Path, answer: Placement) -> Placement:
    from onnxport.formats.mlpackage.reader import read_package

    package = read_package(path)  # refuses what is damaged
    operations = [each for function in package.functions.values() for each in function.block.operations]
    count = sum(each.type != "const" for each in operations)
    return answer.model_copy(update={"nodes": count, "why": _PACKAGE})
