"""The check before validation: an interpreter loads a .tflite, allocates it and runs it once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from onnxport.core.errors import CannotConvertError, InputError, Refusal
from onnxport.formats.graph.tflite import TfliteModel, read_tflite


def count_operators(model: Path | TfliteModel) -> dict[str, int]:
    """Return how often each operator of a file occurs, most frequent first; ValueError for a damaged file."""
    try:
        found = read_tflite(model) if isinstance(model, Path) else model
    except InputError as error:
        raise ValueError(str(error)) from error
    counts = Counter(node.op for each in found.subgraphs for node in each.graph.nodes)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def check_runs(path: Path, *, ends: bool = True) -> None:
    """Load the file and run it at several open sizes and fillings, until one run succeeds.

    The compiler writes some modules that no runtime takes, which only an interpreter finds out. A failure on made-up
    inputs proves little: a size may be too small for a window, and a number no valid shape or divisor.

    A model that may loop forever on made-up inputs (not `ends`) is only allocated.

    Raises:
        CannotConvertError: the interpreter refuses the file; names the node if the interpreter does.
    """
    failures: list[Exception] = []
    allocates = False
    try:
        interpreter = Interpreter(model_path=str(path), num_threads=2)
        for size, filling in _ATTEMPTS:
            try:
                _allocate(interpreter, size)
                allocates = True
                if ends:
                    for detail in interpreter.get_input_details():
                        numbers = np.full(detail["shape"], filling, detail["dtype"])
                        interpreter.set_tensor(detail["index"], numbers)
                    interpreter.invoke()
            except (RuntimeError, ValueError) as error:
                failures.append(error)
            else:
                return
        details = interpreter.get_input_details()
        if not (allocates and any(np.dtype(detail["dtype"]).kind in "iu" for detail in details)):
            raise failures[0]
    except (RuntimeError, ValueError) as error:
        what = "the LiteRT interpreter refuses the converted model"
        raise CannotConvertError(what, refusals=[_refusal(path, error)]) from error


# (size of open dimensions, number that fills the inputs), the likeliest to succeed first.
_ATTEMPTS = ((1, 0), (1, 1), (64, 0), (64, 1), (224, 0))


def _allocate(interpreter: Interpreter, size: int) -> None:
    for detail in interpreter.get_input_details():
        signature = [int(dim) for dim in detail["shape_signature"]]
        if -1 in signature:
            interpreter.resize_tensor_input(detail["index"], [size if dim < 0 else dim for dim in signature])
    interpreter.allocate_tensors()


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
