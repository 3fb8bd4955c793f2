"""Layers of neural networks, drawn at random, against ONNX Runtime: right or refused.

What a family draws is the same for every target: see tests/converters/tflite/test_random_nodes.py and its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conformance.coreml import CoremlConformance
from tests.converters.tflite import test_random_nodes as nodes
from tests.converters.tflite import test_random_vision as vision
from tests.converters.tflite import test_recurrent as recurrent
from tests.converters.tflite.test_random_nodes import Drawn, check

SEEDS = 12  # per family; hundreds were run when the lowerings were written


def normalization(draw: Drawn) -> None:
    """Every normalization that MIL has an operator for, its parameters constant or fed."""
    op = draw.choice(
        "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "LRN"
    )
    rank = draw.size(3, 5)
    shape = [draw.size(1, 3), 4, *draw.sizes(rank - 2, 2, 4)]
    x = draw.input(draw.floats(*shape) * draw.choice(0.001, 1, 100))
    given: dict[str, Any] = {} if op == "LRN" else {"epsilon": draw.choice(1e-5, 1e-3, 1e-12)}
    if op == "LRN":
        draw.node(op, x, size=draw.size(1, 5), alpha=0.3, beta=0.6, bias=1.5)
    elif op == "BatchNormalization":
        parameters = [draw.floats(4), draw.floats(4), draw.floats(4), np.abs(draw.floats(4))]
        draw.node(op, x, *map(draw.operand, parameters), **given)
    elif op == "LayerNormalization":
        axis = draw.size(-rank, rank - 1)
        over = shape[axis:]
        scale = draw.operand(draw.floats(*over[draw.choice(0, len(over) - 1) :]))
        bias = [draw.operand(draw.floats(*over))] if draw.choice(True, False) else []
        draw.node(op, x, scale, *bias, outputs=draw.choice(1, 1, 3), axis=axis, **given)
    else:
        given |= {"num_groups": draw.choice(1, 2, 4)} if op == "GroupNormalization" else {}
        draw.node(op, x, draw.operand(draw.floats(4)), draw.operand(draw.floats(4)), **given)


def product(draw: Drawn) -> None:
    """MatMul of every pair of ranks, and Gemm with every attribute, in floats and integers."""
    rows, inner, columns = draw.sizes(3, 1, 4)
    if draw.choice(True, False):
        transposes = {"transA": draw.size(0, 1), "transB": draw.size(0, 1)}
        a = draw.floats(*((inner, rows) if transposes["transA"] else (rows, inner)))
        b = draw.floats(*((columns, inner) if transposes["transB"] else (inner, columns)))
        c = draw.choice(None, (rows, columns), (columns,), (1, columns), (rows, 1), (), (1,))
        operands = [draw.input(a), draw.operand(b), *([] if c is None else [draw.operand(draw.floats(*c))])]
        draw.node(
            "Gemm", *operands, alpha=draw.choice(1.0, 0.5), beta=draw.choice(1.0, 0.25, 0.0), **transposes
        )
        return
    batches = draw.sizes(draw.size(0, 3), 1, 3)
    shapes = []
    for matrix in ((rows, inner), (inner, columns)):
        own = [draw.choice(size, size, 1) for size in batches][draw.size(0, len(batches)) :]
        shapes.append([inner] if draw.size(0, 4) == 0 else [*own, *matrix])
    dtype = draw.choice(np.float32, np.float32, np.float32, np.int32)
    a, b = ((draw.floats(*shape) * 9).astype(dtype) for shape in shapes)
    draw.node("MatMul", draw.input(a), draw.operand(b))


def blocks(draw: Drawn) -> None:
    size, dtype = draw.size(1, 3), draw.choice(np.float32, np.int64)
    height, width = draw.sizes(2, 1, 3)
    numbers = lambda *shape: (draw.floats(*shape) * 99).astype(dtype)  # noqa: E731 - one line, local
    if draw.choice(True, False):
        x = draw.input(numbers(2, 2 * size**2, height, width))
        draw.node("DepthToSpace", x, blocksize=size, mode=draw.choice("DCR", "CRD"))
    else:
        x = draw.input(numbers(2, 3, height * size, width * size))
        draw.node("SpaceToDepth", x, blocksize=size)


def shares(draw: Drawn) -> None:
    """Softmax and its logarithm over logits with a mask of the largest negative number."""
    shape = draw.sizes(draw.size(1, 5), 1, 5)
    x = draw.floats(*shape) * draw.choice(1, 50)
    x[draw.random.random(shape) < 0.2] = draw.choice(-np.inf, np.finfo(np.float32).min, -1e9)
    x[..., :1] = 0
    draw.node(
        draw.choice("Softmax", "LogSoftmax"), draw.input(x), axis=draw.size(-len(shape), len(shape) - 1)
    )


def wide_resize(draw: Drawn) -> None:
    """Resize of any axes in every way of placing coordinates, with antialias and a region."""
    rank = draw.size(1, 4)
    shape = draw.sizes(rank, 1, 5)
    mode = draw.choice("nearest", "linear", "cubic")
    places = "half_pixel asymmetric align_corners pytorch_half_pixel half_pixel_symmetric tf_crop_and_resize"
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": draw.choice(*places.split()),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = draw.choice("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    else:
        attributes["antialias"] = draw.size(0, 1)
    axes = sorted(draw.random.permutation(rank)[: draw.size(1, min(rank, 2))].tolist())
    attributes["axes"] = axes
    x, roi = draw.input(draw.floats(*shape)), ""
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        roi = draw.constant(np.array([*([0.1] * len(axes)), *([1.2] * len(axes))], np.float32))
        attributes |= {"extrapolation_value": 7.0, "antialias": 0}
    if draw.choice(True, False):
        scales = draw.constant(np.array([draw.choice(0.5, 1.4, 2.0, 3.0) for _ in axes], np.float32))
        draw.node("Resize", x, roi, scales, **attributes)
        return
    if not roi:
        attributes["keep_aspect_ratio_policy"] = draw.choice("stretch", "not_larger", "not_smaller")
    draw.node(
        "Resize", x, roi, "", draw.constant(np.array(draw.sizes(len(axes), 1, 7), np.int64)), **attributes
    )


FAMILIES: dict[str, Callable[[Drawn], None]] = {
    **{name: nodes.FAMILIES[name] for name in "conv conv_transpose einsum layouts pool resize".split()},
    "blocks": blocks,
    "layer": recurrent.layer,
    "layer_of_open_length": recurrent.layer_of_open_length,
    "normalization": normalization,
    "product": product,
    "shares": shares,
    "wide_resize": wide_resize,
}
# Families whose first operand may have any size along every axis but the one named.
OPEN: dict[str, int | None] = {
    "conv": 1,
    "conv_transpose": 1,
    "layer_of_open_length": 2,
    "pool": 1,
    "resize": 1,
    "shares": None,
}
# What no target has an operator for: made of others, which must be Core ML's.
VISION = (
    "affine_grid col2im deform_conv grid_sample max_pool max_roi_pool max_unpool non_max_suppression roi_align"
).split()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_accepted_computes_what_onnx_runtime_does(coreml: CoremlConformance, family: str) -> None:
    faults = [check(coreml, family, seed, families=FAMILIES, holds_nothing=False) for seed in range(SEEDS)]
    assert not list(filter(None, faults))


@pytest.mark.parametrize("family", OPEN)
def test_one_package_is_right_at_several_sizes(coreml: CoremlConformance, family: str) -> None:
    faults = [
        check(coreml, family, seed, is_open=True, families=FAMILIES, kept_axes=OPEN, holds_nothing=False)
        for seed in range(SEEDS)
    ]
    assert not list(filter(None, faults))


@pytest.mark.parametrize("way", ["fed", "bound", "open"])
@pytest.mark.parametrize("family", VISION)
def test_what_is_made_of_other_operators_is_right_too(
    coreml: CoremlConformance, family: str, way: str
) -> None:
    faults = [fault for seed in range(3) if (fault := vision.check(coreml, family, seed, way)[1])]
    assert not faults
