"""ONNX Runtime as a tool that computes constants: its optimizer, which writes a file, and single nodes.

Nothing in a file need tell how large its constants become. Where that is open (constant_sizes.py), a confined process
with a memory limit computes them (confined_worker.py); all others are computed in this process, which saves the 0.25 s
of a start.
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
from onnxport.runtimes.ort.constant_sizes import bound_constants
from onnxport.runtimes.ort.inference_session import open_session

# Constants, or their like: ONNX Runtime knows the sizes of many values.
_CONSTANT = ("Constant", "Shape", "Size")
_LARGE = 2**26  # bytes; more than that goes to the process by way of a file
_SMALL = 2**24  # elements of constants, together, that are computed without a limit


def write_optimized(
    model: Model, source: Path | bytes, path: Path, *, once_in_a_job: bool = False, **settings: Any
) -> None:
    """Write the optimized graph of `model`, which is in the file or the bytes `source`, to `path`.

    Args:
        once_in_a_job: whether the job has no further use for the confined process, and needs its memory.
        settings: of `open_session`.

    Raises:
        Exceptions of ONNX Runtime, which have no common base.
        ChildTooLarge: the constants exceed the memory limit.
        ChildDied, ChildHung: ONNX Runtime crashed or hung.
    """
    if not computes_constants(model.ir) or _are_small(model.ir):
        open_session(source, optimized=path, **settings)
        return
    path = Path(os.path.abspath(path))
    given: Path | bytes = source if isinstance(source, bytes) else Path(os.path.abspath(source))
    copy = path.with_name(f"{path.name}.source") if isinstance(given, bytes) and len(given) > _LARGE else None
    if copy is not None and isinstance(given, bytes):
        copy.write_bytes(given)
    with _confined(model.weight_bytes, path.parent, once_in_a_job=once_in_a_job) as child:
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


def _are_small(model: ir.Model) -> bool:
    """Return whether the constants that nodes compute need no limit, whatever sizes the file declares."""
    bound = bound_constants(model)
    return bound is not None and bound <= _SMALL


def compute_confined(model: bytes, names: Sequence[str], most: int) -> list[np.ndarray[Any, Any]]:
    """Return the values `names`, of at most `most` bytes, of a model without inputs; raises as `write_optimized`."""
    with _confined(len(model)) as child:
        child.message = most
        values, refusal = child.call("compute", model, names)
        child.message = None
    _raise(refusal)
    return list(values)


@contextmanager
def _confined(weights: int, *folders: Path, once_in_a_job: bool = False) -> Iterator[Child]:
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
        give_back(child, once_in_a_job=once_in_a_job)


def _raise(refusal: tuple[str, str] | None) -> None:
    if refusal is not None:
        kind, said = refusal
        raise getattr(state, kind)(said)


def _is_constant(value: ir.Value | None) -> bool:
    if value is None or value.const_value is not None or value.is_initializer():
        return True
    producer = value.producer()
    return producer is not None and producer.op_type in _CONSTANT
