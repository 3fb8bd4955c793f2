"""A runtime in a process of its own: its crash or hang is an error message, never the end of the command."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxport.core.arrays import Array, Feeds
from onnxport.core.child_process import RUN_TIMEOUT, Child, ChildHung, ChildTooLarge
from onnxport.core.resources import Closing
from onnxport.formats.artifact import FORMATS, SUFFIXES, TensorSpec
from onnxport.runtimes import registry
from onnxport.runtimes.base import MemoryFullError, Runtime, SlowRunError
from onnxport.runtimes.memory_limit import MemoryLimit, format_size
from onnxport.runtimes.options import RuntimeOptions

if TYPE_CHECKING:
    from onnxport.samples.domain import Domain

Role = Literal["reference", "candidate"]

_DEFAULT = RuntimeOptions()
_PATIENCE = "give it more time with --timeout SECONDS, or smaller inputs"


@dataclass(frozen=True)
class Description:
    """What the child says of its model."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    permutations: Mapping[str, tuple[int, ...]]
    remarks: tuple[str, ...] = ()


class Host:
    """The child's side: it holds the real runtimes, by the options that they run under."""

    def __init__(self) -> None:
        self._held: dict[tuple[Path, RuntimeOptions], Runtime] = {}

    def open(self, path: Path, options: RuntimeOptions) -> Description:
        from onnxport.runtimes import load

        runtime = self._held[path, options] = load(path, options)
        permutations = getattr(runtime, "permutations", {})
        remarks = getattr(runtime, "remarks", ())
        return Description(runtime.name, runtime.inputs, runtime.outputs, permutations, remarks)

    def taps(self, path: Path, options: RuntimeOptions) -> frozenset[str]:
        return self._held[path, options].taps

    def run(self, path: Path, options: RuntimeOptions, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        return self._held[path, options].run(feeds, taps=taps)


def tflite_host() -> Host:
    """A host that has its imports behind it when the first call arrives."""
    importlib.import_module("onnxport.runtimes.litert")
    return Host()


def ort_host() -> Host:
    """As `tflite_host`, for `.onnx` and `.ort`."""
    importlib.import_module("onnxport.runtimes.ort.session")
    return Host()


def coreml_host() -> Host:
    """As `tflite_host`, for `.mlpackage`; which runtime answers is known when the first call arrives."""
    importlib.import_module("onnxport.runtimes.mlprogram")
    return Host()


# Kinds whose imports begin with the process; others begin theirs with the first call.
_TARGETS = {
    "litert": "tflite_host",
    "ort": "ort_host",
    "predict": "coreml_host",
    "evaluator": "coreml_host",
}


def _unlimited() -> MemoryLimit:
    return MemoryLimit(None)


class _Process:
    """The child behind one runtime or several; where it was ended, another takes its place when it is needed.

    Attributes:
        number: of the child; who opened a model in an earlier one has to open it again.
        runs: that this child has begun.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self.child, self.number, self.runs = start(), 0, 0
        self._is_ended = False

    def end(self) -> None:
        """Closes the child, which is of no use any more."""
        self.child.close()
        self._is_ended = True

    def current(self) -> Child:
        """The child that runs."""
        if self._is_ended:
            self.child, self._is_ended = self._start(), False
            self.number, self.runs = self.number + 1, 0
        return self.child


class IsolatedRuntime(Closing):
    """The Runtime contract over a child process; what its inputs may hold is read from the graph.

    The child starts at once and without waiting, so that its imports overlap with the caller's work; the file is
    opened by the first use, and may be written until then.

    Args:
        path: the model.
        options: how its runtime is to run it.
        timeout: seconds that one call may take.
        limit: tells, once there is a file, what memory it may take. A run that takes more is ended, and the next one
            gets a new process.
        role: what it is to the judge, for error messages.
    """

    domains: Mapping[str, Domain] = {}
    features: tuple[str, ...] | None = None

    def __init__(
        self,
        path: Path,
        options: RuntimeOptions = _DEFAULT,
        *,
        timeout: float = RUN_TIMEOUT,
        limit: Callable[[], MemoryLimit] = _unlimited,
        role: Role | None = None,
    ) -> None:
        self.path, self.options, self._timeout, self._limit_of, self._role = (
            path,
            options,
            timeout,
            limit,
            role,
        )
        self._kind = registry.find_runtime(FORMATS[path.suffix.lower()], options.runtime)
        self._kind.check()
        target = f"{__name__}:{_TARGETS.get(self._kind.name, Host.__name__)}"
        purpose = f"{self._kind.title} running {path}"
        self._process = _Process(lambda: Child(target, purpose=purpose, timeout=timeout, patience=_PATIENCE))
        self._described: Description | None = None
        self._opened_in = -1
        self._deadline: float | None = None

    def beside(self, options: RuntimeOptions | None = None, path: Path | None = None) -> IsolatedRuntime:
        """The same model under other options, or another one, in the same process, which ends with the first to close.

        Raises:
            InputError: the runtime cannot load it under these options.
        """
        other = copy(self)
        other.options, other.path = options or self.options, path or self.path
        other._described, other._opened_in = None, -1
        other._opened()
        return other

    def other_kernels(self) -> IsolatedRuntime | None:
        """See `ReferenceRuntime.other_kernels`: ONNX Runtime without its optimizations, or with them."""
        if self._kind.name != "ort" or self.path.suffix.lower() != SUFFIXES["onnx"]:
            return None
        return self.beside(self.options.at_level("all" if self.options.level == "disable" else "disable"))

    def again(self) -> IsolatedRuntime:
        """See `ReferenceRuntime.again`."""
        return IsolatedRuntime(
            self.path, self.options, timeout=self._timeout, limit=self._limit_of, role=self._role
        )

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Ends runs inside it after `seconds`, by SlowRunError."""
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = None

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
    def remarks(self) -> tuple[str, ...]:
        """See `TfliteRuntime.remarks`; none for other formats."""
        return self._description.remarks

    @property
    def taps(self) -> frozenset[str]:
        names: frozenset[str] = self._opened().call("taps", self.path, self.options)
        return names

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`.

        Raises:
            SlowRunError: see `within`.
        """
        try:
            return self._run(feeds, taps)
        except ChildTooLarge as large:
            if self._was_fresh:
                raise self._too_large(feeds, large) from None
        # What earlier runs left in the process may have been too much.
        try:
            return self._run(feeds, taps)
        except ChildTooLarge as large:
            raise self._too_large(feeds, large) from None

    def close(self) -> None:
        self._process.child.close()

    def _run(self, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        child = self._opened()
        self._was_fresh = not self._process.runs
        self._process.runs += 1
        child.memory, child.message = self._limit.process(feeds), self._limit.answer
        child.deadline = self._deadline
        try:
            outputs: dict[str, Array] = child.call("run", self.path, self.options, dict(feeds), tuple(taps))
        except ChildTooLarge:
            self._process.end()
            raise
        except ChildHung as hung:
            if self._deadline is None or time.monotonic() < self._deadline:
                raise
            self._process.end()
            raise SlowRunError(
                f"{self.path} was still running on {_shapes(feeds)}", why="the time was over"
            ) from hung
        child.memory = child.message = child.deadline = None
        return outputs

    @cached_property
    def _limit(self) -> MemoryLimit:
        return self._limit_of()

    def _too_large(self, feeds: Feeds, large: ChildTooLarge) -> MemoryFullError:
        side = f"the {self._role} " if self._role else ""
        return self._limit.exceeded(
            f"running {side}{self.path} on {_shapes(feeds)}",
            f"it had taken {format_size(large.taken)} when it was ended",
            2 * max(large.taken, self._limit.bytes or 0),
        )

    def _opened(self) -> Child:
        child = self._process.current()
        if self._opened_in != self._process.number:
            self._described = child.call("open", self.path, self.options)
            self._opened_in = self._process.number
        return child

    @property
    def _description(self) -> Description:
        if self._described is None:
            self._opened()
        assert self._described is not None
        return self._described


def _shapes(feeds: Feeds) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
