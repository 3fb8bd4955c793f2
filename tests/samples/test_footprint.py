"""What a run takes in memory, told by shape inference: sums done by hand, and a process that was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from fixtures import models
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.samples.footprint import Estimate, Footprint

FLOAT = 4


def footprint(text: str, steps: int = 1) -> Footprint:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    model = Model(ir.from_proto(proto))
    return Footprint(model, model.inputs, steps)


def test_values_live_until_the_last_node_that_reads_them() -> None:
    graph = "g (float[N] x) => (float[N] y) { a = Concat<axis=0>(x, x)  b = Concat<axis=0>(a, a)  y = ReduceSum(b) }"
    # a and b lie in memory together, and b alone with the result of one element.
    assert footprint(graph).at({"x": (1000,)}).graph == (2000 + 4000) * FLOAT


def test_a_value_that_is_read_again_late_lies_in_memory_all_along() -> None:
    graph = (
        "g (float[N] x) => (float[M] y) { a = Concat<axis=0>(x, x)  b = Concat<axis=0>(a, a)  c = ReduceSum(b) "
        "y = Concat<axis=0>(a, c, c, c) }"
    )
    # a, b and the sum, which is [1]: more than a and y at the end.
    assert footprint(graph).at({"x": (1000,)}).graph == (2000 + 4000 + 1) * FLOAT


def test_views_take_nothing_and_elementwise_nodes_write_over_what_nobody_reads() -> None:
    graph = (
        "g (float[N] x) => (float[1] y) <int64[2] s = {-1, 2}> { a = Concat<axis=0>(x, x)  b = Sin(a) "
        "c = Reshape(b, s)  d = Cos(c)  e = ReduceMean<keepdims=0>(d)  y = Unsqueeze(e, zero) }"
    ).replace("<int64[2] s", "<int64[1] zero = {0}, int64[2] s")
    assert footprint(graph).at({"x": (1000,)}).graph - 24 == 2000 * FLOAT + FLOAT  # 24: the two constants


def test_a_body_counts_beside_what_lies_around_it() -> None:
    graph = (
        "g (float[N] x, bool c) => (float[K] y) { a = Concat<axis=0>(x, x) "
        "b = If (c) <then_branch = t () => (float[K] u) { u = Concat<axis=0>(a, a, a) }, "
        "else_branch = e () => (float[K] v) { v = Concat<axis=0>(a, a, a) }> y = Concat<axis=0>(b, a) }"
    )
    assert footprint(graph).at({"x": (1000,), "c": ()}).graph >= (2000 + 6000) * FLOAT


def test_inputs_and_answers_are_told_apart_and_answers_count_every_step() -> None:
    told = footprint("g (float[N] x) => (float[N] y) { y = Sin(x) }", steps=4).at({"x": (1000,)})
    assert (told.inputs, told.outputs) == (1000 * FLOAT, 4 * 1000 * FLOAT)


def test_without_a_graph_the_inputs_count() -> None:
    inputs = (TensorSpec("x", "float64", ("N",)), TensorSpec("s", "string", ("N",)))
    assert Footprint(None, inputs).at({"x": (10,), "s": (10,)}) == Estimate(10 * 8 + 10 * 8)


RUN = """
import sys, numpy as np, onnxruntime
from pathlib import Path
def held(): return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(sys.argv[1], options)
before = held()
(name,) = (each.name for each in session.get_inputs())
session.run(None, {name: np.zeros(eval(sys.argv[2]), np.float32)})
print(held() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("rapidocr-v4/ch_PP-OCRv4_det_infer.onnx", (1, 3, 960, 960)),
        ("nudenet/320n.onnx", (1, 3, 960, 960)),
        ("mtcnn/pnet.onnx", (1, 1200, 1600, 3)),
    ],
)
def test_real_models_take_no_less_than_the_estimate_and_not_many_times_more(
    key: str, shape: tuple[int, ...]
) -> None:
    path = models.path(key)
    model = Model.load(path)
    estimate = Footprint(model, model.inputs).at({model.inputs[0].name: shape})
    told = estimate.graph - model.weight_bytes
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(path), repr(shape)], capture_output=True, text=True, check=True
    )
    taken = int(ran.stdout)
    assert told > 20e6, "too little to tell from noise"
    assert 0.8 * told <= taken <= 8 * told
