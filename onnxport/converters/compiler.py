"""The parent's side of a compiler in a child process, for every target."""

from __future__ import annotations

from onnxport.core.child_process import Child
from onnxport.core.resources import Closing


class CompilerProcess(Closing):
    """A compiler in a child, which starts while the parent still prepares the model."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def native_ops(self) -> frozenset[str]:
        """Return the ONNX operators that have a lowering; `prepare` decomposes the others if it can."""
        ops: frozenset[str] = self._child.call("native_ops")
        return ops

    def close(self) -> None:
        self._child.close()
