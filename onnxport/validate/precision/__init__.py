"""The precision of an artefact by its file alone; a module per kind of graph (docs/reference/fidelity.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact, Format, Referent
from onnxport.formats.manifest import Manifest
from onnxport.validate.report import Precision

if TYPE_CHECKING:
    from onnxport.formats.model import Model

# Formats whose readers take long to import, with these.
_READERS = {
    "coreml": "onnxport.validate.precision.coreml",
    "tflite": "onnxport.validate.precision.tflite",
}
INTEGER_WEIGHTS = frozenset[Precision]({"int8 weights", "int4 weights"})

__all__ = [
    "INTEGER_WEIGHTS",
    "count_roundings",
    "kept_float32",
    "least_rounded",
    "load_reader",
    "precision_beside",
    "precision_of",
    "read_dynamic_quantization",
    "read_onnx",
]


def load_reader(format_: Format) -> None:
    """Import what reads the precision of a file that is not there yet."""
    if format_ in _READERS:
        importlib.import_module(_READERS[format_])


def precision_of(artifact: Referent, graph: Model | None = None, function: str = "") -> Precision:
    """Return the precision of the model in `artifact`; "unknown" for a file that its reader does not understand.

    Args:
        graph: the model in memory, if the caller has it; for a framework's model, what was exported from it.
        function: a function of a package; the default one unless given.
    """
    # Each imports its own libraries.
    if artifact.format == "coreml":
        from onnxport.validate.precision import coreml

        return coreml.precision(artifact.path, function)
    try:
        if artifact.format == "tflite":
            from onnxport.validate.precision import tflite

            return tflite.precision(artifact.path)
        from onnxport.validate.precision import graphs, onnx

        if artifact.format == "ort":
            from onnxport.formats.graph.ort import read_ort

            file = read_ort(artifact.path)
            if onnx.is_half(onnx.manifest_in(file)):
                return "float16"
            return graphs.precision(graphs.TypedGraph.flatten(file.graph))
    except InputError:  # damage that the runtime does not see, or a newer schema than ours
        return "unknown"
    model = graph or read_onnx(artifact)
    if model is None:
        return "unknown"
    return "float16" if onnx.is_half(onnx.manifest_in(model)) else graphs.precision(onnx.typed_graph(model))


def precision_beside(
    reference: Precision, candidate: Artifact, precision: Precision, function: str = ""
) -> Precision:
    """Return a candidate's precision beside a reference: where both store the same integers, what it computes in.

    Args:
        precision: the candidate's, by its file alone.
        function: see `precision_of`.
    """
    if precision != reference or precision not in INTEGER_WEIGHTS or candidate.format != "coreml":
        return precision
    from onnxport.validate.precision import coreml

    return "float16" if coreml.computes_in_half(candidate.path, function) else precision


def read_onnx(artifact: Referent) -> Model | None:
    """Return the model in an `.onnx` file, unchecked; None for other formats, or where it cannot be read."""
    if artifact.format != "onnx":
        return None
    from onnxport.validate.precision import onnx

    return onnx.read_unchecked(artifact.path)


def kept_float32(artifact: Artifact, graph: Model | None = None, function: str = "") -> frozenset[str]:
    """Return the ONNX values that a float16 artefact computes or holds in float32.

    An `.onnx` graph tells by its types, a package or an `.ort` file by our manifest; other files do not tell.

    Args:
        graph: see `precision_of`.
    """
    if artifact.format == "coreml":
        from onnxport.validate.precision import coreml

        return coreml.islands(artifact.path, function)
    if artifact.format == "onnx":
        from onnxport.validate.precision import graphs, onnx

        model = graph or read_onnx(artifact)
        return frozenset() if model is None else graphs.islands(onnx.typed_graph(model))
    if artifact.format == "ort":
        from onnxport.formats.graph.ort import read_ort
        from onnxport.validate.precision import onnx

        try:
            note = onnx.manifest_in(read_ort(artifact.path))
        except InputError:
            return frozenset()
        return frozenset(note.islands) if note else frozenset()
    return frozenset()


def least_rounded(artifact: Artifact, precision: Precision) -> int:
    """Return the number of elements of the smallest constant that an artefact rounded; 0 if it does not tell.

    Converters to TFLite round the large weights only: an epsilon below a logarithm stays as it is.
    """
    if artifact.format != "tflite" or precision != "float16 weights":
        return 0
    from onnxport.validate.precision import tflite

    return tflite.least_narrow_constant(artifact.path)


def count_roundings(artifact: Artifact) -> int:
    """Return how many operators of an artefact round numbers, as a quantization written in small operators does.

    Raises:
        InputError: no artefact, or a damaged one.
    """
    if artifact.format == "coreml":
        from onnxport.formats.mlpackage.reader import read_package

        functions = read_package(artifact.path).functions.values()
        return sum(each.type == "round" for function in functions for each in function.block.walk())
    if artifact.format == "tflite":
        from onnxport.formats.graph.tflite import read_tflite

        graphs = [each.graph for each in read_tflite(artifact.path).subgraphs]
        return sum(node.op == "ROUND" for graph in graphs for node in graph.all_nodes())
    if artifact.format == "ort":
        from onnxport.formats.graph.ort import read_ort

        return sum(node.op == "Round" for node in read_ort(artifact.path).graph.all_nodes())
    from onnxport.formats.graph.onnx import read_onnx

    return sum(node.op == "Round" for node in read_onnx(artifact.path).all_nodes())


def read_dynamic_quantization(artifact: Artifact, function: str = "") -> str:
    """Return the --dynamic-quantization that a `.tflite` file or package of ours was made with; empty for none.

    Args:
        function: see `precision_of`.
    """
    text: str | None = None
    if artifact.format == "tflite":
        from onnxport.formats.graph.tflite import read_tflite

        text = read_tflite(artifact.path).manifest
    elif artifact.format == "coreml":
        from onnxport.validate.precision import coreml

        text = coreml.manifest_text(artifact.path, function)
    try:
        options = Manifest.from_json(text).options.get(artifact.format) if text else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return str(options.get("dynamic_quantization") or "") if isinstance(options, dict) else ""
