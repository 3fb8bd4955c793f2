"""LiteRT's interpreter with a file loaded and nothing run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter, OpResolverType

# For open dimensions, the likeliest first: LiteRT itself takes 1, which is smaller than some windows.
_SIZES = (1, 64, 224, 512)
LIKELY = 64  # where one has to be chosen: most windows fit, and little is computed
_PLAIN = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}


def allocated(model: Path | bytes, threads: int = 1, *, delegates: bool = True) -> tuple[Any, int]:
    """An interpreter with all tensors in place, and the size that open dimensions were given.

    Args:
        model: a file, or what is in one.
        delegates: whether XNNPACK's delegate takes nodes.

    Raises:
        RuntimeError, ValueError: it does not load the file at any of these sizes.
    """
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    failures: list[Exception] = []
    for size in _SIZES:
        interpreter: Any = Interpreter(**source, num_threads=threads, **({} if delegates else _PLAIN))
        opened = False
        for each in interpreter.get_input_details():
            signature = [int(dim) for dim in each["shape_signature"]]
            if size > 1 and -1 in signature:
                interpreter.resize_tensor_input(
                    each["index"], [size if dim < 0 else dim for dim in signature]
                )
            opened = opened or -1 in signature
        try:
            interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            failures.append(error)
            if not opened:
                break
        else:
            return interpreter, size
    raise failures[0]


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
