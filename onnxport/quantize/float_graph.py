"""The float graph that is quantized: the model as ONNX Runtime simplifies it, in ONNX's operators.

ONNX Runtime's basic level folds constants and removes nodes without effect. canonical_operators.py and
channel_fusion.py then rewrite it. Opening a session is expensive: calibration loads the file that it writes.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError
from onnxport.formats.model import Model
from onnxport.formats.output_shapes import open_sizes
from onnxport.optimizers import shape_inference
from onnxport.optimizers.float16.float32_form import is_narrow, widen
from onnxport.optimizers.opset import lift
from onnxport.quantize.canonical_operators import canonicalize_operators
from onnxport.quantize.channel_fusion import fold_into_products
from onnxport.runtimes.ort.offline_optimizer import write_optimized

# DequantizeLinear has an axis since 13, int16 since 21.
OLDEST_OPSET = 13
INT16_OPSET = 21
# An older model might as well have HardSwish.
_LIFTED_TO = 14
# Above this, weights go to a file beside the graph, which is mapped: several programs write and read the graph.
_LARGE = 2**20  # bytes
_CHUNK = 2**20
# Words of ONNX Runtime where it cannot write the file of weights.
_UNWRITTEN = "Failed to write external initializers"
# What ONNX Runtime raises for a model that it does not take.
REFUSALS = (
    state.EPFail,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.NotImplemented,
    state.RuntimeException,
)


@dataclass(frozen=True)
class FloatGraph:
    """A simplified float graph."""

    # Every node and value in it has a name, shapes are inferred anew; inputs and outputs are the source's.
    model: Model
    # A file of the same graph, with the same names of values, that calibration's sessions load; scaling channels in
    # `model` leaves it as it is.
    path: Path
    notes: tuple[str, ...] = ()  # sentences for the user
    # Name of a product's result in the source to what each of its channels is divided by; see
    # accuracy/equalization.py.
    factors: Mapping[str, Array] = field(default_factory=dict)


def simplify_for_quantization(model: Model, folder: Path, *, opset: int = OLDEST_OPSET) -> FloatGraph:
    """Simplify a copy of `model`, lifted to `opset` if it is older.

    Args:
        model: as it was loaded; its file is what ONNX Runtime reads.
        folder: for files that have to live as long as the result.

    Raises:
        LiftError: nodes that have no form in `opset`.
        InputError: ONNX Runtime cannot load the model.
    """
    # A file with ZipMaps is not what was loaded.
    source, notes = model.clone() if model.labels else model, list[str]()
    if model.opset < opset:
        source = model.clone()
        if source.ir.functions:
            common.InlinePass()(source.ir)
        lift(source.ir, max(opset, _LIFTED_TO))
        notes.append(f"lifted from opset {model.opset} to {source.opset}: quantized operators need {opset}")
    if is_narrow(source):
        source = source if source is not model else model.clone()
        widen(source)
        notes.append("the model computes in float16: its float32 form was quantized")
    if source.path is None or source is not model:
        source.hand_over(folder / "source.onnx")
        source.path = folder / "source.onnx"
    path = folder / "settled.onnx"
    _optimize(source, path)
    graph_model = Model(ir.load(path), path)
    was_open = open_sizes(graph_model.graph)
    _restore_signature(graph_model, model)
    shape_inference.infer(graph_model)
    _name_nodes(graph_model.graph)
    changed = canonicalize_operators(graph_model.graph, graph_model.opset)
    if fold_into_products(graph_model.graph) or changed or was_open:
        if graph_model.external_files:
            graph_model.hand_over(path)
        else:
            graph_model.save(path)
    return FloatGraph(graph_model, path, tuple(notes))


def _optimize(model: Model, path: Path) -> None:
    """Have ONNX Runtime write the simplified graph of `model` to `path`.

    It would leave external weights where the source has them, at a place relative to another folder.
    """
    assert model.path is not None
    has_data_file = model.weight_bytes > _LARGE or bool(model.external_files)
    try:
        write_optimized(
            model,
            model.path,
            path,
            once_in_a_job=True,
            level="basic",
            threads=1,
            prepacking=False,
            optimized_weights=path.name + ".data" if has_data_file else "",
        )
    except REFUSALS as error:
        said = " ".join(str(error).split())
        if _UNWRITTEN in said:
            raise _write_error(path, model.path) from error
        raise InputError(f"ONNX Runtime cannot load {model.path}", why=said) from error
    except state.InvalidProtobuf as error:  # it could not write
        raise _write_error(path, model.path) from error


def _write_error(path: Path, source: Path | None) -> OSError:
    """Return the operating system's reason for a failed write, which ONNX Runtime does not report."""
    size = source.stat().st_size if source is not None else 0
    try:
        with path.open("wb") as stream:
            for _ in range(size // _CHUNK + 1):
                stream.write(bytes(_CHUNK))
    except OSError as refusal:
        return refusal
    return OSError(errno.EIO, "ONNX Runtime could not write the graph that it simplified")


def _restore_signature(settled_model: Model, source: Model) -> None:
    """Restore the declarations and domains that ONNX Runtime does not keep."""
    graph = settled_model.graph
    inputs = [value for value in source.graph.inputs if value.name not in source.graph.initializers]
    # Weights that files of old exporters list as inputs; ONNX Runtime keeps the input of one that nothing reads.
    names = {value.name for value in inputs}
    graph.inputs[:] = [value for value in graph.inputs if value.name in names]
    for own, theirs in zip((*graph.inputs, *graph.outputs), (*inputs, *source.graph.outputs), strict=True):
        own.type, own.shape = theirs.type, theirs.shape
    used = {node.domain for node in graph.all_nodes()} | {""}
    for domain in [each for each in settled_model.ir.opset_imports if each not in used]:
        del settled_model.ir.opset_imports[domain]
    settled_model.ir.metadata_props.update(source.ir.metadata_props)
    graph.name = source.graph.name
    for attribute in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(settled_model.ir, attribute, getattr(source.ir, attribute))


def _name_nodes(graph: ir.Graph) -> None:
    """Give every node a unique name: its own, or its operator's with its first result's."""
    taken: set[str] = set()
    for node in graph:
        name = node.name or f"{node.op_type}_{node.outputs[0].name}"
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name
