"""A runtime in a process of its own: its crash or hang is an error message, never the end of the command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from onnxport.artifact import FORMATS, Format, TensorSpec
from onnxport.isolation import Child
from onnxport.validate.runtimes.base import Array, Feeds, Runtime

TIMEOUT = 600.0  # seconds for one run; the largest model measured (2.4 GB) takes 3


@dataclass(frozen=True)
class Description:
    """What the child says of its model."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    permutations: Mapping[str, tuple[int, ...]]


class Host:
    """The child's side: it holds the real runtime."""

    def __init__(self) -> None:
        self._held: Runtime | None = None

    def open(self, path: Path) -> Description:
        from onnxport.validate.runtimes import load

        self._held = load(path)
        permutations = getattr(self._held, "permutations", {})
        return Description(self._held.name, self._held.inputs, self._held.outputs, permutations)

    def taps(self) -> frozenset[str]:
        return self._runtime.taps

    def run(self, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        return self._runtime.run(feeds, taps=taps)

    @property
    def _runtime(self) -> Runtime:
        assert self._held is not None, "open comes first"
        return self._held


def tflite_host() -> Host:
    """A host that has its imports behind it when the first call arrives."""
    importlib.import_module("onnxport.validate.runtimes.tflite")
    return Host()


def ort_host() -> Host:
    """As `tflite_host`, for `.onnx` and `.ort`."""
    importlib.import_module("onnxport.validate.runtimes.ort")
    return Host()


_TARGETS: dict[Format, str] = {"tflite": "tflite_host", "onnx": "ort_host", "ort": "ort_host"}
_PURPOSES: dict[Format, str] = {"tflite": "LiteRT", "onnx": "ONNX Runtime", "ort": "ONNX Runtime"}


class IsolatedRuntime:
    """The Runtime contract over a child process.

    The child starts at once and without waiting, so that its imports overlap with the caller's work; the file is
    opened by the first use, and may be written until then.

    Args:
        path: the model.
        timeout: seconds that one call may take.
    """

    def __init__(self, path: Path, *, timeout: float = TIMEOUT) -> None:
        self.path = path
        format_ = FORMATS[path.suffix.lower()]
        target = f"{__name__}:{_TARGETS[format_]}"
        self._child = Child(target, purpose=f"{_PURPOSES[format_]} running {path}", timeout=timeout)
        self._described: Description | None = None

    @property
    def name(self) -> str:
        return self._description.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._description.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._description.outputs

    @property
    def permutations(self) -> Mapping[str, tuple[int, ...]]:
        """See `TfliteRuntime.permutations`; empty for formats that permute nothing."""
        return self._description.permutations

    @property
    def taps(self) -> frozenset[str]:
        names: frozenset[str] = self._opened().call("taps")
        return names

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        outputs: dict[str, Array] = self._opened().call("run", dict(feeds), tuple(taps))
        return outputs

    def close(self) -> None:
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, trace)

    def _opened(self) -> Child:
        assert self._description
        return self._child

    @property
    def _description(self) -> Description:
        if self._described is None:
            self._described = self._child.call("open", self.path)
        assert self._described is not None
        return self._described
