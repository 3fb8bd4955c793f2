"""LiteRT's interpreter (XNNPACK on the CPU) behind the Runtime contract.

An artefact of ours says in its manifest how its tensors are called and permuted and which dtypes the source had;
a foreign `.tflite` is taken by its signature, or by its tensors' names where it has none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.manifest import Port
from onnxport.formats.tflite.ports import cause, leading_name, read_ends, restored, stored
from onnxport.runtimes.base import RunError, check_feeds, check_taps
from onnxport.runtimes.options import RuntimeOptions

# The interpreter's own kernels, without XNNPACK.
_PLAIN = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
_DEFAULT = RuntimeOptions()
_KEEPS_STATE = (
    "the .tflite keeps a state inside from one run to the next, which ONNX does not: it was reset before every run, "
    "and an app has to do the same (Interpreter.reset_all_variables)"
)


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
        self._ends = read_ends(path, noted)
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
            raise RunError(f"LiteRT cannot run {self._path} on {shapes}", why=cause(error)) from error
        outputs = {port.name: restored(_read(interpreter, index), port) for port, index in self._ends.outputs}
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
            raise InputError(f"LiteRT cannot load {self._path}", why=cause(error)) from error

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
            interpreter.set_tensor(index, stored(given, dtype, port))

    def _tap(self, interpreter: Any, name: str) -> Array:
        """An intermediate value, its axes back in the source's order."""
        tap = self._ends.taps[name]
        index = next(
            detail["index"]
            for detail in interpreter.get_tensor_details()
            if leading_name(detail["name"]) == tap.key
        )
        value = _read(interpreter, index)
        return value.transpose(np.argsort(tap.permutation)) if tap.permutation else value


def _stored_as(port: Port, dtype: str) -> str:
    return (
        f"{port.name!r} is {dtype} in the file, which stands for {port.scale:.6g} * (integer - {port.zero_point}); "
        f"an app gives or takes these integers, onnxport {port.dtype}"
    )


def _read(interpreter: Any, index: int) -> Array:
    """A tensor's value; the interpreter itself gives no tensor without elements."""
    details = interpreter._get_tensor_details(index, 0)
    if 0 in details["shape"]:
        return np.zeros(details["shape"], details["dtype"])
    return np.array(interpreter.get_tensor(index))


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
