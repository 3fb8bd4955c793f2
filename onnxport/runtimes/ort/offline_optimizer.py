"""ONNX Runtime as a tool that computes constants: its optimizer, which writes a file, and single nodes.

Nothing in a file need tell how large its constants become. Where that is open, a confined process with a memory limit
computes them (confined_worker.py); all others are computed in this process, which saves the 0.25 s of a start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.core.child_process import Child, borrow, give_back
from onnxport.formats.model import Model
from onnxport.runtimes.custom_libraries import writable
from onnxport.runtimes.ort.inference_session import open_session

# Constants, or their like: ONNX Runtime knows the sizes of many values.
_CONSTANT = ("Constant", "Shape", "Size")
_LARGE = 2**26  # bytes; more than that goes to the process by way of a file


def write_optimized(model: Model, source: Path | bytes, path: Path, **settings: Any) -> None:
    """Write the optimized graph of `model`, which is in the file or the bytes `source`, to `path`.

    Args:
        settings: of `open_session`.

    Raises:
        Exceptions of ONNX Runtime, which have no common base.
        ChildTooLarge: the constants exceed the memory limit.
        ChildDied, ChildHung: ONNX Runtime crashed or hung.
    """
    if not computes_constants(model.ir):
        open_session(source, optimized=path, **settings)
        return
    path = Path(os.path.abspath(path))
    given: Path | bytes = source if isinstance(source, bytes) else Path(os.path.abspath(source))
    copy = path.with_name(f"{path.name}.source") if isinstance(given, bytes) and len(given) > _LARGE else None
    if copy is not None and isinstance(given, bytes):
        copy.write_bytes(given)
    with _confined(model.weight_bytes, path.parent) as child:
        _, refusal = child.call("optimize", copy or given, copy is not None, path, settings)
    if copy is not None:
        copy.unlink()
    _raise(refusal)


def computes_constants(model: ir.Model) -> bool:
    """Return whether a node has constants for all its inputs; with functions, which are not looked into, True."""
    return bool(model.functions) or any(
        node.op_type not in _CONSTANT and all(map(_is_constant, node.inputs))
        for node in model.graph.all_nodes()
    )


def compute_confined(model: bytes, names: Sequence[str], most: int) -> list[np.ndarray[Any, Any]]:
    """Return the values `names`, of at most `most` bytes, of a model without inputs; raises as `write_optimized`."""
    with _confined(len(model)) as child:
        child.message = most
        values, refusal = child.call("compute", model, names)
        child.message = None
    _raise(refusal)
    return list(values)


@contextmanager
def _confined(weights: int, *folders: Path) -> Iterator[Child]:
    child = borrow(
        "onnxport.runtimes.ort.confined_worker:ConfinedWorker",
        purpose="ONNX Runtime's optimizer",
        writes=writable(*folders),
        offline=True,
    )
    try:
        with child.bounded(weights):
            yield child
    finally:
        give_back(child)


def _raise(refusal: tuple[str, str] | None) -> None:
    if refusal is not None:
        kind, said = refusal
        raise getattr(state, kind)(said)


def _is_constant(value: ir.Value | None) -> bool:
    if value is None or value.const_value is not None or value.is_initializer():
        return True
    producer = value.producer()
    return producer is not None and producer.op_type in _CONSTANT
