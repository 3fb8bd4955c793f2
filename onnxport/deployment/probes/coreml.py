"""Core ML, by our own conversion: which nodes have no equivalent in it.

Only Core ML on the device knows which compute unit runs an operation (MLComputePlan).
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from onnxport.converters.coreml.compiler import CoremlConverter
from onnxport.converters.params import CoremlParams
from onnxport.core.errors import CannotConvertError
from onnxport.deployment.probes import ProbeOptions, count_nodes, refusal_placement
from onnxport.deployment.report import Placement
from onnxport.formats.manifest import Manifest
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare

_UNITS = "only the device knows which compute unit runs an operation (MLComputePlan)"
_PACKAGE = "only Core ML knows whether it loads a package, and on which compute units it runs: check on macOS"


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Lower the model; a package can only be read."""
    answer = options.placement(f"coremltools {version('coremltools')}", "unknown")
    if path.suffix != ".onnx":
        return _probe_package(path, answer)
    answer = answer.model_copy(update={"notes": (_UNITS,)})
    model = Model.load(path)
    try:
        with CoremlConverter() as converter:
            prepared = prepare(model, shapes={}, native=converter.native_ops, unrolls=True)
            note = Manifest(model.artifact.digest(), {}, {}, "skipped")
            converter.lower(prepared.model, options.folder, CoremlParams(), note)
    except CannotConvertError as error:
        return refusal_placement(path, answer, error)
    nodes = count_nodes(model)
    return answer.model_copy(update={"extent": "all", "nodes": nodes, "taken": nodes})


def _probe_package(path: Path, answer: Placement) -> Placement:
    from onnxport.formats.mlpackage.reader import read_package

    package = read_package(path)  # refuses what is damaged
    operations = [each for function in package.functions.values() for each in function.block.operations]
    count = sum(each.type != "const" for each in operations)
    return answer.model_copy(update={"nodes": count, "why": _PACKAGE})
