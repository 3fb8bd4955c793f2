"""ONNX models and `.ort` files as typed graphs, and the manifests in them."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnxport.formats.graph.onnx import from_ir, functions_from_ir
from onnxport.formats.graph.ort import OrtModel
from onnxport.formats.manifest import KEY, Manifest
from onnxport.formats.model import Model
from onnxport.validate.precision.graphs import TypedGraph

_NO_MANIFEST = (ValueError, TypeError, KeyError, AttributeError)


def typed_graph(model: Model) -> TypedGraph:
    """Return the graph of `model`; model-local functions count as if each were called once."""
    return TypedGraph.flatten(from_ir(model.ir), *functions_from_ir(model.ir))


def read_typed_graph(path: Path) -> TypedGraph:
    """Return the graph in an `.onnx` file; an empty one for a file that cannot be read."""
    model = read_unchecked(path)
    return TypedGraph() if model is None else typed_graph(model)


def read_unchecked(path: Path) -> Model | None:
    """Read an `.onnx` file without its weights; None where it cannot be read.

    The model is not checked: ONNX Runtime takes more than ONNX's checker does.
    """
    try:
        return Model(ir.load(path), path)
    except (*_NO_MANIFEST, DecodeError, ir.serde.SerdeError, OSError):
        return None


def manifest_in(model: Model | OrtModel) -> Manifest | None:
    """Return our manifest in a model."""
    text = (model.metadata if isinstance(model, OrtModel) else model.ir.metadata_props).get(KEY)
    try:
        return Manifest.from_json(text) if text else None
    except _NO_MANIFEST:
        return None


def is_half(note: Manifest | None) -> bool:
    """Return whether the model was made to be float16, but for what has to be float32."""
    options = () if note is None else note.options.values()
    return any(
        isinstance(each, dict) and (each.get("precision") == "fp16" or each.get("fp16") is True)
        for each in options
    )
