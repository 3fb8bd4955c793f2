"""A runtime in a child process, so that its crash or hang is an error message and not the end of the command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxport.core.child_process import (
    ONE_THREAD,
    RUN_TIMEOUT,
    Child,
    ChildHung,
    ChildTooLarge,
    borrow,
    give_back,
)
from onnxport.core.resources import Closing
from onnxport.formats.artifact import FORMATS, SUFFIXES, TensorSpec
from onnxport.runtimes import registry
from onnxport.runtimes.base import MemoryFullError, SlowRunError, format_shapes
from onnxport.runtimes.custom_libraries import writable
from onnxport.runtimes.host import Description
from onnxport.runtimes.memory_limit import MemoryLimit, format_size
from onnxport.runtimes.options import RuntimeOptions

if TYPE_CHECKING:
    from onnxport.core.arrays import Array, Feeds
    from onnxport.samples.domain import Domain

Role = Literal["reference", "candidate"]

_DEFAULT = RuntimeOptions()
_UNLIMITED = partial(MemoryLimit, None)
# Runtimes with threads of their own; numpy's would only cost time and memory there.
_REUSED = frozenset({"ort", "litert"})
_PATIENCE = "give it more time with --timeout SECONDS, or smaller inputs"


class _Process:
    """The child behind one or several runtimes, restarted at the next use after its end; `number` counts children.

    Attributes:
        runs: of the child, also those of other models before.
    """

    def __init__(self, start: Callable[[], Child], module: str) -> None:
        self._start = start
        self.child, self.number = start(), 0
        self.runs = 0 if self.child.is_fresh else 1
        self._is_ended = self._is_closed = False
        # One that served other models may lack the runtime's libraries: it loads them while the caller works.
        self._loads = not self.child.is_fresh
        if self._loads:
            self.child.ask("load", module)

    def end(self) -> None:
        """Kill the child; `current` starts another."""
        self.child.close()
        self._is_ended = True

    def close(self) -> None:
        """Give the child back; it may serve other models then."""
        if not self._is_closed:
            self._is_closed = True
            give_back(self.child)

    def current(self) -> Child:
        """Return the running child; start one where the last was ended."""
        assert not self._is_closed, "its child may serve another model now"
        if self._is_ended:
            self.child, self._is_ended = self._start(), False
            self.number, self.runs = self.number + 1, 0 if self.child.is_fresh else 1
        elif self._loads:
            self.child.answer()
        self._loads = False
        return self.child


class IsolatedRuntime(Closing):
    """A Runtime over a child process.

    The child starts at once, so that its imports overlap with the caller's work. The first use opens the file, which
    may be written until then.

    Args:
        timeout: seconds that one call may take.
        limit: returns the memory limit, called when the file exists. A run that exceeds it ends the process.
        role: for error messages.
    """

    domains: Mapping[str, Domain] = {}
    features: tuple[str, ...] | None = None

    def __init__(
        self,
        path: Path,
        options: RuntimeOptions = _DEFAULT,
        *,
        timeout: float = RUN_TIMEOUT,
        limit: Callable[[], MemoryLimit] = _UNLIMITED,
        role: Role | None = None,
    ) -> None:
        self.path, self.options, self._role = path, options, role
        self._timeout, self._make_limit = timeout, limit
        self._kind = registry.find_runtime(FORMATS[path.suffix.lower()], options.runtime)
        self._kind.check()
        # One process may serve the reference and then the candidate, if these are its only libraries.
        start = (
            partial(borrow, environment=ONE_THREAD, shares=("numpy",))
            if self._kind.name in _REUSED
            else Child
        )
        self._process = _Process(
            lambda: start(
                "onnxport.runtimes.host:Host",
                purpose=f"{self._kind.title} running {path}",
                timeout=timeout,
                patience=_PATIENCE,
                preload=(self._kind.module,),
                writes=writable() if self._kind in registry.KINDS else None,  # a plugin has the user's rights
            ),
            self._kind.module,
        )
        self._described: Description | None = None
        self._opened_in = -1
        self._deadline: float | None = None

    def beside(self, options: RuntimeOptions | None = None, path: Path | None = None) -> IsolatedRuntime:
        """Open the model under other options, or another model, in the same process; closing one closes both."""
        other = copy(self)
        other.options, other.path = options or self.options, path or self.path
        other._described, other._opened_in = None, -1
        other._open()
        return other

    def other_kernels(self) -> IsolatedRuntime | None:
        """See `ReferenceRuntime.other_kernels`: ONNX Runtime without its optimizations, or with them again."""
        if self._kind.name != "ort" or self.path.suffix.lower() != SUFFIXES["onnx"]:
            return None
        return self.beside(self.options.at_level("all" if self.options.level == "disable" else "disable"))

    def again(self) -> IsolatedRuntime:
        """See `ReferenceRuntime.again`."""
        return IsolatedRuntime(
            self.path, self.options, timeout=self._timeout, limit=self._make_limit, role=self._role
        )

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """See `ReferenceRuntime.within`."""
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
        names: frozenset[str] = self._open().call("taps", self.path, self.options)
        return names

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`. Raises SlowRunError: see `within`."""
        try:
            return self._run(feeds, taps)
        except ChildTooLarge as large:
            if self._was_fresh:
                raise self._too_large(feeds, large) from None
        # Memory that earlier runs left in the process may have exceeded the limit.
        try:
            return self._run(feeds, taps)
        except ChildTooLarge as large:
            raise self._too_large(feeds, large) from None

    def close(self) -> None:
        self._process.close()

    def _run(self, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        child = self._open()
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
            raise SlowRunError(f"{self.path} on {format_shapes(feeds)} took too long") from hung
        child.memory = child.message = child.deadline = None
        return outputs

    @cached_property
    def _limit(self) -> MemoryLimit:
        return self._make_limit()

    def _too_large(self, feeds: Feeds, large: ChildTooLarge) -> MemoryFullError:
        side = f"the {self._role} " if self._role else ""
        total = self._limit.total(feeds, large.taken, is_answer=large.is_answer)
        why = f"all processes together had taken {format_size(total)} when it was ended"
        if large.is_answer:
            answers = format_size(large.taken)
            why = (
                f"its answers have {answers}; with their copies all processes together would take "
                f"{format_size(total)}"
            )
        return self._limit.exceeded(
            f"running {side}{self.path} on {format_shapes(feeds)}",
            why,
            2 * max(total, self._limit.bytes or 0),
        )

    def _open(self) -> Child:
        child = self._process.current()
        if self._opened_in == self._process.number:
            return child
        child.memory = self._limit.process({})
        try:
            self._described = child.call("open", self.path, self.options)
        except ChildTooLarge as large:
            was_fresh = not self._process.runs
            self._process.end()
            if not was_fresh:
                return self._open()
            total = self._limit.total({}, large.taken, is_answer=False)
            why = f"all processes together had taken {format_size(total)} when it was ended"
            least = 2 * max(total, self._limit.bytes or 0)
            raise self._limit.exceeded(f"opening {self.path}", why, least) from None
        child.memory = None
        self._opened_in = self._process.number
        return child

    @property
    def _description(self) -> Description:
        if self._described is None:
            self._open()
        assert self._described is not None
        return self._described
