"""The inputs and outputs of a `.tflite` file, and their arrays: without an interpreter.

Names come from the manifest of our artefacts, else from the file's signature, else from its tensors.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.growth import OverlappingPartsError
from onnxport.formats.manifest import KEY, Manifest, Port, Tap
from onnxport.formats.numbered_texts import to_texts
from onnxport.formats.tflite.limits import check_growth

_IDENTIFIER = b"TFL3"  # bytes 4 to 8 of every TFLite file
_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a file with the indices of their tensors, in the source's order."""

    inputs: tuple[tuple[Port, int], ...]
    outputs: tuple[tuple[Port, int], ...]
    taps: Mapping[str, Tap]
    keeps_state: bool


def read_signature(path: Path, noted: bool = True) -> Signature:
    """Read the signature of a file, by our manifest if `noted`; InputError if it is no TFLite file, or damaged."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if content[4:8] != _IDENTIFIER:
            from onnxport.formats.model import foreign_kind

            kind, fix = foreign_kind(path) or ("", "")
            why = f"it is {kind}" if kind else "its file identifier is not TFL3"
            raise InputError(f"{path} is not a TFLite model", why=why, fix=fix)
        model = schema.Model.GetRootAs(content, 0)
        check_growth(model, len(content))
        return _ends(model, content, noted)
    except (struct.error, IndexError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise damaged(path, error) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def damaged(path: Path, error: Exception) -> InputError:
    """Return the error for a file whose references lead nowhere, or to too much."""
    why = str(error) if isinstance(error, OverlappingPartsError) else ""
    return InputError(f"{path} is truncated or damaged", why=why, fix="copy, download or convert it again")


def _ends(model: Any, content: mmap.mmap, noted: bool) -> Signature:
    graph = model.Subgraphs(0)
    inputs = [graph.Inputs(i) for i in range(graph.InputsLength())]
    outputs = [graph.Outputs(i) for i in range(graph.OutputsLength())]
    named_inputs, named_outputs = _signature(model, graph, inputs, outputs)
    text = manifest_text(model, content) if noted else None
    manifest = None if text is None else Manifest.from_json(text)
    keeps_state = any(graph.Tensors(i).IsVariable() for i in range(graph.TensorsLength()))
    if manifest is None:
        return Signature(
            tuple((_port(graph, name, index), index) for name, index in named_inputs.items()),
            tuple((_port(graph, name, index), index) for name, index in named_outputs.items()),
            {},
            keeps_state,
        )
    names = {leading_name(_name(graph.Tensors(i))) for i in range(graph.TensorsLength())}
    return Signature(
        tuple((port, named_inputs[port.key]) for port in manifest.inputs),
        tuple((port, named_outputs[port.key]) for port in manifest.outputs),
        {name: tap for name, tap in manifest.taps.items() if tap.key in names},
        keeps_state,
    )


def _signature(
    model: Any, graph: Any, inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return name -> tensor index of the inputs and of the outputs, in the subgraph's order."""
    signatures = {
        bytes(model.SignatureDefs(i).SignatureKey() or b"").decode(): model.SignatureDefs(i)
        for i in range(model.SignatureDefsLength())
    }
    chosen = signatures.get(_SIGNATURE) or (next(iter(signatures.values())) if len(signatures) == 1 else None)
    if chosen is None:
        return (
            {_name(graph.Tensors(index)): index for index in inputs},
            {_name(graph.Tensors(index)): index for index in outputs},
        )
    ends = [chosen.Inputs(i) for i in range(chosen.InputsLength())]
    results = [chosen.Outputs(i) for i in range(chosen.OutputsLength())]
    return _sort(ends, inputs), _sort(results, outputs)


def _sort(maps: Sequence[Any], order: Sequence[int]) -> dict[str, int]:
    """Return name -> tensor index in the subgraph's order; a signature is sorted alphabetically."""
    named = {bytes(entry.Name()).decode(): entry.TensorIndex() for entry in maps}
    return dict(sorted(named.items(), key=lambda item: order.index(item[1])))


def _port(graph: Any, name: str, index: int) -> Port:
    tensor = graph.Tensors(index)
    signature = tensor.ShapeSignatureAsNumpy() if tensor.ShapeSignatureLength() else tensor.ShapeAsNumpy()
    sizes = np.atleast_1d(signature) if tensor.ShapeLength() else ()
    return Port(name, name, _dtype(tensor.Type()), tuple(None if size < 0 else int(size) for size in sizes))


def _dtype(element: int) -> str:
    """Return NumPy's name of a schema TensorType."""
    names = {value: name for name, value in vars(schema.TensorType).items() if isinstance(value, int)}
    name: str = names[element]
    return name.lower()


def _name(tensor: Any) -> str:
    return bytes(tensor.Name() or b"").decode(errors="replace")


def leading_name(name: str) -> str:
    """Return the name of the value; the compiler appends the names of fused values after semicolons."""
    return name.partition(";")[0]


def manifest_text(model: Any, content: mmap.mmap | bytes, key: str = KEY) -> str | None:
    """Return our manifest in the file's metadata, or what stands there under another key; None in a foreign file."""
    found = metadata_entry(model, content, key)
    return None if found is None else found.decode()


def metadata_entry(model: Any, content: mmap.mmap | bytes, key: str) -> bytes | None:
    """Return what the file's metadata have under `key`; None if there is no such entry."""
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        if bytes(entry.Name() or b"").decode(errors="replace") == key:
            buffer = model.Buffers(entry.Buffer())
            # Files above 2 GB have their buffers behind the flatbuffer, by offset.
            if buffer.DataLength():
                data = buffer.DataAsNumpy().tobytes()
            else:
                data = content[buffer.Offset() : buffer.Offset() + buffer.Size()]
            return bytes(data)
    return None


def to_tflite(array: Array, dtype: np.dtype[Any], port: Port) -> Array:
    """Convert a source array for the file's tensor of type `dtype`."""
    return _quantize(array, dtype, port) if port.scale else _cast(array, dtype, port.name)


def from_tflite(value: Array, port: Port) -> Array:
    """Convert the value of the file's tensor to the source's dtype."""
    if port.texts:
        return to_texts(value, port.texts)
    if port.scale:
        value = dequantize(value, port)
    return value if port.dtype in ("string", value.dtype.name) else value.astype(port.dtype)


def dequantize(value: Array, grid: Port | Tap) -> Array:
    """Return the float32 values of integers, as DequantizeLinear."""
    return np.asarray((value.astype(np.int32) - grid.zero_point) * np.float32(grid.scale), np.float32)


def _quantize(array: Array, dtype: np.dtype[Any], port: Port) -> Array:
    """Quantize as QuantizeLinear."""
    limits = np.iinfo(dtype)
    steps = np.round(array / np.float32(port.scale)) + port.zero_point
    return np.asarray(np.clip(steps, limits.min, limits.max).astype(dtype))


def _cast(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Cast a feed to the tensor's dtype: TFLite has int32 where many ONNX models have int64."""
    if array.dtype == dtype or dtype.kind in "OSU":
        return array.copy(order="C")  # ascontiguousarray would give a scalar an axis
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise UsageError(
                f"input {name!r} has values from {array.min()} to {array.max()}",
                why=f"the artefact holds it as {dtype.name}",
                fix=f"keep it within {limits.min} to {limits.max}",
            )
    return array.astype(dtype, order="C")


def cause(error: Exception) -> str:
    """Return the runtime's message in one line, without repeated lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:400] or type(error).__name__
