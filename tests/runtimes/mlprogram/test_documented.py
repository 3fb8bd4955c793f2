"""Operators that coremltools does not compute, or not as documented: against ONNX Runtime where ONNX has the same,
and against the examples in the documentation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.runtimes.mlprogram.kernels.elementwise_binary import select
from onnxport.runtimes.mlprogram.kernels.tensor_operation import topk
from onnxport.runtimes.mlprogram.kernels.tensor_transformation import flatten2d
from tests.runtimes.mlprogram.programs import evaluated

Array = np.ndarray[Any, np.dtype[Any]]
SEEDS = range(10)


def onnx(operator: str, *inputs: Array, **attributes: Any) -> Array:
    """ONNX Runtime's answer."""
    names = [f"i{place}" for place in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    values = [numpy_helper.from_array(each, name) for each, name in zip(inputs, names, strict=True)]
    graph = helper.make_graph(
        [node], "g", [], [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)], values
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model.graph.output[0].ClearField("type")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {})[0])


def mil(folder: Path, operator: str, arguments: dict[str, Any], opset: str = "iOS17") -> list[Array]:
    (found,) = evaluated(folder, operator, [arguments], opset)
    return found


# MIL's mode, ONNX's reduction, and what to hand ONNX instead of the updates.
MODES = [
    ("update", "none", lambda updates: updates),
    ("add", "add", lambda updates: updates),
    ("sub", "add", lambda updates: -updates),
    ("mul", "mul", lambda updates: updates),
    ("div", "mul", lambda updates: 1 / updates),
    ("max", "max", lambda updates: updates),
    ("min", "min", lambda updates: updates),
]


def unique_along(random: np.random.Generator, shape: tuple[int, ...], axis: int, count: int) -> Array:
    return np.argsort(random.random(shape), axis=axis).take(np.arange(count), axis=axis)


@pytest.mark.parametrize(("mode", "reduction", "turned"), MODES)
def test_scatter_along_axis(mode: str, reduction: str, turned: Any, tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = tuple(int(size) for size in random.integers(1, 5, random.integers(1, 5)))
        axis = int(random.integers(-len(shape), len(shape)))
        data = random.normal(size=shape).astype(np.float32)
        if mode == "update":
            indices = unique_along(random, shape, axis, int(random.integers(1, shape[axis] + 1)))
        else:  # also the same place several times
            wide = list(shape)
            wide[axis] = int(random.integers(1, 6))
            indices = random.integers(0, shape[axis], wide)
        updates = np.asarray(random.uniform(0.5, 2, indices.shape), np.float32)
        given = {
            "data": data,
            "indices": indices.astype(np.int32),
            "updates": updates,
            "axis": axis,
            "mode": mode,
        }
        (found,) = mil(tmp_path, "scatter_along_axis", given)
        expected = onnx("ScatterElements", data, indices, turned(updates), axis=axis, reduction=reduction)
        np.testing.assert_allclose(found, expected, 1e-6, 1e-6)


@pytest.mark.parametrize(("mode", "reduction", "turned"), MODES)
def test_scatter(mode: str, reduction: str, turned: Any, tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = tuple(int(size) for size in random.integers(1, 5, random.integers(1, 5)))
        axis = int(random.integers(-len(shape), len(shape)))
        data = random.normal(size=shape).astype(np.float32)
        size = shape[axis]
        indices = random.permutation(size)[: random.integers(1, size + 1)] if mode == "update" else None
        indices = random.integers(0, size, 6) if indices is None else indices
        wide = list(shape)
        wide[axis] = len(indices)
        updates = random.uniform(0.5, 2, wide).astype(np.float32)
        given = {
            "data": data,
            "indices": indices.astype(np.int32),
            "updates": updates,
            "axis": axis,
            "mode": mode,
        }
        (found,) = mil(tmp_path, "scatter", given)
        spread = [1] * len(shape)
        spread[axis] = -1
        everywhere = np.broadcast_to(indices.reshape(spread), wide).copy()
        expected = onnx("ScatterElements", data, everywhere, turned(updates), axis=axis, reduction=reduction)
        np.testing.assert_allclose(found, expected, 1e-6, 1e-6)


@pytest.mark.parametrize(("mode", "reduction", "turned"), MODES)
def test_scatter_nd(mode: str, reduction: str, turned: Any, tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = tuple(int(size) for size in random.integers(1, 5, random.integers(1, 5)))
        depth = int(random.integers(1, len(shape) + 1))
        data = random.normal(size=shape).astype(np.float32)
        places = np.argwhere(np.ones(shape[:depth]))
        count = int(random.integers(1, len(places) + 1))
        chosen = (
            random.permutation(len(places))[:count]
            if mode == "update"
            else random.integers(0, len(places), 4)
        )
        indices = places[chosen].reshape(-1, depth)
        updates = random.uniform(0.5, 2, (len(indices), *shape[depth:])).astype(np.float32)
        given = {"data": data, "indices": indices.astype(np.int32), "updates": updates, "mode": mode}
        (found,) = mil(tmp_path, "scatter_nd", given)
        expected = onnx("ScatterND", data, indices, turned(updates), reduction=reduction)
        np.testing.assert_allclose(found, expected, 1e-6, 1e-6)


def test_scatters_example(tmp_path: Path) -> None:
    data, updates = np.array([[1, 2, 3], [4, 5, 6]], np.int32), np.array([[5, 6, 7], [8, 9, 10]], np.int32)
    given = {
        "data": data,
        "indices": np.array([1, 0], np.int32),
        "updates": updates,
        "axis": 0,
        "mode": "add",
    }
    (found,) = mil(tmp_path, "scatter", given)
    np.testing.assert_array_equal(found, [[9, 11, 13], [9, 11, 13]])


@pytest.mark.parametrize("opset", ["iOS15", "iOS16", "iOS17"])
def test_gather_nd(opset: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = tuple(int(size) for size in random.integers(1, 5, random.integers(2, 5)))
        batch = int(random.integers(len(shape))) if opset != "iOS15" else 0
        depth = int(random.integers(1, len(shape) - batch + 1))
        x = random.normal(size=shape).astype(np.float32)
        lead = (*shape[:batch], *(int(size) for size in random.integers(1, 4, random.integers(1, 3))))
        lowest = [0] * depth if opset == "iOS17" else [-size for size in shape[batch : batch + depth]]
        indices = np.stack(
            [random.integers(low, size, lead) for low, size in zip(lowest, shape[batch:], strict=False)],
            axis=-1,
        )
        given = {"x": x, "indices": indices.astype(np.int32)} | ({"batch_dims": batch} if batch else {})
        (found,) = mil(tmp_path, "gather_nd", given, opset)
        np.testing.assert_array_equal(found, onnx("GatherND", x, indices, batch_dims=batch))


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_reverse_sequence(axes: tuple[int, int], tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        x = random.normal(size=tuple(random.integers(1, 6, 3))).astype(np.float32)
        batch, time = axes
        lengths = random.integers(0, x.shape[time] + 1, x.shape[batch])
        given = {"x": x, "lengths": lengths.astype(np.int32), "seq_axis": time, "batch_axis": batch}
        (found,) = mil(tmp_path, "reverse_sequence", given)
        # ONNX wants one at least, which turns nothing either.
        expected = onnx("ReverseSequence", x, np.maximum(lengths, 1), batch_axis=batch, time_axis=time)
        np.testing.assert_array_equal(found, expected)


def test_one_hot(tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = tuple(int(size) for size in random.integers(1, 5, random.integers(1, 4)))
        size, axis = int(random.integers(1, 6)), int(random.integers(-len(shape) - 1, len(shape) + 1))
        indices = random.integers(0, size, shape)
        off, on = random.normal(size=2).astype(np.float32)
        given = {"indices": indices.astype(np.int32), "one_hot_vector_size": np.int32(size), "axis": axis}
        (found,) = mil(tmp_path, "one_hot", given | {"on_value": on, "off_value": off})
        expected = onnx("OneHot", indices, np.array(size), np.array([off, on]), axis=axis)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_cumsum(exclusive: bool, reverse: bool, tmp_path: Path) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        x = random.integers(-9, 9, tuple(random.integers(1, 6, random.integers(1, 5)))).astype(np.float32)
        axis = int(random.integers(-1, x.ndim))
        (found,) = mil(tmp_path, "cumsum", {"x": x, "axis": axis, "exclusive": exclusive, "reverse": reverse})
        expected = onnx("CumSum", x, np.array(axis), exclusive=int(exclusive), reverse=int(reverse))
        np.testing.assert_array_equal(found, expected)


def test_k_of_minus_one_is_all() -> None:
    x = np.array([[3, 1, 2], [5, 6, 4]], np.float32)
    values, indices = topk(x, k=-1, axis=1, ascending=True)
    np.testing.assert_array_equal(values, np.sort(x, axis=1))
    np.testing.assert_array_equal(indices, np.argsort(x, axis=1))


def test_interleaved_concat(tmp_path: Path) -> None:
    """The documentation's example."""
    first, second = (
        np.array([[1, 2], [3, 4], [5, 6]], np.int32),
        np.array([[7, 8], [9, 10], [11, 12]], np.int32),
    )
    (found,) = mil(tmp_path, "concat", {"values": [first, second], "axis": 0, "interleave": True})
    np.testing.assert_array_equal(found, [[1, 2], [7, 8], [3, 4], [9, 10], [5, 6], [11, 12]])


@pytest.mark.parametrize(("axis", "size", "stride"), [(0, 2, 1), (1, 3, 2), (-1, 2, 3)])
def test_sliding_windows(axis: int, size: int, stride: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 7, 8)).astype(np.float32)
    (found,) = mil(tmp_path, "sliding_windows", {"x": x, "axis": axis, "size": size, "stride": stride})
    place = axis % 3
    starts = range(0, x.shape[place] - size + 1, stride)
    windows = [x.take(range(start, start + size), axis=place) for start in starts]
    np.testing.assert_array_equal(found, np.stack(windows, axis=place))


def test_reshape_like(tmp_path: Path) -> None:
    """The documentation's example."""
    x = np.arange(180, dtype=np.float32)
    given = {
        "x": x,
        "ref_tensors": [np.zeros((2, 3, 4), np.float32), np.zeros((1, 5, 6), np.float32)],
        "begins": [0, 1],
        "ends": [2, 0],
        "end_masks": [False, True],
    }
    (found,) = mil(tmp_path, "reshape_like", given)
    np.testing.assert_array_equal(found, x.reshape(2, 3, 5, 6))


def test_zeros_in_a_shape_count_from_the_end_since_ios17(tmp_path: Path) -> None:
    """The documentation's example."""
    x = np.arange(100, dtype=np.float32).reshape(2, 50)
    (found,) = mil(tmp_path, "reshape", {"x": x, "shape": np.array([1, 0, -1, 0], np.int32)})
    assert found.shape == (1, 1, 2, 50)


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((3,), -1, (1, 3)),
        ((3,), 1, (3, 1)),
        ((4, 3), -1, (4, 3)),
        ((2, 3, 2), -1, (6, 2)),
        ((5, 5, 2), 1, (5, 10)),
    ],
)
def test_flatten2d(shape: tuple[int, ...], axis: int, expected: tuple[int, int]) -> None:
    """The documentation's examples."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(flatten2d(x, axis), x.reshape(expected))


def test_select_without_choices_gives_places() -> None:
    found = select(np.array([[True, False], [True, True]]))
    np.testing.assert_array_equal(found, [[0, 0], [1, 0], [1, 1]])
