"""The parent's side of a compiler in a child process, for every target."""

from __future__ import annotations

from collections.abc import Callable

from onnxport.core.child_process import Child
from onnxport.core.resources import Closing


class CompilerProcess(Closing):
    """A compiler in a child, which starts while the parent still prepares the model.

    `rest` ends the child, or gives it to the next job; the next call starts another.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self._running: Child | None = start()

    @property
    def _child(self) -> Child:
        if self._running is None:
            self._running = self._start()
        return self._running

    def native_ops(self) -> frozenset[str]:
        """Return the ONNX operators that have a lowering; `prepare` decomposes the others if it can."""
        ops: frozenset[str] = self._child.call("native_ops")
        return ops

    def rest(self) -> None:
        """Free the memory of the child, which the proof of its file needs."""
        child, self._running = self._running, None
        if child is not None:
            self._end(child)

    def close(self) -> None:
        self.rest()

    def _end(self, child: Child) -> None:
        child.close()
