"""The check before validation: an interpreter loads a .tflite, allocates it and runs it once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.errors import CannotConvertError, InputError, Refusal
from onnxport.formats.graph.tflite import TfliteModel, operator_names, read_tflite
from onnxport.formats.tflite.ports import read_signature

Detail = dict[str, Any]  # the interpreter's, of a tensor


def count_operators(model: Path | TfliteModel) -> dict[str, int]:
    """Return how often each operator of a file occurs, most frequent first; ValueError for a damaged file."""
    if isinstance(model, TfliteModel):
        counts = Counter(node.op for each in model.subgraphs for node in each.graph.nodes)
    else:
        try:
            counts = Counter(operator_names(model))
        except InputError as error:
            raise ValueError(str(error)) from error
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


Shapes = Mapping[str, Sequence[int]]  # input name -> its sizes, in the source's axis order


def check_runs(path: Path, *, ends: bool = True, solve: Callable[[], Iterable[Shapes]] = tuple) -> None:
    """Load the file and run it at several open sizes and fillings, until one run succeeds.

    The compiler writes some modules that no runtime takes, which only an interpreter finds out. A failure on made-up
    inputs proves little: a size may be too small for a window, and a number no valid shape or divisor.

    A model that may loop forever on made-up inputs (not `ends`) is only allocated.

    Args:
        solve: returns sizes that the source's operators accept. Called late: solving takes time.

    Raises:
        CannotConvertError: the interpreter refuses the file; names the node if the interpreter does.
    """
    first: Exception | None = None
    try:
        details = _load(path).get_input_details()
        for shapes, filling in _attempts(path, details, solve):
            try:
                _run(path, shapes, filling if ends else None)
            except (RuntimeError, ValueError) as error:
                first = first or error
            else:
                return
        if first is not None and not (
            any(np.dtype(detail["dtype"]).kind in "iu" for detail in details) and _allocates(path, details)
        ):
            raise first
    except (RuntimeError, ValueError) as error:
        what = "the LiteRT interpreter refuses the converted model"
        raise CannotConvertError(what, refusals=[_refusal(path, error)]) from error


# (size of open dimensions, number that fills the inputs), the likeliest to succeed first.
_ATTEMPTS = ((1, 0), (1, 1), (64, 0), (64, 1), (224, 0))
_SOLVED = 4  # further attempts


def _attempts(
    path: Path, details: Sequence[Detail], solve: Callable[[], Iterable[Shapes]]
) -> Iterator[tuple[dict[int, list[int]], int]]:
    """Yield the shape of each input with an open dimension, by tensor, and a number that fills all inputs."""
    opened = _open_shapes(details)
    for size, filling in _ATTEMPTS:
        yield {i: [size if dim < 0 else dim for dim in dims] for i, dims in opened.items()}, filling
    if not opened:
        return
    ports = read_signature(path).inputs
    for shapes in islice(solve(), _SOLVED):
        sizes = {
            index: [shapes[port.name][axis] for axis in port.permutation or range(len(shapes[port.name]))]
            for port, index in ports
        }
        for filling in (0, 1):
            yield {index: dims for index, dims in sizes.items() if index in opened}, filling


def _open_shapes(details: Sequence[Detail]) -> dict[int, list[int]]:
    """Return the shapes of inputs with open dimensions, which are negative, by tensor."""
    shapes = {detail["index"]: [int(dim) for dim in detail["shape_signature"]] for detail in details}
    return {index: dims for index, dims in shapes.items() if -1 in dims}


def _load(path: Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter  # most conversions leave the trial to their proof

    return Interpreter(model_path=str(path), num_threads=2)


def _run(path: Path, shapes: Mapping[int, Sequence[int]], filling: int | None) -> None:
    """Allocate, and run unless `filling` is None, in a new interpreter: XNNPACK keeps a failure."""
    interpreter = _load(path)
    for index, dims in shapes.items():
        interpreter.resize_tensor_input(index, dims)
    interpreter.allocate_tensors()
    if filling is not None:
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], np.full(detail["shape"], filling, detail["dtype"]))
        interpreter.invoke()


def _allocates(path: Path, details: Sequence[Detail]) -> bool:
    """Return whether some size can be allocated."""
    opened = _open_shapes(details)
    for size in dict(_ATTEMPTS):
        with suppress(RuntimeError, ValueError):
            _run(path, {i: [size if dim < 0 else dim for dim in dims] for i, dims in opened.items()}, None)
            return True
    return False


def _refusal(path: Path, error: Exception) -> Refusal:
    """Find the node of a message such as "... Node number 5 (SOFTMAX) failed to prepare."."""
    words = " ".join(str(error).split())
    places = list(re.finditer(r"Node number (\d+) \((\w+)\) failed to \w+", words))
    if not places:
        return Refusal("model", path.name, words[:300] or "it gives no reason")
    # The node in the graph itself comes last, those inside its branches before it.
    found = places[-1]
    cause = words[: places[0].start()].strip() or "failed to prepare"
    nodes = read_tflite(path).main.graph.nodes
    number, op = int(found.group(1)), found.group(2)
    name = nodes[number].label if number < len(nodes) else ""
    return Refusal(op, name, cause[:300])
