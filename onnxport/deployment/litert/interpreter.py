"""LiteRT's interpreter with a file loaded and nothing run."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from onnxport.deployment.report import Extent

# For open dimensions, the likeliest first: LiteRT itself takes 1, which is smaller than some windows.
_SIZES = (1, 64, 224, 512)
_PLAIN = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}

_SUBGRAPHS = 8  # the vtable entry of a Model's third field
_ENTRY = struct.Struct("<I")


class NotLoadedError(Exception):
    """LiteRT does not load a file; the message says why.

    Attributes:
        extent: "unknown" where it may be for the sizes that were tried for open dimensions.
    """

    def __init__(self, why: str, extent: Extent) -> None:
        super().__init__(f"LiteRT does not load it: {why}")
        self.extent = extent


def allocated(model: Path | bytes, threads: int = 1, *, delegates: bool = True) -> tuple[Any, int]:
    """An interpreter with all tensors in place, and the size that open dimensions were given.

    Args:
        model: a file, or what is in one.
        delegates: whether XNNPACK's delegate takes nodes.

    Raises:
        NotLoadedError: not at any of the sizes that are tried.
    """
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    failures: list[Exception] = []
    is_open = False
    for size in _SIZES:
        try:
            interpreter: Any = Interpreter(**source, num_threads=threads, **({} if delegates else _PLAIN))
            is_open = _resized(interpreter, size)
            interpreter.allocate_tensors()
            return interpreter, size
        except (RuntimeError, ValueError) as error:
            failures.append(error)
            if not is_open:
                break
    why = " ".join(str(failures[0]).split())[:300]
    tried = f" (open sizes as {', '.join(map(str, _SIZES))})" if is_open else ""
    raise NotLoadedError(why + tried, "unknown" if is_open else "none") from failures[0]


def _resized(interpreter: Any, size: int) -> bool:
    """Gives open dimensions of the inputs `size`; False where there are none."""
    is_open = False
    for each in interpreter.get_input_details():
        signature = [int(dim) for dim in each["shape_signature"]]
        if -1 in signature:
            is_open = True
            # 1 is what they have.
            if size > 1:
                interpreter.resize_tensor_input(
                    each["index"], [size if dim < 0 else dim for dim in signature]
                )
    return is_open


def of_unknown_size(interpreter: Any, candidates: Iterable[int]) -> list[int]:
    """Those of the tensors `candidates` whose size follows from values: they have no place until the model runs."""
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
