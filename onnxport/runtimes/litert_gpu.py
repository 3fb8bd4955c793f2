"""LiteRT's GPU runtime, without its CPU: a file runs there whole, or what it lacks is named.

It needs a Vulkan device; a driver in software is enough (docs/guide/gpu.md). The runtime prints its reasons, and no
exception has them, so its error output is read.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel, GpuOptions, HardwareAccelerator, Options

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, MachineError, MissingDependencyError, OnnxportError
from onnxport.core.resources import Closing
from onnxport.core.shell_words import quote_option
from onnxport.formats.manifest import Port
from onnxport.formats.tflite.ports import from_tflite, read_signature, to_tflite
from onnxport.runtimes.base import RunError, check_feeds, check_taps, format_shapes
from onnxport.runtimes.native_output import redirect_stderr
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.vulkan import open_vulkan

# What its Python interface writes and reads.
_TYPES = frozenset({"float32", "float16", "int32", "int8", "uint8", "bool"})

_NO_DEVICE = re.compile(r"Couldn't load Vulkan|Found no drivers|No adapters found")
_ADAPTER = re.compile(r"Selected adapter: ([^,\n]+),.*adapterType=([^\n]+)")
_REASONS = re.compile(
    r"not supported by GPU delegate:\n(.*?)\n(?:\d+|No) operations will run on the GPU", re.DOTALL
)
_TOO_LARGE = re.compile(
    r"Requested allocation size - (\d+) bytes\. Max allocation size for this GPU - (\d+) bytes"
    r"(?:\. Shape - \{\w+, \{([\d, ]+)\}\})?"
)
_OPEN_INSIDE = "with a graph that has dynamic-sized tensors"
_DEFAULT = RuntimeOptions()


class GpuRefusal(InputError):
    """The runtime does not take a file whole.

    Attributes:
        reasons: its own lines "OPERATOR: reason", each once; empty where no operator is at fault.
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "", reasons: tuple[str, ...] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.reasons = reasons


class TfliteGpuRuntime(Closing):
    """A `.tflite` file on LiteRT's GPU runtime in float32; its sizes are those of the file.

    Args:
        options: `vulkan` in `own` is a folder with a Vulkan loader and its driver's manifest.

    Raises:
        InputError: the file has open sizes, or operators or types that the GPU runtime does not take.
        MissingDependencyError: there is no Vulkan device.
        MachineError: its driver does not answer, or its buffers are too small.
    """

    taps: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT) -> None:
        self._path = path
        ends = read_signature(path)
        self._ports = (*ends.inputs, *ends.outputs)
        self.inputs = tuple(port.spec for port, _ in ends.inputs)
        self.outputs = tuple(port.spec for port, _ in ends.outputs)
        self._check_sizes()
        open_vulkan(dict(options.own).get("vulkan", ""))
        self._model, said = self._compile()
        self._device, self._kind = _device(said)
        self._key = next(iter(self._model.get_signature_list()))
        model, key = self._model, self._key
        self._inputs = self._buffers(
            ends.inputs, model.get_input_tensor_details(key), model.create_input_buffer_by_name
        )
        self._outputs = self._buffers(
            ends.outputs, model.get_output_tensor_details(key), model.create_output_buffer_by_name
        )

    @property
    def name(self) -> str:
        return f"LiteRT {version('ai-edge-litert')}, GPU runtime on {self._device}"

    @property
    def device(self) -> str:
        """The Vulkan device, as its driver names it."""
        return self._device

    @property
    def permutations(self) -> Mapping[str, tuple[int, ...]]:
        """See `TfliteRuntime.permutations`."""
        return {port.name: port.permutation for port, _ in self._ports if port.permutation}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the report."""
        if "Software" not in self._kind:
            return ()
        return (
            f"{self._device} is a GPU in software: its answers count, its speed says nothing of a phone's GPU, and it "
            "computes in float32, so half precision is not tried",
        )

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        try:
            for each in self._inputs:
                each.write(feeds[each.port.name])
            buffers = [{each.key: each.tensor for each in side} for side in (self._inputs, self._outputs)]
            self._model.run_by_name(self._key, *buffers)
            return {each.port.name: each.read() for each in self._outputs}
        except (ValueError, RuntimeError) as error:
            what = f"LiteRT's GPU runtime cannot run {self._path} on {format_shapes(feeds)}"
            raise RunError(what, why=_last_line(str(error))) from error

    def close(self) -> None:
        self._inputs, self._outputs, self._model = (), (), None

    def _check_sizes(self) -> None:
        for spec in self.inputs:
            if any(not isinstance(dim, int) for dim in spec.shape):
                sizes = ",".join(str(dim if isinstance(dim, int) else 1) for dim in spec.shape)
                raise InputError(
                    f"{self._path} cannot run on LiteRT's GPU runtime",
                    why=f"it takes fixed sizes, and the file has {spec}",
                    fix=f"convert the model with sizes, for example {quote_option('--shape', f'{spec.name}={sizes}')}",
                )

    def _compile(self) -> tuple[Any, str]:
        """Return the model, compiled for the GPU alone, and what the runtime printed.

        float32 is asked for: the runtime's own default is float16 where the device has it.
        """
        options = Options(
            hardware_accelerators=HardwareAccelerator.GPU, gpu_options=GpuOptions(enforce_f32=True)
        )
        with tempfile.TemporaryFile() as said, redirect_stderr(said):
            try:
                model = CompiledModel.from_file(os.fspath(self._path), options=options)
            except RuntimeError as error:
                raise self._refusal(_text(said), error) from error
            return model, _text(said)

    def _refusal(self, said: str, error: Exception) -> OnnxportError:
        if _NO_DEVICE.search(said):
            return MissingDependencyError(
                "LiteRT's GPU runtime found no Vulkan device",
                fix="install a Vulkan driver, or name the folder of one with vulkan=DIR (docs/guide/gpu.md)",
            )
        if too_large := _TOO_LARGE.search(said):
            wanted, most, axes = too_large.groups()
            tensor = f"a tensor of the sizes {axes}" if axes else "a tensor"
            return MachineError(
                f"{self._path} is too large for {_device(said)[0]}",
                why=f"{tensor} takes {int(wanted):,} bytes, and its buffers hold {int(most):,}",
                fix="convert the model with smaller sizes (--shape), or cut it before the tensor (onnxport extract)",
            )
        lines = [line.strip() for found in _REASONS.findall(said) for line in found.splitlines()]
        reasons = tuple(dict.fromkeys(lines))
        if reasons:
            why = "; ".join(reasons)
        elif _OPEN_INSIDE in said:
            why = "it has sizes inside that are known only at run time"
        else:
            why = _last_line(str(error))
        return GpuRefusal(
            f"{self._path} does not run whole on LiteRT's GPU runtime", why=why, reasons=reasons
        )

    def _buffers(
        self,
        ports: Sequence[tuple[Port, int]],
        details: Mapping[str, Mapping[str, Any]],
        create: Callable[[str, str], Any],
    ) -> tuple[_Buffer, ...]:
        keys = {detail["index"]: key for key, detail in details.items()}
        found = []
        for port, index in ports:
            key = keys[index]
            dtype, shape = np.dtype(details[key]["dtype"]), tuple(details[key]["shape"])
            if dtype.name not in _TYPES:
                why = f"{port.name!r} is {dtype}; it takes {', '.join(sorted(_TYPES))}"
                raise InputError(f"{self._path} cannot run on LiteRT's GPU runtime", why=why)
            found.append(_Buffer(port, key, dtype, shape, create(self._key, key)))
        return tuple(found)


@dataclass(frozen=True)
class _Buffer:
    """An input or output of the compiled model."""

    port: Port
    key: str  # its name in the signature
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    tensor: Any

    def write(self, array: Array) -> None:
        """Store the source's values as the file's; the interface itself checks neither dtype nor shape."""
        self.tensor.write(np.ascontiguousarray(to_tflite(array, self.dtype, self.port)))

    def read(self) -> Array:
        """Wait for the device, and return the values as the source has them."""
        flat = self.tensor.read(math.prod(self.shape), self.dtype.type)
        return from_tflite(np.array(flat).reshape(self.shape), self.port)


def _device(said: str) -> tuple[str, str]:
    """Return the names of the device and of its kind."""
    found = _ADAPTER.search(said)
    return (found[1], found[2].strip()) if found else ("a Vulkan device", "")


def _text(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read().decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line.strip("└ ") for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else text
