"""Padding by `same`, peepholes, blocks of pixels: against ONNX Runtime's operators of the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.helper as helper
import onnxruntime as ort
import pytest

from onnxport.runtimes.mlprogram.kernels.conv import conv
from tests.runtimes.mlprogram.draws import Random, flag
from tests.runtimes.mlprogram.programs import evaluated

COUNT = 20


def onnx_runtime(
    operator: str, operands: list[Any], attributes: dict[str, Any], outputs: int = 1
) -> list[Any]:
    """One operator of opset 14 on arrays; None stands for an operand left out."""
    names = ["" if each is None else f"x{place}" for place, each in enumerate(operands)]
    feeds = {name: each for name, each in zip(names, operands, strict=True) if name}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in feeds.items()
    ]
    results = [helper.make_tensor_value_info(f"y{place}", 1, None) for place in range(outputs)]
    node = helper.make_node(operator, names, [each.name for each in results], **attributes)
    graph = helper.make_graph([node], "one", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return list(ort.InferenceSession(model.SerializeToString()).run(None, feeds))


def floats(random: Random, *shape: int) -> Any:
    return random.standard_normal(shape).astype(np.float32)


def sizes(random: Random, count: int, low: int, high: int) -> list[int]:
    return [int(each) for each in random.integers(low, high + 1, count)]


@pytest.mark.parametrize(("pad_type", "auto_pad"), [("same", "SAME_UPPER"), ("same_lower", "SAME_LOWER")])
@pytest.mark.parametrize("operator", ["conv", "max_pool", "avg_pool"])
def test_same_padding_with_strides(operator: str, pad_type: str, auto_pad: str, tmp_path: Path) -> None:
    random, cases, wanted = np.random.default_rng(1), [], []
    for _ in range(COUNT):
        x, kernel, strides = (
            floats(random, 2, 3, *sizes(random, 2, 5, 9)),
            sizes(random, 2, 1, 4),
            sizes(random, 2, 1, 3),
        )
        if operator != "conv":  # ONNX Runtime's pools refuse windows that skip elements
            strides = [min(each) for each in zip(kernel, strides, strict=True)]
        given: dict[str, Any] = {"x": x, "strides": strides, "pad_type": pad_type}
        attributes: dict[str, Any] = {"strides": strides, "auto_pad": auto_pad, "kernel_shape": kernel}
        if operator == "conv":
            given["weight"] = floats(random, 4, 3, *kernel)
            wanted.append(onnx_runtime("Conv", [x, given["weight"]], attributes))
        else:
            given["kernel_sizes"] = kernel
            if operator == "avg_pool":
                excluded = flag(random)
                given["exclude_padding_from_average"] = excluded
                attributes["count_include_pad"] = int(not excluded)
            name = {"max_pool": "MaxPool", "avg_pool": "AveragePool"}[operator]
            wanted.append(onnx_runtime(name, [x], attributes))
        cases.append(given)
    for (found,), (expected,) in zip(evaluated(tmp_path, operator, cases, "iOS17"), wanted, strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_conv_transpose_with_same_padding(tmp_path: Path) -> None:
    random, cases, wanted = np.random.default_rng(2), [], []
    for _ in range(COUNT):
        strides = sizes(random, 2, 1, 3)
        kernel = [stride + int(random.integers(0, 3)) for stride in strides]
        x, weight = floats(random, 1, 2, *sizes(random, 2, 2, 5)), floats(random, 2, 3, *kernel)
        cases.append({"x": x, "weight": weight, "strides": strides, "pad_type": "same"})
        # Which end is cropped more, ONNX says the other way round than a convolution's transpose; pads say it.
        total = [k - s for k, s in zip(kernel, strides, strict=True)]
        pads = [each // 2 for each in total] + [each - each // 2 for each in total]
        wanted.append(onnx_runtime("ConvTranspose", [x, weight], {"strides": strides, "pads": pads}))
    for (found,), (expected,) in zip(
        evaluated(tmp_path, "conv_transpose", cases, "iOS17"), wanted, strict=True
    ):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_with_peepholes(direction: str, tmp_path: Path) -> None:
    """ONNX's gates come in the order input, output, forget, cell."""
    random, cases, wanted = np.random.default_rng(3), [], []
    directions = 2 if direction == "bidirectional" else 1
    for _ in range(COUNT):
        steps, batch, width, hidden = sizes(random, 4, 1, 4)
        x = floats(random, steps, batch, width)
        weight, recurrent = (
            floats(random, directions, 4, hidden, width),
            floats(random, directions, 4, hidden, hidden),
        )
        bias, peep = floats(random, directions, 4, hidden), floats(random, directions, 3, hidden)
        h, c = floats(random, directions, batch, hidden), floats(random, directions, batch, hidden)
        given: dict[str, Any] = {"x": x, "direction": direction, "output_sequence": True}
        given |= {
            f"initial_{name}": np.concatenate(list(each), axis=-1) for name, each in (("h", h), ("c", c))
        }
        for number, end in enumerate(["", "_back"][:directions]):
            order = [0, 2, 1, 3]
            given[f"weight_ih{end}"] = weight[number, order].reshape(-1, width)
            given[f"weight_hh{end}"] = recurrent[number, order].reshape(-1, hidden)
            given[f"bias{end}"] = bias[number, order].reshape(-1)
            given[f"peephole{end}"] = peep[number, order[:3]].reshape(-1)
        cases.append(given)
        biases = np.concatenate(
            [bias.reshape(directions, -1), np.zeros((directions, 4 * hidden), np.float32)], axis=1
        )
        operands = [
            x,
            weight.reshape(directions, -1, width),
            recurrent.reshape(directions, -1, hidden),
            biases,
        ]
        operands += [None, h, c, peep.reshape(directions, -1)]
        wanted.append(onnx_runtime("LSTM", operands, {"hidden_size": hidden, "direction": direction}, 3))
    for found, (steps_, h_, c_) in zip(evaluated(tmp_path, "lstm", cases, "iOS17"), wanted, strict=True):
        sequence = np.concatenate(list(np.moveaxis(steps_, 1, 0)), axis=-1)
        for each, expected in zip(
            found, (sequence, *(np.concatenate(list(e), axis=-1) for e in (h_, c_))), strict=True
        ):
            np.testing.assert_allclose(each, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("operator", ["depth_to_space", "space_to_depth"])
def test_blocks_of_depth(operator: str, tmp_path: Path) -> None:
    random, cases, wanted = np.random.default_rng(4), [], []
    for _ in range(COUNT):
        block, (n, c, h, w) = int(random.integers(2, 4)), sizes(random, 4, 1, 3)
        name, shape = "DepthToSpace", (n, c * block**2, h, w)
        if operator == "space_to_depth":
            name, shape = "SpaceToDepth", (n, c, h * block, w * block)
        x = floats(random, *shape)
        cases.append({"x": x, "block_size": block})
        wanted.append(onnx_runtime(name, [x], {"blocksize": block}))
    for (found,), (expected,) in zip(evaluated(tmp_path, operator, cases, "iOS17"), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


# Few channels, so that the evaluator adds up the kernel's positions: sizes of x and of the weight, attributes.
SMALL_KERNELS = {
    "one axis, in pieces": ((2, 16, 3000), (8, 16, 5), {"dilations": [3], "pads": [6, 6]}),
    "of width 1": ((3, 32, 600, 1), (32, 32, 11, 1), {"pads": [5, 0, 5, 0]}),
    "two axes": ((2, 8, 21, 17), (16, 8, 3, 2), {"dilations": [2, 3], "pads": [1, 2, 0, 1]}),
    "one output": ((1, 64, 30, 40), (1, 64, 3, 3), {}),
    "three axes": ((2, 8, 5, 6, 7), (8, 8, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1]}),
    "a kernel as large as the map": ((2, 8, 3, 3), (4, 8, 3, 3), {}),
}


@pytest.mark.parametrize("name", SMALL_KERNELS)
def test_a_convolution_of_few_channels(name: str) -> None:
    extents, kernel, attributes = SMALL_KERNELS[name]
    random = np.random.default_rng(2)
    x, weight = floats(random, *extents), floats(random, *kernel)
    (wanted,) = onnx_runtime("Conv", [x, weight], attributes)
    padding = attributes.get("pads", [0] * 2 * (len(extents) - 2))
    pad = np.array(padding).reshape(2, -1).T.ravel()
    dilations = attributes.get("dilations")
    got = conv(
        x, weight, pad_type="custom", pad=pad, dilations=None if dilations is None else np.array(dilations)
    )
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_a_convolution_of_blocks_in_the_batch_is_a_dilated_one(tmp_path: Path) -> None:
    """What space_to_batch and batch_to_space are for; paddings and crops differ per side."""
    random = np.random.default_rng(5)
    for seed in range(5):
        x, weight, block = floats(random, 2, 3, 9, 8), floats(random, 4, 3, 3, 2), sizes(random, 2, 1, 3)
        before = sizes(random, 2, 0, 2)
        paddings = np.array(
            [
                [each, -(size + each) % b + b * seed % 2]
                for size, each, b in zip(x.shape[2:], before, block, strict=True)
            ],
            np.int32,
        )
        paddings[:, 1] += -(np.array(x.shape[2:]) + paddings.sum(axis=1)) % np.array(block)
        block_shape = np.array(block, np.int32)
        ((inner,),) = evaluated(
            tmp_path, "space_to_batch", [{"x": x, "block_shape": block_shape, "paddings": paddings}], "iOS17"
        )
        (convolved,) = onnx_runtime("Conv", [inner, weight], {})
        crops = np.array([[0, 1], [1, 0]], np.int32)
        ((found,),) = evaluated(
            tmp_path,
            "batch_to_space",
            [{"x": convolved, "block_shape": block_shape, "crops": crops}],
            "iOS17",
        )
        padded = np.pad(x, [(0, 0), (0, 0), *map(tuple, paddings)])
        (whole,) = onnx_runtime("Conv", [padded, weight], {"dilations": block})
        np.testing.assert_allclose(found, whole[:, :, :-1, 1:], 1e-5, 1e-5)


def test_crop(tmp_path: Path) -> None:
    x = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
    ((found,),) = evaluated(
        tmp_path, "crop", [{"x": x, "crop_height": [1, 0], "crop_width": [0, 2]}], "iOS17"
    )
    (expected,) = onnx_runtime("Slice", [x, np.array([1, 0]), np.array([4, 3]), np.array([2, 3])], {})
    np.testing.assert_array_equal(found, expected)
