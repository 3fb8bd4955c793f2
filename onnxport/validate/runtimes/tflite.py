"""LiteRT's interpreter (XNNPACK on the CPU) behind the Runtime contract.

An artefact of ours says in its manifest how its tensors are called and permuted and which dtypes the source had;
a foreign `.tflite` is taken by its signature, or by its tensors' names where it has none.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.artifact import TensorSpec
from onnxport.closing import Closing
from onnxport.errors import InputError, UsageError
from onnxport.manifest import KEY, Manifest, Port, Tap
from onnxport.validate.runtimes.base import Array, Feeds, RunError, check_feeds, check_taps
from onnxport.validate.runtimes.options import RuntimeOptions

_IDENTIFIER = b"TFL3"  # bytes 4 to 8 of every TFLite file
_SIGNATURE = "serving_default"
# The interpreter's own kernels, without XNNPACK.
_PLAIN = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
_DEFAULT = RuntimeOptions()
_KEEPS_STATE = (
    "the .tflite keeps a state inside from one run to the next, which ONNX does not: it was reset before every run, "
    "and an app has to do the same (Interpreter.reset_all_variables)"
)


@dataclass(frozen=True)
class _Ends:
    """The artefact's inputs and outputs with the index of each one's tensor, in the order of the source."""

    inputs: tuple[tuple[Port, int], ...]
    outputs: tuple[tuple[Port, int], ...]
    taps: Mapping[str, Tap]
    keeps_state: bool


class TfliteRuntime(Closing):
    """A `.tflite` file in LiteRT's interpreter.

    `inputs` and `outputs` carry the source's names and dtypes, and the artefact's own (permuted) shapes.

    Args:
        path: the file.
        options: delegate and threads.
        noted: read our note in it, which has the source's names and dtypes; else what the file itself says.

    Raises:
        InputError: not a TFLite file, or one that the interpreter cannot load.
    """

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT, *, noted: bool = True) -> None:
        self._path, self._options = path, options
        self._ends = _read_ends(path, noted)
        plain = options.delegate == "none"
        self._interpreter = self._open(**_PLAIN) if plain else self._open()
        self._tapping: Any = None
        self._shapes: dict[int, dict[int, tuple[int, ...]]] = {}

    @property
    def name(self) -> str:
        plain = ", built-in kernels" if self._options.delegate == "none" else ""
        return f"LiteRT {version('ai-edge-litert')}, CPU{plain}"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(port.spec for port, _ in self._ends.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(port.spec for port, _ in self._ends.outputs)

    @property
    def permutations(self) -> Mapping[str, tuple[int, ...]]:
        """Name of each input and output that is permuted: axis i is axis permutation[i] of the source."""
        return {port.name: port.permutation for port, _ in self._ports() if port.permutation}

    @property
    def taps(self) -> frozenset[str]:
        return frozenset(self._ends.taps)

    @property
    def tensors(self) -> Mapping[str, str]:
        """Name of each input and output to that of its tensor in the file."""
        details = (*self._interpreter.get_input_details(), *self._interpreter.get_output_details())
        names = {detail["index"]: detail["name"] for detail in details}
        return {port.name: names[index] for port, index in self._ports()}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an app that runs the file has to know, in sentences."""
        state = (_KEEPS_STATE,) if self._ends.keeps_state else ()
        quantized = [(port, index) for port, index in self._ports() if port.scale]
        return (*state, *(_stored_as(port, self._stored_dtype(index)) for port, index in quantized))

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`. Taps run without XNNPACK, which keeps no intermediate values."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        interpreter = self._tapped() if taps else self._interpreter
        try:
            self._feed(interpreter, feeds)
            interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            self._shapes.pop(id(interpreter), None)
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            raise RunError(f"LiteRT cannot run {self._path} on {shapes}", why=_cause(error)) from error
        outputs = {port.name: _fetch(interpreter, port, index) for port, index in self._ends.outputs}
        return outputs | {name: self._tap(interpreter, name) for name in taps}

    def _stored_dtype(self, index: int) -> str:
        details = (*self._interpreter.get_input_details(), *self._interpreter.get_output_details())
        return next(str(np.dtype(each["dtype"])) for each in details if each["index"] == index)

    def _ports(self) -> tuple[tuple[Port, int], ...]:
        return (*self._ends.inputs, *self._ends.outputs)

    def close(self) -> None:
        self._interpreter = self._tapping = None

    def _open(self, **options: Any) -> Any:
        try:
            with _quiet_stderr():
                return Interpreter(os.fspath(self._path), num_threads=self._options.threads, **options)
        except (ValueError, RuntimeError) as error:
            raise InputError(f"LiteRT cannot load {self._path}", why=_cause(error)) from error

    def _tapped(self) -> Any:
        """A second interpreter that keeps every intermediate value; no delegate does."""
        if self._tapping is None:
            self._tapping = self._open(experimental_preserve_all_tensors=True, **_PLAIN)
        return self._tapping

    def _feed(self, interpreter: Any, feeds: Feeds) -> None:
        """Sets the inputs, resizing and allocating only when a shape changed; forgets the last run's state."""
        shapes = {index: feeds[port.name].shape for port, index in self._ends.inputs}
        current = self._shapes.get(id(interpreter))
        if shapes != current:
            for index, shape in shapes.items():
                interpreter.resize_tensor_input(index, shape)
            with _quiet_stderr():
                interpreter.allocate_tensors()
            self._shapes[id(interpreter)] = shapes
        # A fused LSTM keeps its state from one invoke to the next; ONNX has no state.
        interpreter.reset_all_variables()
        wanted = {detail["index"]: detail["dtype"] for detail in interpreter.get_input_details()}
        for port, index in self._ends.inputs:
            given, dtype = feeds[port.name], np.dtype(wanted[index])
            interpreter.set_tensor(
                index, _quantized(given, dtype, port) if port.scale else _cast(given, dtype, port.name)
            )

    def _tap(self, interpreter: Any, name: str) -> Array:
        """An intermediate value, its axes back in the source's order."""
        tap = self._ends.taps[name]
        index = next(
            detail["index"]
            for detail in interpreter.get_tensor_details()
            if _leading_name(detail["name"]) == tap.key
        )
        value = _read(interpreter, index)
        return value.transpose(np.argsort(tap.permutation)) if tap.permutation else value


def _stored_as(port: Port, dtype: str) -> str:
    return (
        f"{port.name!r} is {dtype} in the file, which stands for {port.scale:.6g} * (integer - {port.zero_point}); "
        f"an app gives or takes these integers, onnxport {port.dtype}"
    )


def _fetch(interpreter: Any, port: Port, index: int) -> Array:
    value = _read(interpreter, index)
    if port.scale:
        return np.asarray(
            ((value.astype(np.int32) - port.zero_point) * np.float32(port.scale)).astype(port.dtype)
        )
    return value if port.dtype in ("string", value.dtype.name) else value.astype(port.dtype)


def _quantized(array: Array, dtype: np.dtype[Any], port: Port) -> Array:
    """The integers that an artefact with quantized inputs wants of floats, as QuantizeLinear makes them."""
    limits = np.iinfo(dtype)
    steps = np.round(array / np.float32(port.scale)) + port.zero_point
    return np.asarray(np.clip(steps, limits.min, limits.max).astype(dtype))


def _read(interpreter: Any, index: int) -> Array:
    """A tensor's value; the interpreter itself gives no tensor without elements."""
    details = interpreter._get_tensor_details(index, 0)
    if 0 in details["shape"]:
        return np.zeros(details["shape"], details["dtype"])
    return np.array(interpreter.get_tensor(index))


def _cast(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """The feed in the tensor's own dtype: TFLite has int32 where many ONNX models have int64."""
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


def _read_ends(path: Path, noted: bool) -> _Ends:
    """What the file says of its inputs, outputs and intermediate values.

    Raises:
        InputError: not a TFLite file, or a damaged one.
    """
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if content[4:8] != _IDENTIFIER:
            from onnxport.model import foreign_kind

            kind, way_out = foreign_kind(path) or ("", "")
            why = f"it is {kind}" if kind else "its file identifier is not TFL3"
            raise InputError(f"{path} is not a TFLite model", why=why, fix=way_out)
        return _ends(schema.Model.GetRootAs(content, 0), content, noted)
    except (struct.error, IndexError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} is truncated or damaged", fix="copy, download or convert it again"
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _ends(model: Any, content: mmap.mmap, noted: bool) -> _Ends:
    graph = model.Subgraphs(0)
    inputs = [graph.Inputs(i) for i in range(graph.InputsLength())]
    outputs = [graph.Outputs(i) for i in range(graph.OutputsLength())]
    named_inputs, named_outputs = _signature(model, graph, inputs, outputs)
    manifest = _manifest(model, content) if noted else None
    keeps_state = any(graph.Tensors(i).IsVariable() for i in range(graph.TensorsLength()))
    if manifest is None:
        return _Ends(
            tuple((_port(graph, name, index), index) for name, index in named_inputs.items()),
            tuple((_port(graph, name, index), index) for name, index in named_outputs.items()),
            {},
            keeps_state,
        )
    names = {_leading_name(_name(graph.Tensors(i))) for i in range(graph.TensorsLength())}
    return _Ends(
        tuple((port, named_inputs[port.key]) for port in manifest.inputs),
        tuple((port, named_outputs[port.key]) for port in manifest.outputs),
        {name: tap for name, tap in manifest.taps.items() if tap.key in names},
        keeps_state,
    )


def _signature(
    model: Any, graph: Any, inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Name to tensor index of the inputs and the outputs, in the subgraph's order."""
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
    return _ordered(ends, inputs), _ordered(results, outputs)


def _ordered(maps: Sequence[Any], order: Sequence[int]) -> dict[str, int]:
    """A signature lists its names alphabetically; the subgraph keeps the order of the source."""
    named = {bytes(entry.Name()).decode(): entry.TensorIndex() for entry in maps}
    return dict(sorted(named.items(), key=lambda item: order.index(item[1])))


def _port(graph: Any, name: str, index: int) -> Port:
    tensor = graph.Tensors(index)
    signature = tensor.ShapeSignatureAsNumpy() if tensor.ShapeSignatureLength() else tensor.ShapeAsNumpy()
    shape = (
        tuple(None if size < 0 else int(size) for size in np.atleast_1d(signature)) if _rank(tensor) else ()
    )
    return Port(name, name, _dtype(tensor.Type()), shape)


def _rank(tensor: Any) -> int:
    return int(tensor.ShapeLength())


def _dtype(element: int) -> str:
    """NumPy's name of a schema TensorType."""
    names = {value: name for name, value in vars(schema.TensorType).items() if isinstance(value, int)}
    name: str = names[element]
    return name.lower()


def _name(tensor: Any) -> str:
    return bytes(tensor.Name() or b"").decode(errors="replace")


def _leading_name(name: str) -> str:
    """The compiler joins the names of what it fused by semicolons; the first is the value that comes out."""
    return name.partition(";")[0]


def _manifest(model: Any, content: mmap.mmap) -> Manifest | None:
    """Our own note in the file's metadata; None in a foreign file."""
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        if bytes(entry.Name() or b"").decode(errors="replace") == KEY:
            buffer = model.Buffers(entry.Buffer())
            # Files above 2 GB keep their buffers behind the flatbuffer, by offset.
            if buffer.DataLength():
                data = buffer.DataAsNumpy().tobytes()
            else:
                data = content[buffer.Offset() : buffer.Offset() + buffer.Size()]
            return Manifest.from_json(data.decode())
    return None


def _cause(error: Exception) -> str:
    """The runtime's message in one line, without repetition of the same line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:400] or type(error).__name__


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Sends file descriptor 2 to nowhere: LiteRT prints INFO lines there that no setting silences.

    What goes wrong comes as an exception. Only around start-up, since other threads print there too.
    """
    try:
        kept = os.dup(2)
    except OSError:  # a process without stderr
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
