"""Exported patterns around batches and sequences of open size: masks, positions, selections, caches.

One artefact answers at several sizes, as ONNX Runtime does on the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.models import OPSET, model_of, run_onnx

RANDOM = np.random.default_rng(0)
SIZES = [(1, 3), (2, 5), (3, 1)]  # batch, length


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def indices(limit: int, *shape: int) -> Array:
    return RANDOM.integers(0, limit, shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node by the names of its operands, "_" for an absent one."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), outputs.split()[0], **attributes)


@dataclass(frozen=True)
class Graph:
    """Nodes over operands of open sizes; operands are named x unless given."""

    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, Any] = field(default_factory=dict)
    feeds: Sequence[Mapping[str, Array]] = tuple({"x": floats(n, t, 8)} for n, t in SIZES)
    dims: Mapping[str, Sequence[str | int]] = field(default_factory=lambda: {"x": ["N", "T", 8]})
    outputs: str = ""
    opset: int = OPSET


def feeds_of(make: Any) -> list[dict[str, Array]]:
    return [make(n, t) for n, t in SIZES]


FOREVER = 2**63 - 1
NTK = {"x": ["N", "T", 8]}
LENGTH = [node("Shape", "x", "length", start=1, end=2), node("Squeeze", "length", "count")]
COUNTED = [*LENGTH, node("Range", "zero count one", "places")]
COUNTING = {"zero": 0, "one": 1}
SCORES = [node("Transpose", "x", "turned", perm=[0, 2, 1]), node("MatMul", "x turned", "scores")]
IS_POSITIVE = [node("Greater", "x nothing", "mask")]
WHERE_MASKED = [node("NonZero", "mask", "found"), node("Transpose", "found", "places", perm=[1, 0])]
NOTHING = {"nothing": np.float32(0)}
HALF = np.float32(0.5)

GRAPHS: dict[str, Graph] = {
    "causal attention, its mask from the length": Graph(
        [
            *COUNTED,
            node("Unsqueeze", "places first", "rows"),
            node("Unsqueeze", "places second", "columns"),
            node("Greater", "rows columns", "later"),
            *SCORES,
            node("Where", "later never scores", "masked"),
            node("Softmax", "masked", "weights", axis=-1),
            node("MatMul", "weights x", "y"),
        ],
        {**COUNTING, "first": [0], "second": [1], "never": np.float32(-np.inf)},
    ),
    "attention under a padding mask, expanded to every pair": Graph(
        [
            node("Unsqueeze", "mask middle", "wide"),
            node("Cast", "wide", "kept", to=TensorProto.FLOAT),
            node("Sub", "full kept", "left_out"),
            node("Cast", "left_out", "is_out", to=TensorProto.BOOL),
            node("Where", "is_out least left_out", "bias"),
            node("Shape", "x", "batch", end=1),
            node("Shape", "x", "length", start=1, end=2),
            node("Concat", "batch one length length", "square", axis=0),
            node("Expand", "bias square", "bias4"),
            node("Reshape", "x heads", "split"),
            node("Transpose", "split", "q", perm=[0, 2, 1, 3]),
            node("Transpose", "split", "k", perm=[0, 2, 3, 1]),
            node("MatMul", "q k", "scores"),
            node("Add", "scores bias4", "masked"),
            node("Softmax", "masked", "weights", axis=-1),
            node("MatMul", "weights q", "mixed"),
            node("Transpose", "mixed", "joined", perm=[0, 2, 1, 3]),
            node("Concat", "batch length eight", "shape", axis=0),
            node("Reshape", "joined shape", "y"),
        ],
        {
            "middle": [1, 2],
            "full": np.float32(1),
            "least": np.float32(-3e38),
            "one": [1],
            "heads": [0, 0, 2, 4],
            "eight": [8],
        },
        feeds_of(
            lambda n, t: {"x": floats(n, t, 8), "mask": np.maximum(indices(2, n, t), np.arange(t) == 0)}
        ),
        {**NTK, "mask": ["N", "T"]},
    ),
    "keys and values behind those of the past": Graph(
        [
            node("Concat", "past x", "k", axis=2),
            node("Shape", "k", "all", start=2, end=3),
            node("Shape", "x", "new", start=2, end=3),
            node("Sub", "all new", "old"),
            node("Squeeze", "all", "end"),
            node("Squeeze", "old", "start"),
            node("Range", "start end one", "own"),
            node("Range", "zero end one", "every"),
            node("Unsqueeze", "own second", "column"),
            node("LessOrEqual", "every column", "seen"),
            node("Transpose", "k", "turned", perm=[0, 1, 3, 2]),
            node("MatMul", "x turned", "scores"),
            node("Where", "seen scores never", "masked"),
            node("Softmax", "masked", "weights", axis=-1),
            node("MatMul", "weights k", "y"),
        ],
        {**COUNTING, "second": [1], "never": np.float32(-np.inf)},
        [
            {"x": floats(n, 2, t, 4), "past": floats(n, 2, p, 4)}
            for n, t, p in ((1, 1, 3), (2, 3, 2), (1, 4, 1))
        ],
        {"x": ["N", 2, "T", 4], "past": ["N", 2, "P", 4]},
        "y k",
    ),
    "a table of positions cut to the length": Graph(
        [LENGTH[0], node("Slice", "table start length axis", "cut"), node("Add", "x cut", "y")],
        {"table": floats(1, 20, 8), "start": [0], "axis": [1]},
    ),
    "cut to the length of another": Graph(
        [node("Shape", "b", "length", start=1, end=2), node("Slice", "x start length axis", "y")],
        {"start": [0], "axis": [1]},
        [{"x": floats(n, s, 8), "b": floats(n, t)} for n, s, t in ((1, 6, 3), (2, 7, 5))],
        {"x": ["N", "S", 8], "b": ["N", "T"]},
    ),
    "expanded to the shape of another": Graph(
        [node("Shape", "x", "shape"), node("Expand", "b shape", "y")],
        {},
        feeds_of(lambda n, t: {"x": floats(n, t, 8), "b": floats(n, 1, 8)}),
        {**NTK, "b": ["N", 1, 8]},
    ),
    "torch's expand, -1 for a size that stays": Graph(
        [
            node("Shape", "x", "shape", end=2),
            node("Concat", "shape keep", "wanted", axis=0),
            node("Equal", "wanted keep", "stays"),
            node("Where", "stays ones wanted", "target"),
            node("Expand", "b target", "y"),
        ],
        {"keep": [-1], "ones": [1, 1, 1]},
        feeds_of(lambda n, t: {"x": floats(n, t, 8), "b": floats(n, 1, 5)}),
        {**NTK, "b": ["N", 1, 5]},
    ),
    "elements under a mask": Graph([*IS_POSITIVE, *WHERE_MASKED, node("GatherND", "x places", "y")], NOTHING),
    "rows under a mask": Graph(
        [
            node("ReduceMax", "x last", "largest", keepdims=0),
            node("Greater", "largest half", "mask"),
            *WHERE_MASKED,
            node("GatherND", "x places", "y"),
        ],
        {"last": [2], "half": HALF},
    ),
    "places under a mask overwritten": Graph(
        [
            *IS_POSITIVE,
            *WHERE_MASKED,
            node("Shape", "places", "count", end=1),
            node("Expand", "half count", "updates"),
            node("ScatterND", "x places updates", "y"),
        ],
        {**NOTHING, "half": HALF},
    ),
    "slices picked by a condition": Graph(
        [node("Compress", "x picked", "y", axis=1)],
        {},
        feeds_of(lambda n, t: {"x": floats(n, t, 8), "picked": np.arange(t) % 2 == 0}),
        {**NTK, "picked": ["T"]},
    ),
    "torch's index_put over open sizes": Graph(
        [node("ScatterND", "x places updates", "y", reduction="add")],
        {},
        feeds_of(
            lambda n, t: {"x": floats(n, t, 8), "places": indices(1, t + 1, 2), "updates": floats(t + 1, 8)}
        ),
        {**NTK, "places": ["K", 2], "updates": ["K", 8]},
    ),
    **{
        f"torch's scatter_reduce, {reduction}": Graph(
            [node("ScatterElements", "x places updates", "y", axis=1, reduction=reduction)],
            {},
            feeds_of(
                lambda n, t: {"x": floats(n, t), "places": indices(t, n, t + 2), "updates": floats(n, t + 2)}
            ),
            {"x": ["N", "T"], "places": ["N", "K"], "updates": ["N", "K"]},
        )
        for reduction in ("add", "max", "min")
    },
    "the last element of each sequence": Graph(
        [
            node("ReduceSum", "mask second", "lengths", keepdims=1),
            node("Sub", "lengths one", "last"),
            node("Unsqueeze", "last third", "places"),
            node("Expand", "places wide", "wide_places"),
            node("GatherElements", "x wide_places", "picked", axis=1),
            node("Squeeze", "picked second", "y"),
        ],
        {"second": [1], "third": [2], "one": 1, "wide": [1, 1, 8]},
        feeds_of(lambda n, t: {"x": floats(n, t, 8), "mask": np.ones((n, t), np.int64)}),
        {**NTK, "mask": ["N", "T"]},
    ),
    "torch's index_select per batch entry": Graph(
        [node("GatherND", "x places", "y", batch_dims=1)],
        {},
        feeds_of(lambda n, t: {"x": floats(n, t, 8), "places": indices(t, n, t + 1, 1)}),
        {**NTK, "places": ["N", "K", 1]},
    ),
    "the best of at most four": Graph(
        [LENGTH[0], node("Min", "length four", "k"), node("TopK", "x k", "values places", axis=1)],
        {"four": [4]},
        outputs="values places",
    ),
    "triangle of the scores": Graph([*SCORES, node("Trilu", "scores", "y", upper=0)]),
    "triangle of ones": Graph(
        [
            LENGTH[0],
            node("Concat", "length length", "square", axis=0),
            node("Expand", "one square", "ones"),
            node("Trilu", "ones diagonal", "y"),
        ],
        {"one": np.float32(1), "diagonal": 1},
    ),
    "unit matrix in the shape of another": Graph(
        [node("ReduceSum", "x last", "sums", keepdims=0), node("EyeLike", "sums", "y", k=1)], {"last": [2]}
    ),
    "one hot along an open axis": Graph([node("Hardmax", "x", "y", axis=1)]),
    "positions of what is not padded": Graph(
        [node("CumSum", "x one", "sums"), node("Mul", "sums x", "y")],
        {"one": 1},
        feeds_of(lambda n, t: {"x": indices(2, n, t)}),
        {"x": ["N", "T"]},
    ),
    "halves of an open length": Graph(
        [node("Split", "x", "y z", axis=1, num_outputs=2)],
        feeds=[{"x": floats(n, t, 8)} for n, t in ((1, 4), (2, 7))],
        outputs="y z",
    ),
    "every second element backwards": Graph(
        [node("Slice", "x start end axis step", "y")],
        {"start": [-1], "end": [-FOREVER], "axis": [1], "step": [-2]},
    ),
    "frames and their spectra": Graph(
        [node("STFT", "x step window _", "y")],
        {"step": 4, "window": np.hanning(8).astype(np.float32)},
        [{"x": floats(n, t, 1)} for n, t in ((1, 32), (2, 41))],
        {"x": ["N", "L", 1]},
    ),
    "a spectrum of the whole length": Graph(
        [node("DFT", "x _ axis", "y", onesided=1)],
        {"axis": 1},
        [{"x": floats(n, t, 1)} for n, t in ((1, 8), (2, 11))],
        {"x": ["N", "L", 1]},
    ),
    "different values and where they are": Graph(
        [node("Unique", "x", "y first inverse counts", sorted=0)],
        {},
        feeds_of(lambda n, t: {"x": indices(3, n, t)}),
        {"x": ["N", "T"]},
        "y first inverse counts",
    ),
    "a cache filled from a position on": Graph(
        [node("TensorScatter", "x update starts", "y")],
        {},
        [
            {"x": floats(n, 2, s, 4), "update": floats(n, 2, t, 4), "starts": indices(s - t, n)}
            for n, s, t in ((1, 5, 2), (2, 7, 3))
        ],
        {"x": ["N", 2, "S", 4], "update": ["N", 2, "T", 4], "starts": ["N"]},
        opset=24,
    ),
    "the operator Attention": Graph(
        [node("Attention", "x k k", "y", is_causal=1)],
        {},
        feeds_of(lambda n, t: {"x": floats(n, 2, t, 4), "k": floats(n, 2, t, 4)}),
        {"x": ["N", 2, "T", 4], "k": ["N", 2, "T", 4]},
        opset=23,
    ),
    "the operator RotaryEmbedding": Graph(
        [node("RotaryEmbedding", "x cosines sines places", "y")],
        {"cosines": floats(20, 2), "sines": floats(20, 2)},
        feeds_of(lambda n, t: {"x": floats(n, 2, t, 4), "places": indices(20, n, t)}),
        {"x": ["N", 2, "T", 4], "places": ["N", "T"]},
        opset=23,
    ),
    "the operator RMSNormalization": Graph(
        [node("RMSNormalization", "x scale", "y")], {"scale": floats(8)}, opset=23
    ),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_one_artefact_is_right_at_every_batch_and_length(conformance: Conformance, graph: str) -> None:
    case = GRAPHS[graph]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in case.constants.items()]
    model = model_of(
        case.nodes,
        case.feeds[0],
        constants,
        outputs=case.outputs.split(),
        open_dims=case.dims,
        opset=case.opset,
    )
    feeds = [dict(feed) for feed in case.feeds]
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        for name, expected in run_onnx(model, feed).items():
            assert not difference(expected, answer[name], atol=1e-5)
