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

_size = ctypes.c_size_t
_pointer = ctypes.c_void_p
_CPU = 1  # kLiteRtHwAcceleratorCpu
_WRITE = 1  # kLiteRtTensorBufferLockModeWrite
_MOST_DIMENSIONS = 8
_RANK_BITS = 0x7F  # the eighth bit is set if there are strides
_OK = 0
_HOST_MEMORY = 1  # kLiteRtTensorBufferTypeHostMemory


class _Usage(ctypes.Structure):
    _fields_ = [(name, _size) for name in ("total", "in_use", "private")]


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

    @classmethod
    def of(cls, shape: Sequence[int]) -> _Layout:
        return cls(len(shape), (ctypes.c_int32 * _MOST_DIMENSIONS)(*shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dimensions)[: self.rank & _RANK_BITS]


class _Type(ctypes.Structure):
    _fields_ = [("element", ctypes.c_int), ("layout", _Layout)]


class ProfiledModel:
    """A `.tflite` file compiled for the CPU, with the profiler on.

    `kernels` are "delegate" for XNNPACK's, "builtin" for LiteRT's own.

    Raises:
        MissingDependencyError: this ai-edge-litert has no such library.
        InputError: it cannot compile the model.
    """

    def __init__(self, path: Path, kernels: str, threads: int) -> None:
        self._path, self._library = path, _library()
        self._free = ctypes.CFUNCTYPE(None, _pointer)(lambda _: None)
        # Options point to these texts, which the library reads as long as the model lives.
        self._texts: list[Any] = []
        self._environment = self._create("LiteRtCreateEnvironment", 0, None)
        self._model = self._create("LiteRtCreateModelFromFile", self._environment, str(path).encode())
        options = self._create("LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        for name, text in (
            (b"runtime_options_string", "enable_profiling = true\n"),
            (b"xnnpack", f'kernel_mode = "{kernels}"\nnum_threads = {threads}\n'),
        ):
            buffer = ctypes.create_string_buffer(text.encode())
            self._texts.append(buffer)
            opaque = self._create(
                "LiteRtCreateOpaqueOptions", name, ctypes.cast(buffer, _pointer), self._free
            )
            self._call("LiteRtAddOpaqueOptions", options, opaque)
        self._compiled = self._create("LiteRtCreateCompiledModel", self._environment, self._model, options)
        self._signature = self._create("LiteRtGetModelSignature", self._model, _size(0))
        self._profiler = self._create("LiteRtCompiledModelGetProfiler", self._compiled)
        self._inputs: Any = None
        self._outputs: Any = None

    def feed(self, arrays: Mapping[int, Array], answers: Mapping[int, Array]) -> None:
        """Set the inputs, and allocate outputs like the interpreter's `answers`; both by number of tensor."""
        types = self._types("Input")
        for place, (tensor, kind) in enumerate(types):
            array = arrays[tensor]
            if array.shape != kind.layout.shape:
                sizes = (ctypes.c_int * array.ndim)(*array.shape)
                resize = "LiteRtCompiledModelResizeInputTensorNonStrict"
                self._call(resize, self._compiled, _size(0), _size(place), sizes, _size(array.ndim))
                kind.layout = _Layout.of(array.shape)
        made = []
        for place, (_, kind) in enumerate(types):
            ask = "LiteRtGetCompiledModelInputBufferRequirements"
            wanted = self._create(ask, self._compiled, _size(0), _size(place))
            create = "LiteRtCreateManagedTensorBufferFromRequirements"
            made.append(self._create(create, self._environment, ctypes.byref(kind), wanted))
        self._inputs = (_pointer * len(made))(*made)
        for buffer, (tensor, _) in zip(made, types, strict=True):
            data = np.ascontiguousarray(arrays[tensor]).tobytes()
            ctypes.memmove(self._create("LiteRtLockTensorBuffer", buffer, after=(_WRITE,)), data, len(data))
            self._call("LiteRtUnlockTensorBuffer", buffer)
        made = []
        for tensor, kind in self._types("Output"):
            # LiteRT does not know sizes that depend on computed values.
            answer = answers[tensor]
            kind.layout = _Layout.of(answer.shape)
            size = _size(max(answer.nbytes, 1))
            create = "LiteRtCreateManagedTensorBuffer"
            made.append(self._create(create, self._environment, _HOST_MEMORY, ctypes.byref(kind), size))
        self._outputs = (_pointer * len(made))(*made)

    def run(self) -> None:
        """Run it once with the profiler; `events` returns those of the last run."""
        self._call("LiteRtStartProfiler", self._profiler)
        ends = (each for end in (self._inputs, self._outputs) for each in (_size(len(end)), end))
        self._call("LiteRtRunCompiledModel", self._compiled, _size(0), *ends)
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
        count, found = _size(), []
        self._call(f"LiteRtGetNumSignature{end}s", self._signature, ctypes.byref(count))
        for place in range(count.value):
            tensor = self._create(f"LiteRtGetSignature{end}TensorByIndex", self._signature, _size(place))
            number, kind = ctypes.c_uint32(), _Type()
            self._call("LiteRtGetTensorIndex", tensor, ctypes.byref(number))
            self._call("LiteRtGetRankedTensorType", tensor, ctypes.byref(kind))
            found.append((number.value, kind))
        return found

    def _create(self, function: str, *arguments: Any, after: tuple[Any, ...] = ()) -> _pointer:
        """Call a function and return what it writes to the pointer behind its arguments."""
        handle = _pointer()
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
    for file in importlib.metadata.files("ai-edge-litert") or ():
        if file.name.split(".")[0] in ("libLiteRt", "LiteRt"):
            return ctypes.CDLL(str(file.locate()))
    version = importlib.metadata.version("ai-edge-litert")
    raise MissingDependencyError(
        f"ai-edge-litert {version} has no profiler",
        why="it lacks the library libLiteRt",
        fix="install a newer one: pip install -U ai-edge-litert",
    )
