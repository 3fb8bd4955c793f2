"""The `--shape` in a refusal: the model's own open inputs, and no such advice where none is open."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxport.converters.open_inputs import fill_placeholders
from onnxport.core.errors import Refusal
from onnxport.formats.model import Model
from onnxport.optimizers.shape_inference import pin_inputs
from tests.converters.tflite.models import model_of

WHY = "ceil_mode over an open size; fix the size with --shape NAME=... if it is an input's"


def model(*, images: list[str | int | None], other: list[str | int | None]) -> Model:
    feeds = {"images": np.zeros((1, 3, 8, 8), np.float32), "other": np.zeros((1, 4), np.float32)}
    branch = helper.make_graph(
        [helper.make_node("AveragePool", ["rectified"], ["inner"], "pool", kernel_shape=[3, 3])],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Relu", ["images"], ["rectified"]),
        helper.make_node("If", ["yes"], ["pooled"], then_branch=branch, else_branch=branch),
        helper.make_node("Relu", ["other"], ["y"], "last"),
    ]
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    made = model_of(
        nodes, feeds, [yes], outputs=["pooled", "y"], open_dims={"images": images, "other": other}
    )
    pin_inputs(made, {})
    return made


@pytest.mark.parametrize(
    ("images", "other", "says"),
    [
        (["N", 3, "H", "W"], ["M", 4], "--shape images=N,3,H,W (a number for N, H, W) if"),
        ([1, 3, None, "W"], ["M", 4], "--shape images=1,3,DIM2,W (a number for DIM2, W) if"),
        ([1, 3, "H + 1", 8], [1, 4], "--shape 'images=1,3,H + 1,8' (a number for H + 1) if"),
        # None that the node depends on is open: whatever is.
        ([1, 3, 8, 8], ["M", 4], "--shape other=M,4 (a number for M) if"),
    ],
)
def test_open_inputs_that_reach_the_node_are_spelled_out(
    images: list[str | int | None], other: list[str | int | None], says: str
) -> None:
    (refusal,) = fill_placeholders([Refusal("AveragePool", "pool", WHY)], model(images=images, other=other))
    assert says in refusal.why
    assert "NAME" not in refusal.why


def test_the_advice_is_dropped_where_no_input_is_open() -> None:
    closed = model(images=[1, 3, 8, 8], other=[1, 4])
    (refusal,) = fill_placeholders([Refusal("AveragePool", "pool", WHY)], closed)
    assert refusal.why == "ceil_mode over an open size"


def test_many_inputs_are_not_all_spelled_out() -> None:
    feeds = {f"x{number}": np.zeros((1, 4), np.float32) for number in range(6)}
    nodes = [helper.make_node("Sum", list(feeds), ["y"], "sum")]
    made = model_of(nodes, feeds, open_dims={name: ["N", 4] for name in feeds})
    (refusal,) = fill_placeholders([Refusal("Sum", "sum", "an open size; use --shape NAME=...")], made)
    assert "--shape x2=N,4 (a number for N) and the 3 other open inputs likewise" in refusal.why
