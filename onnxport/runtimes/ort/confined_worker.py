"""The child's side of offline_optimizer.py; it imports no library but ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.runtimes.ort.inference_session import open_session

_T = TypeVar("_T")
Refusal = tuple[str, str]  # the name of an exception of ONNX Runtime, and its message


class ConfinedWorker:
    """The object that the child serves."""

    def optimize(
        self, source: Path | bytes, is_copy: bool, path: Path, settings: dict[str, Any]
    ) -> tuple[None, Refusal | None]:
        """Write the optimized graph to `path`; with `is_copy`, `source` is a file of what it gets as bytes."""
        content = source.read_bytes() if is_copy and isinstance(source, Path) else source
        done = _attempt(lambda: _write(content, path, settings))
        if done[1] is not None and "bad_alloc" in done[1][1]:
            raise MemoryError
        return done

    def compute(
        self, model: bytes, names: Sequence[str]
    ) -> tuple[list[np.ndarray[Any, Any]] | None, Refusal | None]:
        """Return the values of a model without inputs."""
        return _attempt(lambda: open_session(model, level="disable").run(names, {}))


def _write(source: Path | bytes, path: Path, settings: dict[str, Any]) -> None:
    open_session(source, optimized=path, **settings)


def _attempt(action: Callable[[], _T]) -> tuple[_T | None, Refusal | None]:
    try:
        return action(), None
    except Exception as error:
        if getattr(state, type(error).__name__, None) is not type(error):
            raise
        return None, (type(error).__name__, str(error))
