"""An ONNX model in memory, on top of onnx-ir, with its weights mapped from disk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import google.protobuf.message
import onnx
import onnx_ir as ir

from onnxport.core import limits
from onnxport.core.errors import CannotConvertError, InputError
from onnxport.formats.artifact import Artifact, Dim, TensorSpec
from onnxport.formats.constant_tensors import attribute_tensor
from onnxport.formats.initializers import external_initializers, store_external
from onnxport.formats.manifest import KEY, Manifest, Port
from onnxport.formats.model_limits import check_parts
from onnxport.formats.model_syntax import check_syntax
from onnxport.formats.output_shapes import infer_output_shapes, open_sizes
from onnxport.formats.repairs import mend
from onnxport.formats.zipmap import Labels, drop_zipmaps

# Bytes that protobuf serializes at most; larger models are saved with external data.
_PROTOBUF_LIMIT = 2**31 - 1
# Bytes of the graph itself (nodes, names, small tensors), beside `weight_bytes`.
_GRAPH_ALLOWANCE = 64 * 2**20

# Bytes of external weights above which a derived model has external data too; below, one file is easier to handle.
_APART = 256 * 2**20

_LONGEST_NAME = 200
_MOST_PACKED = 16  # elements in one number of a field of a tensor, of 2 bits in 32

# A node in messages of the checker and of onnx-ir: "name: add OpType: Add".
_NODE = re.compile(r"name: (.*?) OpType: (\w+)")
_MESSAGE_LINES, _MESSAGE_LENGTH = 3, 300
# Words of the ONNX checker -> the fix.
_REMEDIES = {
    "topologically sorted": "let every node read inputs, weights and results of other nodes, or export it again",
    "single static assignment": "give every value a name of its own, or export it again",
    "Field 'shape' of 'type'": "declare shapes for all inputs and outputs; sizes may be open, ranks not",
}

# Violations of the standard that tools write (onnxruntime's quantizer among them) and ONNX Runtime accepts.
_HARMLESS = (
    "topologically sorted",
    "in initializer but not in graph input",
    "No Op registered for LayerNormalization",
    "No Op registered for SimplifiedLayerNormalization",
    "Field 'shape' of 'type'",
)
# Operators that ONNX Runtime's optimizer writes into ONNX's domain, although the opset does not have them.
_ONNX_RUNTIMES_OWN = ("LayerNormalization", "SimplifiedLayerNormalization")
_FIRST_WITH_FREE_INITIALIZERS = 4  # IR version


class Signed(Protocol):
    """A model with typed inputs and outputs."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...


class Model:
    """An ONNX model: its graph, its signature, and its file, if any.

    Attributes:
        labels: outputs that are dictionaries in the file and a tensor here -> the labels of their columns.
        grown: bytes of weights that were computed from much smaller ones; constant folding counts them.
        mended: what the file says wrongly of itself, a note for each repair (`repairs.py`).
    """

    def __init__(self, graph_model: ir.Model, path: Path | None = None) -> None:
        self.ir = graph_model
        self.path = path
        self.labels: dict[str, Labels] = {}
        self.grown = 0
        self.mended: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Load an `.onnx` file without a final ZipMap; external data are mapped, not read.

        Raises:
            InputError: no ONNX model, rejected by the ONNX checker, or with missing or unsafe external data.
        """
        path = Artifact.open(path).path
        try:
            model = _load(path)
        except google.protobuf.message.DecodeError as error:
            raise _of_another_kind(path, "the file is truncated or of another kind") from error
        except (ir.serde.SerdeError, ValueError, TypeError, KeyError, AttributeError) as error:
            # onnx-ir raises these for graphs with undefined names.
            _check_external_entries(path)
            _refuse_dictionaries(path)
            _is_sorted(path, ())
            raise InputError(
                f"{path} cannot be read as an ONNX model", why=_message(error.__cause__ or error)
            ) from error
        if not model.outputs and not len(model.graph):
            raise _of_another_kind(path, "it holds no graph")
        if not model.ir.ir_version:
            raise _of_another_kind(path, "it says no IR version")
        if not model.outputs:
            raise InputError(
                f"{path} has no outputs", fix="declare the values that you need as graph outputs"
            )
        _check_external_data(model.ir, path)
        _check_stored_weights(model.ir, path)
        if not _is_sorted(path, model.mended):
            order = list(model.graph)
            model.graph.sort()
            if order != list(model.graph):
                model.mended += ("nodes stand before those whose results they read; they were sorted",)
        return model

    @property
    def graph(self) -> ir.Graph:
        return self.ir.graph

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The run-time inputs, in the file's order; without initializers, which IR 3 files list as inputs."""
        return tuple(spec_of(v) for v in self.graph.inputs if v.name not in self.graph.initializers)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec_of(value) for value in self.graph.outputs)

    @property
    def opset(self) -> int:
        """The version of the default domain's operator set."""
        return self.ir.opset_imports.get("", self.ir.opset_imports.get("ai.onnx", 1))

    @property
    def weight_bytes(self) -> int:
        tensors = (value.const_value for value in self.graph.initializers.values())
        return sum(t.nbytes for t in tensors if t is not None and t.dtype != ir.DataType.STRING)

    @property
    def external_files(self) -> tuple[Path, ...]:
        """The data files beside the model that hold its weights, each once, sorted."""
        return tuple(sorted({Path(tensor.path) for tensor in _external_tensors(self.ir)}))

    @property
    def intermediate_values(self) -> frozenset[str]:
        """The names of the values that nodes of the main graph compute, without the outputs."""
        computed = {value.name for node in self.graph for value in node.outputs if value.name}
        return frozenset(computed - {value.name for value in self.graph.outputs})

    @property
    def artifact(self) -> Artifact:
        """This model's file with its data files."""
        assert self.path is not None, "a model in memory is no artefact"
        return Artifact(self.path, "onnx", self.external_files)

    def noted(self, manifest: Manifest, source: Signed | None = None) -> Model:
        """Return a copy with `manifest` and this model's ports as a metadata property; dtypes are those of `source`."""
        dtypes = {spec.name: spec.dtype for spec in (*source.inputs, *source.outputs)} if source else {}
        inputs, outputs = (
            tuple(replace(_port(spec), dtype=dtypes.get(spec.name, spec.dtype)) for spec in specs)
            for specs in (self.inputs, self.outputs)
        )
        copy = self.clone()
        copy.ir.metadata_props[KEY] = replace(manifest, inputs=inputs, outputs=outputs).to_json()
        return copy

    def clone(self) -> Model:
        """Return a copy of the graph; the weights are shared."""
        copy = Model(self.ir.clone(), self.path)
        copy.grown = self.grown
        return copy

    def to_bytes(self) -> bytes | None:
        """Return the serialized model with its weights; None above protobuf's 2 GB."""
        if self.weight_bytes + _GRAPH_ALLOWANCE > _PROTOBUF_LIMIT:
            return None
        whole, external = self.ir, external_initializers(self.graph)
        if len(_external_tensors(whole)) > len(external):  # a copy takes as long as the rest
            whole, external = whole.clone(), {}
            ir.external_data.load_to_model(whole)
            _load_constants(whole)
        proto = ir.to_proto(whole)
        store_external(proto.graph, external)
        data: bytes = proto.SerializeToString(deterministic=True)
        return data

    def save(self, path: Path, source: Model | None = None) -> Artifact:
        """Write the model to `path`.

        Weights go to `<name>.data` beside it if they are too large for protobuf, or large and external in `source`, by
        default this model: from file to file, or one at a time as they are computed.
        """
        apart = (source or self).external_files and self.weight_bytes > _APART
        data = None if apart else self.to_bytes()
        if data is not None:
            path.write_bytes(data)
            return Artifact(path, "onnx")
        beside = path.name + ".data"
        copy = self.ir.clone()
        _load_constants(copy)
        ir.save(copy, path, external_data=beside)
        return Artifact(path, "onnx", (path.with_name(beside),))

    def map_weights(self) -> None:
        """Map external weights now, for threads that share them: onnx-ir asserts that no two map one at once."""
        for tensor, _ in _tensors(self.ir):
            if isinstance(tensor, ir.ExternalTensor):
                tensor.numpy()

    def release(self) -> None:
        """Free the memory of weights that were read from files."""
        for tensor, _ in _tensors(self.ir):
            if isinstance(tensor, ir.ExternalTensor):
                tensor.release()

    def hand_over(self, path: Path) -> None:
        """Write the model for another process on this machine, which reads it with `received`.

        External weights stay in their files. Weights in memory move to `<name>.data` beside `path`, for this model
        too, so that two processes need not hold them; at the next time to a further file.
        """
        copy = self.ir.clone() if self.external_files else self.ir
        for tensor, put in _tensors(copy):
            if isinstance(tensor, ir.ExternalTensor):
                place = Path(os.path.abspath(tensor.path))
                is_beside = place.parent == path.parent.absolute()
                put(_relocate(tensor, place.name if is_beside else os.fspath(place)))
        values = [(value, value.const_value) for value in copy.graph.initializers.values()]
        large = [(value, tensor) for value, tensor in values if tensor is not None and _is_large(tensor)]
        tensors = [tensor for _, tensor in large]
        names = (f"{path.name}{number or ''}.data" for number in count())
        name = next(each for each in names if not Path(path.parent, each).exists())
        beside = ir.external_data.convert_tensors_to_external(tensors, path.parent, name)
        for (value, _), tensor in zip(large, beside, strict=True):
            value.const_value = self.graph.initializers[value.name or ""].const_value = tensor
        ir.save(copy, path)

    @classmethod
    def received(cls, path: Path) -> Model:
        """Read the file of `hand_over`; weights are mapped, not read."""
        model = cls(ir.load(path), path)
        for tensor, _ in _tensors(model.ir):
            if isinstance(tensor, ir.ExternalTensor) and os.path.isabs(tensor.location):
                tensor.base_dir = ""  # outside this file's folder; `load` checked its place
        return model


def _load(path: Path) -> Model:
    """Read a file; lists of dictionaries, which onnx-ir cannot represent, become tensors."""
    proto = onnx.load(path, load_external_data=False)
    check_parts(proto, path)
    check_syntax(proto, path)
    mended = mend(proto)
    infer_output_shapes(proto)
    labels: dict[str, Labels] = {}
    try:
        graph_model = ir.from_proto(proto)
    except (ir.serde.SerdeError, TypeError):
        labels = drop_zipmaps(proto)
        if not labels:
            raise
        graph_model = ir.from_proto(proto)
    open_sizes(graph_model.graph)
    model = Model(graph_model, path)
    model.labels, model.mended = labels, mended
    return model


def rename(artifact: Artifact, name: str) -> Artifact:
    """Rename a saved `.onnx` model, which no other process uses, to `name`, and its data file as `save` names them."""
    path = artifact.path.with_name(name)
    if not artifact.companions or path == artifact.path:
        return artifact
    (data,) = artifact.companions
    beside = data.rename(path.with_name(path.name + ".data"))
    model = ir.load(artifact.path)
    for tensor, put in _tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            put(_relocate(tensor, beside.name))
    ir.save(model, path)
    artifact.path.unlink()
    return Artifact(path, "onnx", (beside,))


def _port(spec: TensorSpec) -> Port:
    shape = tuple(dim if isinstance(dim, int) else None for dim in spec.shape)
    return Port(spec.name, spec.name, spec.dtype, shape)


_LARGE = 1024  # bytes; smaller weights are not worth external data


def _is_large(tensor: ir.TensorProtocol) -> bool:
    external = isinstance(tensor, ir.ExternalTensor)
    return not external and tensor.dtype != ir.DataType.STRING and tensor.nbytes >= _LARGE


def _relocate(tensor: ir.ExternalTensor, location: str) -> ir.ExternalTensor:
    """Return the tensor with another path of its file."""
    return ir.ExternalTensor(
        location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name or ""
    )


_Put = Callable[[ir.TensorProtocol], None]


def _load_constants(model: ir.Model) -> None:
    """Load external tensors of Constant nodes: onnx-ir leaves them in their files when it saves a model."""
    for tensor, put in _tensors(model, initializers=False):
        if isinstance(tensor, ir.ExternalTensor):
            put(ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name))


def _tensors(model: ir.Model, *, initializers: bool = True) -> Iterator[tuple[ir.TensorProtocol, _Put]]:
    """Yield every tensor, or only those in nodes, each with the function that replaces it."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if initializers and value.const_value is not None:
                yield value.const_value, partial(setattr, value, "const_value")
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    yield attribute_tensor(attribute), partial(_set_tensor, node, name)


def _set_tensor(node: ir.Node, name: str, tensor: ir.TensorProtocol) -> None:
    node.attributes[name] = ir.AttrTensor(name, tensor)


def spec_of(value: ir.Value) -> TensorSpec:
    """Return the TensorSpec of a graph value; an unknown rank is an empty shape, an unknown dtype "unknown"."""
    return TensorSpec(value.name or "", dtype_name(value.dtype), dims_of(value))


def dims_of(value: ir.Value) -> tuple[Dim, ...]:
    """Return the value's dimensions: sizes, names of symbols, None where unknown."""
    if value.shape is None:
        return ()
    return tuple((dim if dim >= 0 else None) if isinstance(dim, int) else dim.value for dim in value.shape)


def dtype_name(dtype: ir.DataType | None) -> str:
    """Return NumPy's name of an ONNX element type."""
    if dtype is None or dtype == ir.DataType.UNDEFINED:
        return "unknown"
    if dtype == ir.DataType.STRING:
        return "string"
    return str(dtype.numpy().name)


def _external_tensors(model: ir.Model) -> list[ir.ExternalTensor]:
    """Return the external tensors of the graph, of the graphs inside it, and of the model's functions."""
    tensors: list[ir.TensorProtocol | None] = []
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for inner in (graph, *graph.subgraphs()):
            tensors += [value.const_value for value in inner.initializers.values()]
        for node in graph.all_nodes():
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensors.append(attribute_tensor(attribute))
                elif attribute.type == ir.AttributeType.TENSORS and not attribute.is_ref():
                    tensors += attribute.as_tensors()
    return [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]


def _check_external_data(model: ir.Model, path: Path) -> None:
    """Raise InputError for weights that are missing, too short, shared too often, or outside the model's folder.

    Afterwards onnx-ir checks each file again when it opens it; it does so for tensors that know their folder.
    """
    tensors = _external_tensors(model)
    for tensor in tensors:
        tensor.base_dir = path.parent  # "." is one, which onnx-ir's own "" is not
        where = f"weight {tensor.name!r} of {path} lies in {str(tensor.location)[:_LONGEST_NAME]!r}"
        try:
            _check_external_tensor(tensor, where, path.parent.resolve())
        except (OSError, ValueError, TypeError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"{where}, which cannot be read", why=why, fix="save the model again with its weights"
            ) from error
    described = sum(tensor.nbytes for tensor in tensors)
    stored = sum(file.stat().st_size for file in {Path(tensor.path) for tensor in tensors})
    if described > limits.limit("overlap") * stored:  # tied weights share some bytes, an attack all
        raise InputError(
            f"the weights of {path} take {described / 1e9:.1f} GB, and its data files have {stored / 1e9:.1f} GB",
            why="its weights overlap in them",
            fix="save the model again with its weights; "
            + limits.advice("overlap", described // max(stored, 1) + 1),
        )


def _check_external_tensor(tensor: ir.ExternalTensor, where: str, folder: Path) -> None:
    file = Path(tensor.path)
    again = "save the model again with its weights"
    if not tensor.location:
        raise InputError(f"{where.partition(' lies in')[0]} lies in a file without a name", fix=again)
    if not file.resolve().is_relative_to(folder):
        raise InputError(
            f"{where}, outside the model's folder",
            why="such a path could read any file of this machine",
            fix="put the data file beside the model and save it with a relative path",
        )
    if os.path.isabs(tensor.location):
        raise InputError(
            f"{where}, an absolute path",
            why="no other machine has it",
            fix="save the model with a path relative to its folder",
        )
    if file.is_file() and file.stat().st_nlink > 1:
        raise InputError(
            f"{where}, which has a second name elsewhere (a hard link)",
            why="onnx-ir refuses hard links: they could lead to any file of this machine",
            fix="copy the model and its data into a folder of their own",
        )
    if file.is_dir():
        raise InputError(f"{where}, which is a folder", fix=again)
    if not file.is_file():
        raise InputError(f"{where}, which does not exist", fix=f"put the file into {folder}")
    if any(not isinstance(dim, int) or dim < 0 for dim in tensor.shape):
        raise InputError(f"{where}, and its shape {tensor.shape} has a negative size", fix=again)
    if tensor.length not in (None, 0, tensor.nbytes):
        why = f"its shape {tensor.shape} takes {tensor.nbytes}"
        raise InputError(f"{where}, where it has {tensor.length} bytes", why=why, fix=again)
    if file.stat().st_size < (tensor.offset or 0) + tensor.nbytes:
        kind, fix = foreign_kind(file) or ("truncated", "copy or download it again")
        raise InputError(f"{where}, which is too short", why=f"the file is {kind}", fix=fix)


def _check_stored_weights(model: ir.Model, path: Path) -> None:
    """Raise InputError for weights in the file whose data do not fit their shapes; ONNX's checker lets them pass."""
    for tensor, _ in _tensors(model):
        if not isinstance(tensor, ir.TensorProtoTensor):
            continue
        try:
            _check_stored(tensor)
        except (ValueError, TypeError, OverflowError) as error:
            what = f"weight {tensor.name!r} of {path} cannot be read"
            raise InputError(what, why=_message(error), fix="export the model again") from error


def _check_stored(tensor: ir.TensorProtoTensor) -> None:
    """Raise ValueError or TypeError for a tensor whose data are not those of its type and shape."""
    proto = tensor.raw
    if proto.HasField("raw_data"):
        stored, wanted, unit = len(proto.raw_data), tensor.nbytes, "bytes"
        fits = stored == wanted
    else:
        if tensor.dtype == ir.DataType.UNDEFINED:
            raise TypeError("it has no element type")
        field = onnx.helper.tensor_dtype_to_field(tensor.dtype.value)
        stored, wanted, unit = len(getattr(proto, field)), tensor.size, "numbers"
        fits = wanted <= _MOST_PACKED * stored  # else reading it would fill the memory
    if not fits:
        raise ValueError(f"it has {stored} {unit}, and its shape {tensor.shape} takes {wanted}")
    if unit == "numbers":
        tensor.numpy()


def _check_external_entries(path: Path) -> None:
    """Raise InputError for offsets and lengths of external data that are no numbers; onnx-ir fails on them."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key in ("offset", "length") and not entry.value.isdecimal():
                raise InputError(
                    f"weight {tensor.name!r} of {path} has the {entry.key} {entry.value!r} in its data file",
                    why="that is not a number of bytes",
                    fix="save the model again with its weights",
                )


def _refuse_dictionaries(path: Path) -> None:
    """Raise CannotConvertError for lists of dictionaries (ZipMap), which onnx-ir cannot represent."""
    graph = onnx.load(path, load_external_data=False).graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        types = (value.type, value.type.sequence_type.elem_type)
        if any(each.WhichOneof("value") == "map_type" for each in types):
            raise CannotConvertError(
                f"{path} has dictionaries, which no target supports",
                why=f"{value.name!r} is one, or a list of them",
                fix="give it a tensor: remove its DictVectorizer, CastMap or inner ZipMap",
            )


def foreign_kind(path: Path) -> tuple[str, str] | None:
    """Return the kind of a file, by its first bytes, and the fix; None where they do not show it."""
    with path.open("rb") as file:
        head = file.read(64)
    if head[4:8] == b"TFL3":
        return "a TFLite model", "give it the extension .tflite"
    if head[4:8] == b"ORTM":
        return "a model in ONNX Runtime format", "give it the extension .ort"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself", "fetch it: git lfs pull"
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page", "download the file itself"
    return None


def _of_another_kind(path: Path, otherwise: str) -> InputError:
    """Return the error for a file that is no ONNX model, with its kind or `otherwise`."""
    kind, fix = foreign_kind(path) or ("", "")
    return InputError(f"{path} is not an ONNX model", why=f"it is {kind}" if kind else otherwise, fix=fix)


def _is_sorted(path: Path, mended: Sequence[str]) -> bool:
    """Return whether the nodes are sorted; raise InputError where the ONNX checker finds more than _HARMLESS.

    Args:
        mended: what `mend` repaired, which the checker does not see in the file.
    """
    try:
        onnx.checker.check_model(os.fspath(path))
    except _REFUSALS as error:
        if not mended and not any(words in str(error) for words in _HARMLESS):
            raise _invalid(path, error) from error
        _check_repaired(path, error)
        return False
    return True


def _check_repaired(path: Path, violation: Exception) -> None:
    """Check a copy without the harmless violations; whether the model runs is up to ONNX Runtime."""
    proto = onnx.load(path, load_external_data=False)
    mend(proto)
    if not infer_output_shapes(proto):
        raise _invalid(path, violation) from violation
    external = any(tensor.external_data for tensor in proto.graph.initializer)
    try:
        model = ir.from_proto(proto)
        if any(map(_is_undefined, _read_values(model))):
            raise violation
        model.graph.sort()
        for node in model.graph.all_nodes():
            if node.domain == "" and node.op_type in _ONNX_RUNTIMES_OWN:
                node.domain = "com.microsoft"
                model.opset_imports.setdefault("com.microsoft", 1)
        if not external:  # the checker looks for external data of a model in memory in the current folder
            model.ir_version = max(model.ir_version or 0, _FIRST_WITH_FREE_INITIALIZERS)
            onnx.checker.check_model(ir.to_proto(model))
    except _REFUSALS as error:
        raise _invalid(path, error) from error


def _read_values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield what nodes of the main graph and of those inside it read, and the outputs."""
    for graph in model.graphs():
        yield from graph.outputs
        for node in graph:
            yield from (value for value in node.inputs if value is not None)


def _is_undefined(value: ir.Value) -> bool:
    given = value.is_graph_input() or value.is_initializer() or value.const_value is not None
    return value.producer() is None and not given


_REFUSALS = (onnx.checker.ValidationError, ValueError, RuntimeError)


def _invalid(path: Path, error: Exception) -> InputError:
    message = _message(error)
    return InputError(
        f"{path} is not a valid ONNX model",
        why=f"the ONNX checker says: {message}",
        fix=next((remedy for words, remedy in _REMEDIES.items() if words in message), ""),
    )


def _message(error: BaseException) -> str:
    """Return the first lines of a library's message as one; the checker names the node in the second."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = _NODE.sub(r"'\1' (\2)", " ".join(lines[:_MESSAGE_LINES])).rstrip(".")
    return message[:_MESSAGE_LENGTH] or type(error).__name__
