"""LiteRT's interpreter, with XNNPACK on the CPU; formats/tflite/ports.py reads names, dtypes and permutations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.manifest import Port
from onnxport.formats.tflite.ports import (
    cause,
    dequantize,
    from_tflite,
    leading_name,
    read_signature,
    to_tflite,
)
from onnxport.runtimes.base import RunError, check_feeds, check_taps, format_shapes
from onnxport.runtimes.native_output import drop_stderr
from onnxport.runtimes.options import RuntimeOptions

# The interpreter's own kernels, without XNNPACK.
_BUILT_IN = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
_DEFAULT = RuntimeOptions()
_KEEPS_STATE = (
    "the .tflite keeps a state from one run to the next, ONNX does not: onnxport reset it before every run, and an app "
    "must do the same (Interpreter.reset_all_variables)"
)


class TfliteRuntime(Closing):
    """A `.tflite` file in LiteRT's interpreter; inputs and outputs have the file's (permuted) shapes.

    Args:
        options: `delegate` and `threads`.
        noted: take the source's names and dtypes from our manifest in the file; else those of the file itself.

    Raises:
        InputError: no TFLite file, or one that the interpreter cannot load.
    """

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT, *, noted: bool = True) -> None:
        self._path, self._options = path, options
        self._ends = read_signature(path, noted)
        self.inputs = tuple(port.spec for port, _ in self._ends.inputs)
        self.outputs = tuple(port.spec for port, _ in self._ends.outputs)
        self.taps = frozenset(self._ends.taps)
        self._ports = (*self._ends.inputs, *self._ends.outputs)
        self._interpreter = self._open(**_BUILT_IN) if options.delegate == "none" else self._open()
        self._tapping: Any = None
        self._shapes: dict[int, dict[int, tuple[int, ...]]] = {}

    @property
    def name(self) -> str:
        kernels = ", built-in kernels" if self._options.delegate == "none" else ""
        return f"LiteRT {version('ai-edge-litert')}, CPU{kernels}"

    @property
    def permutations(self) -> Mapping[str, tuple[int, ...]]:
        """Name of each permuted input and output -> permutation: axis i is axis permutation[i] of the source."""
        return {port.name: port.permutation for port, _ in self._ports if port.permutation}

    @property
    def tensors(self) -> Mapping[str, str]:
        """Name of each input and output -> name of its tensor in the file."""
        return {port.name: self._details[index]["name"] for port, index in self._ports}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the report: what an app that runs the file must know."""
        state = (_KEEPS_STATE,) if self._ends.keeps_state else ()
        quantized = [
            (port, np.dtype(self._details[index]["dtype"])) for port, index in self._ports if port.scale
        ]
        return (*state, *(_storage_remark(port, str(dtype)) for port, dtype in quantized))

    @property
    def _details(self) -> dict[int, dict[str, Any]]:
        """The interpreter's details of the inputs and outputs, by tensor index."""
        details = (*self._interpreter.get_input_details(), *self._interpreter.get_output_details())
        return {detail["index"]: detail for detail in details}

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`. With taps it runs without XNNPACK, which keeps no intermediate values."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        interpreter = self._tapping_interpreter() if taps else self._interpreter
        try:
            self._feed(interpreter, feeds)
            interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            self._shapes.pop(id(interpreter), None)
            raise RunError(
                f"LiteRT cannot run {self._path} on {format_shapes(feeds)}", why=cause(error)
            ) from error
        outputs = {
            port.name: from_tflite(_read(interpreter, index), port) for port, index in self._ends.outputs
        }
        return outputs | {name: self._tap(interpreter, name) for name in taps}

    def close(self) -> None:
        self._interpreter = self._tapping = None

    def _open(self, **options: Any) -> Any:
        try:
            with drop_stderr():
                return Interpreter(os.fspath(self._path), num_threads=self._options.threads, **options)
        except (ValueError, RuntimeError) as error:
            raise InputError(f"LiteRT cannot load {self._path}", why=cause(error)) from error

    def _tapping_interpreter(self) -> Any:
        """Return a second interpreter, which keeps every intermediate value; no delegate does."""
        if self._tapping is None:
            self._tapping = self._open(experimental_preserve_all_tensors=True, **_BUILT_IN)
        return self._tapping

    def _feed(self, interpreter: Any, feeds: Feeds) -> None:
        """Set the inputs and reset the state; resize and allocate only where a shape changed."""
        shapes = {index: feeds[port.name].shape for port, index in self._ends.inputs}
        current = self._shapes.get(id(interpreter))
        if shapes != current:
            for index, shape in shapes.items():
                interpreter.resize_tensor_input(index, shape)
            with drop_stderr():
                interpreter.allocate_tensors()
            self._shapes[id(interpreter)] = shapes
        # A fused LSTM keeps its state from one invoke to the next; ONNX has no state.
        interpreter.reset_all_variables()
        wanted = {detail["index"]: detail["dtype"] for detail in interpreter.get_input_details()}
        for port, index in self._ends.inputs:
            given, dtype = feeds[port.name], np.dtype(wanted[index])
            interpreter.set_tensor(index, to_tflite(given, dtype, port))

    def _tap(self, interpreter: Any, name: str) -> Array:
        """Return an intermediate value with its axes in the source's order."""
        tap = self._ends.taps[name]
        index = next(
            detail["index"]
            for detail in interpreter.get_tensor_details()
            if leading_name(detail["name"]) == tap.key
        )
        value = _read(interpreter, index)
        if tap.scale:
            value = dequantize(value, tap)
        return value.transpose(np.argsort(tap.permutation)) if tap.permutation else value


def _storage_remark(port: Port, dtype: str) -> str:
    return (
        f"{port.name!r} is {dtype} in the file, its value is {port.scale:.6g} * (integer - {port.zero_point}); "
        f"an app feeds or reads these integers, onnxport {port.dtype}"
    )


def _read(interpreter: Any, index: int) -> Array:
    """Return a tensor's value; the interpreter itself returns no tensor without elements."""
    details = interpreter._get_tensor_details(index, 0)
    if 0 in details["shape"]:
        return np.zeros(details["shape"], details["dtype"])
    return np.array(interpreter.get_tensor(index))
