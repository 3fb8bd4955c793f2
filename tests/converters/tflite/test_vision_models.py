"""Exported patterns around the vision operators: detectors' last steps, heads on regions, warping, unpooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.models import model_of, run_onnx

RANDOM = np.random.default_rng(0)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """`_` stands for an input left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), outputs.split()[0], **attributes)


def constant(name: str, values: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(floats(*shape), name)


def boxes(count: int) -> Array:
    corners = RANDOM.uniform(0, 50, (count, 2))
    return np.concatenate([corners, corners + RANDOM.uniform(5, 30, (count, 2))], axis=1).astype(np.float32)


def detections(count: int, best: float = 1.0) -> dict[str, Array]:
    scores = RANDOM.random(count) * best
    return {"boxes": boxes(count), "scores": scores.astype(np.float32)}


def images(batch: int, height: int, width: int) -> dict[str, Array]:
    return {"image": floats(batch, 3, height, width)}


@dataclass(frozen=True)
class Graph:
    """A graph, the sizes that stay open, and inputs of several sizes."""

    nodes: Sequence[onnx.NodeProto]
    constants: Sequence[onnx.TensorProto]
    outputs: str
    open_dims: dict[str, Sequence[str | int]]
    feeds: Callable[[], list[dict[str, Array]]]


IMAGE: dict[str, Sequence[str | int]] = {"image": ["n", 3, "h", "w"]}
AXES = [constant("axis0", [0]), constant("axis1", [1]), constant("two", 2), constant("one", 1)]
CONV = weight("kernel", 4, 3, 3, 3)

GRAPHS = {
    "torchvision's nms": Graph(
        [
            node("Unsqueeze", "boxes axis0", "boxes3"),
            node("Unsqueeze", "scores axis0", "scores2"),
            node("Unsqueeze", "scores2 axis0", "scores3"),
            node("NonMaxSuppression", "boxes3 scores3 most overlap least", "selected"),
            node("Gather", "selected two", "kept", axis=1),
            node("Gather", "boxes kept", "kept_boxes"),
            node("Gather", "scores kept", "kept_scores"),
        ],
        [
            *AXES,
            constant("most", [2**63 - 1]),
            constant("overlap", [0.4], np.float32),
            constant("least", [0.3], np.float32),
        ],
        "kept_boxes kept_scores",
        {"boxes": ["n", 4], "scores": ["n"]},
        lambda: [detections(12), detections(30), detections(4, best=0.2)],
    ),
    "suppression at the end of a YOLO": Graph(
        [
            node("Transpose", "raw", "rows", perm=[0, 2, 1]),
            node("Split", "rows parts", "centred classes", axis=2),
            node("Transpose", "classes", "scores", perm=[0, 2, 1]),
            node("NonMaxSuppression", "centred scores most overlap least", "selected", center_point_box=1),
            node("Gather", "selected two", "which", axis=1),
            node("Gather", "selected one", "label", axis=1),
            node("Gather", "centred which", "found", axis=1),
        ],
        [
            *AXES,
            constant("parts", [4, 5]),
            constant("most", [100]),
            constant("overlap", [0.45], np.float32),
            constant("least", [0.5], np.float32),
        ],
        "found label",
        {"raw": [1, 9, "anchors"]},
        lambda: [
            {
                "raw": np.concatenate(
                    [RANDOM.uniform(5, 60, (1, 4, count)), RANDOM.random((1, 5, count))], axis=1
                ).astype(np.float32)
            }
            for count in (50, 20)
        ],
    ),
    "a head on regions": Graph(
        [
            node("Conv", "image kernel", "features", strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Shape", "boxes", "count", end=1),
            node("ConstantOfShape", "count", "first", value=constant("zero", [0])),
            node(
                "RoiAlign",
                "features boxes first",
                "regions",
                output_height=3,
                output_width=3,
                sampling_ratio=2,
                spatial_scale=0.5,
                coordinate_transformation_mode="output_half_pixel",
            ),
            node("Flatten", "regions", "flat"),
            node("MatMul", "flat dense", "y"),
        ],
        [CONV, weight("dense", 36, 5)],
        "y",
        {"image": [1, 3, "h", "w"], "boxes": ["n", 4]},
        lambda: [images(1, size, size + 8) | {"boxes": boxes(count)} for size, count in ((64, 5), (96, 2))],
    ),
    "a map warped by a flow": Graph(
        [
            node("Conv", "image kernel", "features", pads=[1, 1, 1, 1]),
            node("Transpose", "flow", "last", perm=[0, 2, 3, 1]),
            node("Tanh", "last", "grid"),
            node("GridSample", "features grid", "warped", padding_mode="border", align_corners=1),
            node("Relu", "warped", "y"),
        ],
        [CONV],
        "y",
        {**IMAGE, "flow": ["n", 2, "h", "w"]},
        lambda: [images(n, h, h + 2) | {"flow": floats(n, 2, h, h + 2)} for n, h in ((1, 8), (2, 12))],
    ),
    "torch's bicubic interpolation by a factor": Graph(
        [
            node("Shape", "image", "same", end=2),
            node("Shape", "image", "sides", start=2),
            node("Mul", "sides three", "tripled"),
            node("Div", "tripled two", "longer"),
            node("Concat", "same longer", "sizes", axis=0),
            node(
                "Resize",
                "image _ _ sizes",
                "y",
                mode="cubic",
                coordinate_transformation_mode="pytorch_half_pixel",
            ),
        ],
        [constant("three", [3]), constant("two", [2])],
        "y",
        IMAGE,
        lambda: [images(1, 8, 10), images(2, 13, 6)],
    ),
    "pooling undone": Graph(
        [
            node("Conv", "image kernel", "features", pads=[1, 1, 1, 1]),
            node("MaxPool", "features", "pooled indices", kernel_shape=[2, 2], strides=[2, 2]),
            node("Relu", "pooled", "kept"),
            node("MaxUnpool", "kept indices", "y", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        [CONV],
        "y",
        IMAGE,
        lambda: [images(1, 16, 12), images(2, 8, 16)],
    ),
    "deformable convolution with computed offsets": Graph(
        [
            node("Conv", "image offset_kernel", "offsets", pads=[1, 1, 1, 1]),
            node("Conv", "image mask_kernel", "logits", pads=[1, 1, 1, 1]),
            node("Sigmoid", "logits", "mask"),
            node("DeformConv", "image kernel offsets bias mask", "y", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        ],
        [CONV, weight("offset_kernel", 18, 3, 3, 3), weight("mask_kernel", 9, 3, 3, 3), weight("bias", 4)],
        "y",
        IMAGE,
        lambda: [images(1, 9, 11), images(2, 6, 7)],
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_one_artefact_answers_at_every_size(conformance: Conformance, name: str) -> None:
    graph = GRAPHS[name]
    feeds = graph.feeds()
    model = model_of(
        graph.nodes, feeds[0], graph.constants, outputs=graph.outputs.split(), open_dims=graph.open_dims
    )
    answers = conformance.convert_and_run(model, feeds)
    for feed, answer in zip(feeds, answers, strict=True):
        for output, expected in run_onnx(model, feed).items():
            assert not difference(expected, answer[output], atol=1e-4)


def test_a_norm_over_space_of_equal_numbers_is_zero(conformance: Conformance) -> None:
    """LiteRT's mean of 16,384 numbers is off by up to 1e-3, which epsilon divides to half a deviation."""
    x = np.broadcast_to(np.float32([[[0.83], [-1.57]]]), (1, 2, 16384)).copy()
    constants = [weight("s", 2), constant("b", [0, 0], np.float32)]
    model = model_of([node("InstanceNormalization", "x s b", "y")], {"x": x}, constants)
    (answer,) = conformance.convert_and_run(model, [{"x": x}])
    assert np.abs(answer["y"]).max() < 1e-5
