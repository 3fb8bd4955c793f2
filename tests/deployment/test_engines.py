"""The data files of engines that take a model whole or not at all, and the conditions that they brought."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxport.deployment.estimation import estimate
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.estimation.table import load_table
from onnxport.deployment.report import Placement
from onnxport.formats.model import Model
from tests.cli.sandbox import DIGITS
from tests.deployment.test_estimating import model, node, why

ENGINES = ("openvino", "tract", "rten", "candle", "burn", "ncnn", "mnn")


def estimated(runtime: str, subject: Model) -> Placement:
    return estimate(estimation_graph(subject), load_table(runtime)).placement


@pytest.mark.parametrize("runtime", ENGINES)
def test_a_plain_network_is_taken_whole(runtime: str) -> None:
    placement = estimated(runtime, Model.load(DIGITS))
    assert (placement.extent, placement.fallbacks, placement.partitions) == ("all", (), None)


def indexed(shape: tuple[Any, ...]) -> Model:
    """Reshapes x to its own sizes, read off it one by one."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Concat", "n minus", "to", axis=0),
        node("Reshape", "x to", "y"),
    ]
    return model(nodes, shape, {"zero": np.array([0]), "minus": np.array([-1])})


def test_values_that_follow_from_sizes_are_allowed() -> None:
    assert estimated("tract", indexed((1, 3, 8, 8))).extent == "all"


def test_values_that_follow_from_inputs_are_refused() -> None:
    nodes = [node("NonZero", "x", "where"), node("Shape", "where", "s"), node("Cast", "x", "v", to=7)]
    nodes += [node("Reshape", "v minus", "flat"), node("Slice", "flat zero four", "to")]
    weights = {"minus": np.array([-1]), "zero": np.array([0]), "four": np.array([4])}
    subject = model([*nodes, node("Reshape", "x to", "y")], (1, 1, 2, 2), weights)
    found = {each.node: each.why for each in estimated("tract", subject).fallbacks}
    assert found == {
        "Reshape_y": "'to' is computed from the inputs' values, it has to follow from their sizes"
    }


def test_folded_nodes_need_no_kernel() -> None:
    """ncnn has no Equal, and no Where."""
    nodes = [node("Shape", "x", "s"), node("Equal", "s eight", "same"), node("Where", "same one s", "to")]
    subject = model(
        [*nodes, node("Expand", "x to", "y")],
        weights={"eight": np.array([8, 8, 8, 8]), "one": np.array([1, 1, 1, 1])},
    )
    assert estimated("ncnn", subject).extent == "all"
    compared = model([node("Equal", "x x", "b"), node("Cast", "b", "y", to=1)])
    assert {each.op for each in estimated("ncnn", compared).fallbacks} == {"Equal", "Cast"}


POOLED = model([node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1, 1, 1, 1])])
RESIZED = model([node("Resize", "x roi scales", "y")], weights={"roi": [0.0], "scales": [1.0, 1.0, 2.0, 2.0]})


@pytest.mark.parametrize(
    ("subject", "op", "rule", "said"),
    [
        (RESIZED, "Resize", {"conditions": {"absent": ["roi"]}}, "it takes no roi, which is 'roi'"),
        (RESIZED, "Resize", {"conditions": {"absent": ["sizes"]}}, ""),
        (POOLED, "MaxPool", {"conditions": {"not_given": ["pads"]}}, "it takes no pads"),
        (POOLED, "MaxPool", {"conditions": {"not_given": ["dilations"]}}, ""),
    ],
)
def test_operands_and_attributes_that_may_not_be_given(subject: Model, op: str, rule: Any, said: str) -> None:
    assert why(subject, rule, op) == said


@pytest.mark.parametrize(
    ("runtime", "subject", "said"),
    [
        ("candle", POOLED, "pads is [1, 1, 1, 1], it takes 0"),
        ("candle", RESIZED, "nearest_mode is round_prefer_floor, it takes floor"),
        ("rten", model([node("LRN", "x", "y", size=3)]), "the runtime has no operator LRN"),
        (
            "burn",
            model([node("LayerNormalization", "x w", "y", axis=1)], weights={"w": np.ones(8)}),
            "axis is 1",
        ),
        (
            "mnn",
            model([node("IsNaN", "x", "b"), node("Cast", "b", "y", to=1)]),
            "the runtime has no operator IsNaN",
        ),
    ],
)
def test_known_refusals(runtime: str, subject: Model, said: str) -> None:
    placement = estimated(runtime, subject)
    assert placement.extent == "none"
    assert placement.fallbacks[0].why.startswith(said)
