"""LiteRT's interpreter with a file loaded and nothing run."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.deployment.report import Extent

# Sizes of open dimensions, the likeliest first. LiteRT's own choice is 1, smaller than some windows.
_SIZES = (1, 64, 224, 512)
_PLAIN = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}

_SUBGRAPHS = 8  # the vtable entry of a Model's third field
_ENTRY = struct.Struct("<I")


class NotLoadedError(Exception):
    """LiteRT does not load a file; `extent` is "unknown" if the sizes tried for open dimensions may be the reason."""

    def __init__(self, why: str, extent: Extent) -> None:
        super().__init__(f"LiteRT does not load it: {why}")
        self.extent = extent


def allocate(model: Path | bytes, threads: int = 1, *, delegates: bool = True) -> tuple[Any, int]:
    """Return an interpreter with allocated tensors, and the size that stands for open dimensions.

    Args:
        model: a file, or its content.
        delegates: let XNNPACK's delegate take nodes.

    Raises:
        NotLoadedError: LiteRT loads it at no size that is tried.
    """
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    failures: list[Exception] = []
    is_open = False
    for size in _SIZES:
        try:
            interpreter: Any = Interpreter(**source, num_threads=threads, **({} if delegates else _PLAIN))
            is_open = _resize(interpreter, size)
            interpreter.allocate_tensors()
            return interpreter, size
        except (RuntimeError, ValueError) as error:
            failures.append(error)
            if not is_open:
                break
    why = " ".join(str(failures[0]).split())[:300]
    tried = f" (open sizes as {', '.join(map(str, _SIZES))})" if is_open else ""
    raise NotLoadedError(why + tried, "unknown" if is_open else "none") from failures[0]


def _resize(interpreter: Any, size: int) -> bool:
    """Set open dimensions of the inputs to `size`; return False if there are none."""
    is_open = False
    for each in interpreter.get_input_details():
        signature = [int(dim) for dim in each["shape_signature"]]
        if -1 in signature:
            is_open = True
            # They are 1 already.
            if size > 1:
                interpreter.resize_tensor_input(
                    each["index"], [size if dim < 0 else dim for dim in signature]
                )
    return is_open


def find_unsized(interpreter: Any, candidates: Iterable[int]) -> list[int]:
    """Return the tensors among `candidates` that stay unallocated until a run, since their size depends on values."""
    found = []
    for index in candidates:
        details = interpreter._get_tensor_details(index, 0)
        if 0 in details["shape"]:
            continue
        try:
            interpreter.tensor(index)()
        except ValueError:
            found.append(index)
    return found


def swap_main(path: Path, index: int) -> bytes:
    """Return the file with subgraph `index` in the place of the main one."""
    content = bytearray(path.read_bytes())
    table = schema.Model.GetRootAs(content, 0)._tab
    # An entry of the vector is the distance from itself to its table, and all tables lie behind the vector.
    first = table.Vector(table.Offset(_SUBGRAPHS))
    other = first + _ENTRY.size * index
    starts = [at + _ENTRY.unpack_from(content, at)[0] for at in (first, other)]
    _ENTRY.pack_into(content, first, starts[1] - first)
    _ENTRY.pack_into(content, other, starts[0] - other)
    return bytes(content)
