"""LiteRT's C interface, with a profiler that no Python module of the wheel offers.

Constants and layouts are those of litert/c of LiteRT 2.2 (`litert_profiler_event.h`, `litert_model_types.h`,
`litert_layout.h`); options travel as TOML (`litert/c/options`).
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.profiling.litert_events import Event

_CPU = 1  # kLiteRtHwAcceleratorCpu
_WRITE = 1  # kLiteRtTensorBufferLockModeWrite
_MOST_DIMENSIONS = 8
_RANK_BITS = 0x7F  # the eighth bit is set if there are strides
_OK = 0
_HOST_MEMORY = 1  # kLiteRtTensorBufferTypeHostMemory


class _Usage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("total", "in_use", "private")]


class _Event(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("start", ctypes.c_uint64),
        ("elapsed", ctypes.c_uint64),
        ("before", _Usage),
        ("after", _Usage),
        ("node", ctypes.c_uint64),
        ("graph", ctypes.c_uint64),
        ("source", ctypes.c_int),
    ]


class _Layout(ctypes.Structure):
    _fields_ = [
        ("rank", ctypes.c_uint),
        ("dimensions", ctypes.c_int32 * _MOST_DIMENSIONS),
        ("strides", ctypes.c_uint32 * _MOST_DIMENSIONS),
    ]


class _Type(ctypes.Structure):
    _fields_ = [("element", ctypes.c_int), ("layout", _Layout)]


class ProfiledModel:
    """A `.tflite` file compiled for the CPU with the profiler on.

    Args:
        kernels: "delegate" for XNNPACK, "builtin" for LiteRT's own.

    Raises:
        MissingDependencyError: this ai-edge-litert has no such library.
        InputError: it cannot compile the model.
    """

    def __init__(self, path: Path, kernels: str, threads: int) -> None:
        self._path, self._library = path, _library()
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
        # Options point to these texts, which the library reads as long as the model lives.
        self._texts: list[Any] = []
        self._environment = self._create("LiteRtCreateEnvironment", 0, None)
        self._model = self._create("LiteRtCreateModelFromFile", self._environment, str(path).encode())
        options = self._create("LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        self._add(options, b"runtime_options_string", b"enable_profiling = true\n")
        self._add(options, b"xnnpack", f'kernel_mode = "{kernels}"\nnum_threads = {threads}\n'.encode())
        self._compiled = self._create("LiteRtCreateCompiledModel", self._environment, self._model, options)
        self._signature = self._create("LiteRtGetModelSignature", self._model, ctypes.c_size_t(0))
        self._profiler = self._create("LiteRtCompiledModelGetProfiler", self._compiled)
        self._inputs: Any = None
        self._outputs: Any = None

    def feed(self, arrays: Mapping[int, Array], answers: Mapping[int, Array]) -> None:
        """Set the inputs and allocate the outputs, both by the numbers of their tensors.

        Args:
            answers: the interpreter's outputs for the same inputs.
        """
        types = self._types("Input")
        for place, (tensor, kind) in enumerate(types):
            array = arrays[tensor]
            if array.shape != _shape(kind):
                sizes = (ctypes.c_int * array.ndim)(*array.shape)
                resize = "LiteRtCompiledModelResizeInputTensorNonStrict"
                self._call(
                    resize,
                    self._compiled,
                    ctypes.c_size_t(0),
                    ctypes.c_size_t(place),
                    sizes,
                    ctypes.c_size_t(array.ndim),
                )
                kind.layout = _layout(array.shape)
        self._inputs = self._buffers([kind for _, kind in types])
        for buffer, (tensor, _) in zip(self._inputs, types, strict=True):
            self._write(ctypes.c_void_p(buffer), np.ascontiguousarray(arrays[tensor]).tobytes())
        made = []
        for tensor, kind in self._types("Output"):
            # LiteRT does not know sizes that depend on computed values.
            answer = answers[tensor]
            kind.layout = _layout(answer.shape)
            size = ctypes.c_size_t(max(answer.nbytes, 1))
            create = "LiteRtCreateManagedTensorBuffer"
            made.append(self._create(create, self._environment, _HOST_MEMORY, ctypes.byref(kind), size))
        self._outputs = (ctypes.c_void_p * len(made))(*made)

    def run(self) -> None:
        """Run it once with the profiler; `events` returns those of the last run."""
        self._call("LiteRtStartProfiler", self._profiler)
        self._call(
            "LiteRtRunCompiledModel",
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(len(self._inputs)),
            self._inputs,
            ctypes.c_size_t(len(self._outputs)),
            self._outputs,
        )
        self._call("LiteRtStopProfiler", self._profiler)

    def events(self) -> list[Event]:
        count = ctypes.c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        events = (_Event * count.value)()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        return [
            Event(
                each.tag.decode(errors="replace"), each.kind, each.start, each.elapsed, each.node, each.graph
            )
            for each in events
        ]

    def _types(self, end: str) -> list[tuple[int, _Type]]:
        """Return the number and type of each input's or output's tensor, in the order of the signature."""
        count, found = ctypes.c_size_t(), []
        self._call(f"LiteRtGetNumSignature{end}s", self._signature, ctypes.byref(count))
        for place in range(count.value):
            tensor = self._create(
                f"LiteRtGetSignature{end}TensorByIndex", self._signature, ctypes.c_size_t(place)
            )
            number, kind = ctypes.c_uint32(), _Type()
            self._call("LiteRtGetTensorIndex", tensor, ctypes.byref(number))
            self._call("LiteRtGetRankedTensorType", tensor, ctypes.byref(kind))
            found.append((number.value, kind))
        return found

    def _buffers(self, kinds: Sequence[_Type]) -> Any:
        """Allocate the inputs."""
        made = []
        for place, kind in enumerate(kinds):
            wanted = self._create(
                "LiteRtGetCompiledModelInputBufferRequirements",
                self._compiled,
                ctypes.c_size_t(0),
                ctypes.c_size_t(place),
            )
            create = "LiteRtCreateManagedTensorBufferFromRequirements"
            made.append(self._create(create, self._environment, ctypes.byref(kind), wanted))
        return (ctypes.c_void_p * len(made))(*made)

    def _write(self, buffer: ctypes.c_void_p, data: bytes) -> None:
        address = self._create("LiteRtLockTensorBuffer", buffer, after=(_WRITE,))
        ctypes.memmove(address, data, len(data))
        self._call("LiteRtUnlockTensorBuffer", buffer)

    def _add(self, options: ctypes.c_void_p, name: bytes, text: bytes) -> None:
        buffer = ctypes.create_string_buffer(text)
        self._texts.append(buffer)
        opaque = self._create(
            "LiteRtCreateOpaqueOptions", name, ctypes.cast(buffer, ctypes.c_void_p), self._free
        )
        self._call("LiteRtAddOpaqueOptions", options, opaque)

    def _create(self, function: str, *arguments: Any, after: tuple[Any, ...] = ()) -> ctypes.c_void_p:
        """Call a function and return what it writes to the pointer behind its arguments."""
        handle = ctypes.c_void_p()
        self._call(function, *arguments, ctypes.byref(handle), *after)
        return handle

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != _OK:
            raise InputError(
                f"LiteRT cannot profile {self._path}",
                why=f"{function} ends with status {status} (litert_common.h)",
            )


def _library() -> Any:
    """Load libLiteRt of the installed wheel."""
    for file in importlib.metadata.files("ai-edge-litert") or ():
        if file.name.split(".")[0] in ("libLiteRt", "LiteRt"):
            return ctypes.CDLL(str(file.locate()))
    version = importlib.metadata.version("ai-edge-litert")
    raise MissingDependencyError(
        f"ai-edge-litert {version} has no profiler",
        why="it lacks the library libLiteRt",
        fix="install a newer one: pip install -U ai-edge-litert",
    )


def _shape(kind: _Type) -> tuple[int, ...]:
    return tuple(kind.layout.dimensions)[: kind.layout.rank & _RANK_BITS]


def _layout(shape: Sequence[int]) -> _Layout:
    return _Layout(len(shape), (ctypes.c_int32 * _MOST_DIMENSIONS)(*shape))
