"""The same network with more work: a chain of matrix products that no optimization removes.

The chain starts at a value of the input and ends as an additional output. The bench's own session finds the length
for a given share of the network's time, with both models in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxport.bench.report import Settings
from onnxport.bench.session import Session, Subject, rounds
from onnxport.core.arrays import Feeds

_SIZE = 64
_FIRST = 40  # products, to learn what one takes
_ROUNDS = 150
_TRIES = 6
_NEAR = 0.04  # of the share


def slower(path: Path, made: Path, share: float, feeding: Callable[..., Feeds], threads: int) -> float:
    """Writes the network with about `share` more to do to `made`; how much more it came to."""
    products, tried = _FIRST, dict[int, float]()
    for _ in range(_TRIES):
        _write(path, made, products)
        tried[products] = _more(path, made, feeding, threads)
        if abs(tried[products] / share - 1) < _NEAR:
            break
        products = max(1, round(products * share / max(tried[products], share / 8)))
    best = min(tried, key=lambda count: abs(tried[count] - share))
    _write(path, made, best)
    return tried[best]


def _more(path: Path, made: Path, feeding: Callable[..., Feeds], threads: int) -> float:
    settings = Settings(runtime="ort", provider="cpu", threads=threads, level="all")
    with Session([Subject(each, settings, feeding) for each in (path, made)]) as session:
        session.load()
        session.feed()
        session.warm_up(10)
        session.run(rounds(_ROUNDS))
        for trial in session.trials:
            if trial.failure is not None:
                raise trial.failure.error
        before, after = (trial.floor for trial in session.trials)
    if threads == 1:
        return min(after.cpu, after.wall) / min(before.cpu, before.wall) - 1
    return after.wall / before.wall - 1


def _write(path: Path, made: Path, products: int) -> None:
    model = onnx.load(path)
    graph = model.graph
    constants = {each.name for each in graph.initializer}
    source = next(each for each in graph.input if each.name not in constants)
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(_SIZE, _SIZE)))
    for name, value in (
        ("more_w", turn.astype(np.float32)),
        ("more_first", np.zeros(1, np.int64)),
        ("more_flat", np.full(1, -1, np.int64)),
    ):
        graph.initializer.append(numpy_helper.from_array(value, name))
    graph.node.extend(
        [
            helper.make_node("Reshape", [source.name, "more_flat"], ["more_values"]),
            helper.make_node("Gather", ["more_values", "more_first"], ["more_value"], axis=0),
            helper.make_node("Cast", ["more_value"], ["more_float"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["more_float", "more_w"], ["more_0"]),
            *(
                helper.make_node("MatMul", [f"more_{n}", "more_w"], [f"more_{n + 1}"])
                for n in range(products)
            ),
        ]
    )
    shape = [_SIZE, _SIZE]
    graph.output.append(helper.make_tensor_value_info(f"more_{products}", TensorProto.FLOAT, shape))
    onnx.save(model, made)
