"""One artefact, several sizes: what stays open in the model stays open in the file, and right at each size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onnxport
from fixtures import models
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.runtimes.litert import TfliteRuntime
from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.models import model_of, run_onnx

OPEN = ["N", 3, "H", "W"]
SHAPES = [(1, 3, 8, 12), (2, 3, 16, 4), (3, 3, 4, 20)]


def images(shape: Sequence[int], seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), outputs.split()[0], **attributes)


def constant(name: str, values: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


HALVES = [node("Conv", "x w", "conv", strides=[2, 2], pads=[1, 1, 1, 1])]
CONV = weight("w", 4, 3, 3, 3)

# What is done to [N, 3, H, W], and the constants for it; the last node's result is compared.
GRAPHS: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto]]] = {
    "strided convolution, explicit pads": (HALVES, [CONV]),
    "convolution, SAME_UPPER": ([node("Conv", "x w", "y", strides=[2, 2], auto_pad="SAME_UPPER")], [CONV]),
    "pooling with ceil_mode": (
        [node("AveragePool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)],
        [],
    ),
    "transposed convolution": (
        [node("ConvTranspose", "x w", "y", strides=[2, 2], pads=[1, 0, 1, 0], output_padding=[1, 1])],
        [weight("w", 3, 2, 3, 3)],
    ),
    "feature pyramid, nearest to another's size": (
        [
            *HALVES,
            node("Shape", "x", "whole", start=2),
            node("Shape", "conv", "half", end=2),
            node("Concat", "half whole", "sizes", axis=0),
            node(
                "Resize",
                "conv roi scales sizes",
                "y",
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            ),
        ],
        [CONV, constant("roi", [], np.float32), constant("scales", [], np.float32)],
    ),
    "linear resize by two": (
        [node("Resize", "x roi scales", "y", mode="linear")],
        [constant("roi", [], np.float32), constant("scales", [1, 1, 2, 2], np.float32)],
    ),
    "cubic resize": (
        [node("Resize", "x roi scales", "y", mode="cubic")],
        [constant("roi", [], np.float32), constant("scales", [1, 1, 2, 0.7], np.float32)],
    ),
    "edge padding": (
        [node("Pad", "x amounts", "y", mode="edge")],
        [constant("amounts", [0, 0, 1, 2, 0, 0, 3, 1])],
    ),
    "global pooling and softmax": (
        [node("GlobalAveragePool", "x", "pooled"), node("Softmax", "pooled", "y", axis=1)],
        [],
    ),
    "pixels as a sequence": (
        [
            node("Reshape", "x shape", "flat"),
            node("Transpose", "flat", "sequence", perm=[0, 2, 1]),
            node("MatMul", "sequence w", "y"),
        ],
        [constant("shape", [0, 0, -1]), weight("w", 3, 5)],
    ),
    "pixels as a sequence and back": (
        [
            *HALVES,
            node("Shape", "conv", "shape"),
            node("Reshape", "conv flat_shape", "flat"),
            node("Sigmoid", "flat", "gate"),
            node("Reshape", "gate shape", "y"),
        ],
        [CONV, constant("flat_shape", [0, 4, -1])],
    ),
    "half of a size computed": (
        [
            node("Shape", "x", "size", start=2, end=3),
            node("Div", "size two", "half"),
            node("Slice", "x zero half axis", "y"),
        ],
        [constant("two", [2]), constant("zero", [0]), constant("axis", [2])],
    ),
    "flatten behind the batch": ([node("Flatten", "x", "y")], []),
    "flatten with both sides open": ([node("Flatten", "x", "y", axis=2)], []),
    "slice by constants beyond the end": (
        [node("Slice", "x starts ends axes", "y")],
        [constant("starts", [1, -3]), constant("ends", [30, -1]), constant("axes", [2, 3])],
    ),
    "reflection": (
        [node("Pad", "x amounts", "y", mode="reflect")],
        [constant("amounts", [0, 0, 1, 2, 0, 0, 3, 1])],
    ),
    "nothing left of the values": ([node("Mul", "x zero", "y")], [constant("zero", 0, np.float32)]),
    "expanded to its own shape": (
        [node("Shape", "x", "shape"), node("Expand", "one shape", "ones"), node("Add", "x ones", "y")],
        [constant("one", [[1]], np.float32)],
    ),
    "constant of its shape": (
        [node("Shape", "x", "shape"), node("ConstantOfShape", "shape", "zeros"), node("Sub", "zeros x", "y")],
        [],
    ),
    "positions": (
        [
            node("Shape", "x", "width", start=3),
            node("Squeeze", "width", "limit"),
            node("Range", "start limit step", "places"),
            node("Cast", "places", "numbers", to=onnx.TensorProto.FLOAT),
            node("Add", "x numbers", "y"),
        ],
        [constant("start", 0), constant("step", 1)],
    ),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_open_sizes_are_right_at_every_size(conformance: Conformance, graph: str) -> None:
    nodes, constants = GRAPHS[graph]
    feeds = [images(shape) for shape in SHAPES]
    model = model_of(nodes, feeds[0], constants, open_dims={"x": OPEN})
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        for name, expected in run_onnx(model, feed).items():
            assert not difference(expected, answer[name], atol=1e-5)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, -1), (-3, -1), (1, 99), (-2, 99), (-1, -99)])
def test_constant_bounds_of_an_open_axis_are_right_at_every_size(
    conformance: Conformance, start: int, end: int
) -> None:
    step = -1 if end == -99 else 1
    bounds = [constant(name, [value]) for name, value in zip("sead", (start, end, 2, step), strict=True)]
    feeds = [images(shape) for shape in SHAPES]
    model = model_of([node("Slice", "x s e a d", "y")], feeds[0], bounds, open_dims={"x": OPEN})
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        np.testing.assert_array_equal(answer["y"], run_onnx(model, feed)["y"])


@pytest.mark.parametrize(("start", "end"), [(0, 0), (-2, 0), (2, 1), (2, 2), (-1, -2)])
def test_what_leaves_nothing_of_an_open_axis_is_refused(
    conformance: Conformance, tmp_path: Path, start: int, end: int
) -> None:
    bounds = [constant(name, [value]) for name, value in zip("sea", (start, end, 2), strict=True)]
    model = model_of([node("Slice", "x s e a", "y")], images(SHAPES[0]), bounds, open_dims={"x": OPEN})
    with pytest.raises(CannotConvertError) as caught:
        conformance.convert(model, tmp_path / "y.tflite")
    (refusal,) = caught.value.refusals
    assert "nothing of an open dimension; use --shape" in refusal.why


def test_parts_whose_sizes_are_an_input_keep_the_other_axes(conformance: Conformance, tmp_path: Path) -> None:
    feeds = [{**images((6, 3)), "sizes": np.array(sizes)} for sizes in ([1, 5], [4, 2])]
    model = model_of([node("Split", "x sizes", "y z", axis=0)], feeds[0])
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        for name, expected in run_onnx(model, feed).items():
            np.testing.assert_array_equal(answer[name], expected)
    conformance.convert(model, tmp_path / "parts.tflite")
    with TfliteRuntime(tmp_path / "parts.tflite") as runtime:
        assert [spec.shape for spec in runtime.outputs] == [(None, 3), (None, 3)]


@pytest.mark.parametrize(
    ("nodes", "constants", "words"),
    [
        ([node("Conv", "x w", "y", strides=[2, 2], auto_pad="SAME_LOWER")], [CONV], "auto_pad SAME_LOWER"),
    ],
)
def test_a_refusal_over_an_open_size_names_the_way_out(
    conformance: Conformance,
    tmp_path: Path,
    nodes: list[onnx.NodeProto],
    constants: list[onnx.TensorProto],
    words: str,
) -> None:
    model = model_of(nodes, images(SHAPES[0]), constants, open_dims={"x": OPEN})
    with pytest.raises(CannotConvertError) as caught:
        conformance.convert(model, tmp_path / "y.tflite")
    (refusal,) = caught.value.refusals
    assert refusal.node == "y"
    assert words in refusal.why
    assert "--shape" in refusal.why


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "shapes"),
    [
        ("rapidocr-v4/ch_PP-OCRv4_det_infer.onnx", [(1, 3, 96, 160), (2, 3, 64, 32)]),
        ("mtcnn/pnet.onnx", [(1, 40, 60, 3), (2, 33, 21, 3)]),
        ("nudenet/320n.onnx", [(1, 3, 96, 160), (2, 3, 64, 32)]),
        ("rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx", [(1, 3, 48, 192), (3, 3, 48, 100)]),
    ],
)
def test_real_models_with_open_sizes(
    conformance: Conformance, key: str, shapes: list[tuple[int, ...]]
) -> None:
    model = Model.load(models.path(key))
    (spec,) = model.inputs
    feeds = [{spec.name: next(iter(images(shape).values()))} for shape in shapes]
    session = onnxruntime.InferenceSession(str(models.path(key)), providers=["CPUExecutionProvider"])
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        for output, expected in zip(model.outputs, session.run(None, feed), strict=True):
            # A saturated sigmoid near 0 carries the noise of the whole net.
            assert np.abs(answer[output.name] - expected).max() <= 1e-6 + 1e-4 * np.abs(expected).max()


def test_a_file_is_loaded_at_sizes_that_its_windows_accept(tmp_path: Path) -> None:
    """A spectrogram's window is longer than any made-up size, and XNNPACK keeps a first failure."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 1, L] x) => (float[N, 2, T] y)
        { y = Conv <strides = [160], kernel_shape = [512]> (x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(weight("w", 2, 1, 512))
    onnx.save(model, tmp_path / "model.onnx")
    assert onnxport.convert_model(tmp_path / "model.onnx", "tflite").report.verdict == "proven"
