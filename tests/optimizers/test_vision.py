"""Rewritten operators give the same answers; ONNX Runtime runs both models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.optimizers.canonical_form import prepare
from onnxport.optimizers.rewrites.registry import rewritten_ops
from tests.conformance.tflite import difference
from tests.converters.tflite import test_random_vision as vision
from tests.converters.tflite.models import model_of, run_onnx

FAMILIES = {
    "AffineGrid": vision.affine_grid,
    "BatchNormalization": vision.batch_normalization,
    "CenterCropPad": vision.center_crop_pad,
    "Col2Im": vision.col2im,
    "DeformConv": vision.deform_conv,
    "Det": vision.det,
    "GridSample": vision.grid_sample,
    "MaxPool": vision.max_pool,
    "MaxRoiPool": vision.max_roi_pool,
    "MaxUnpool": vision.max_unpool,
    "RoiAlign": vision.roi_align,
}

# Every operator that is not rewritten counts as native.
NATIVE = frozenset(schema.name for schema in onnx.defs.get_all_schemas()) - rewritten_ops()


@pytest.mark.parametrize("op", FAMILIES)
def test_rewritten_nodes_compute_the_same(op: str) -> None:
    rewritten = 0
    for seed in range(10):
        draw = vision.Drawn(seed)
        FAMILIES[op](draw)
        model = model_of(draw.nodes, draw.operands, outputs=draw.outputs)
        simple = prepare(model, shapes={}, native=lambda: NATIVE).model
        rewritten += all(node.op_type != op for node in simple.graph)
        try:
            expected = run_onnx(model, draw.operands)
        except Exception:
            continue  # ONNX Runtime does not take every combination either
        for name, answer in run_onnx(simple, draw.operands).items():
            assert not difference(expected[name], answer, atol=draw.atol), helper.printable_node(
                draw.nodes[-1]
            )
    assert rewritten


def test_every_rewrite_is_tested() -> None:
    assert FAMILIES.keys() <= rewritten_ops()


def test_a_rewrite_of_constants_leaves_constants() -> None:
    """Positions and weights of a fixed grid are known at conversion: what is left samples and adds up."""
    draw = vision.Drawn(0)
    x = draw.operand(draw.floats(1, 2, 4, 4))
    grid = draw.operand(draw.random.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32))
    draw.node("GridSample", x, grid)
    bound = [numpy_helper.from_array(draw.operands.pop(grid), grid)]
    simple = prepare(model_of(draw.nodes, draw.operands, bound), shapes={}, native=lambda: NATIVE).model
    left = {node.op_type for node in simple.graph}
    assert left == {"Add", "Gather", "Mul", "Reshape", "Transpose"}
