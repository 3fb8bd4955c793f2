"""Bisection: few runs, whatever fits into memory, and no wrong turn at branches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.debug.search import Trail, choose, search
from onnxport.validate.debug.taps import Sides
from tests.validate.debug import networks

ROW = networks.WIDTH * 4  # bytes of a value of one row


def found(reference: Path, candidate: Path, room: int, ends: Sequence[str] = ("y",)) -> tuple[Trail, int]:
    network = Network(Model.load(reference))
    feeds = {"x": np.random.RandomState(1).randn(1, networks.WIDTH).astype("f4")}
    with Sides(network, Artifact.open(candidate), DebugParams(), network.model) as sides:
        trail = search(sides, feeds, ends, sides.sizes(feeds), room)
        return trail, sides.runs


@pytest.mark.parametrize("wrong", [0, 26, 62])
@pytest.mark.parametrize("room", [2 * ROW, 10 * ROW])
def test_a_fault_in_a_chain_is_found_in_log2_runs(tmp_path: Path, wrong: int, room: int) -> None:
    length = 64
    right = networks.chain(tmp_path / "right.onnx", length)
    broken = networks.chain(tmp_path / "wrong.onnx", length, wrong=[wrong])
    trail, runs = found(right, broken, room)
    assert trail.fault is not None
    assert trail.fault.value == f"v{wrong}"
    assert runs <= math.log2(length) + 2
    assert len(trail.layers) < length, "not everything fits"


def test_one_run_shows_all_where_all_fits(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 64)
    trail, runs = found(right, networks.chain(tmp_path / "wrong.onnx", 64, wrong=[30]), 10**9)
    assert runs == 1
    assert len(trail.layers) == 64
    assert trail.fault is not None
    assert trail.fault.value == "v30"


def test_the_first_of_several_is_named_and_the_others_are_told(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 16)
    trail, _ = found(right, networks.chain(tmp_path / "wrong.onnx", 16, wrong=[4, 10]), 10**9)
    assert trail.fault is not None
    assert (trail.fault.value, trail.others) == ("v4", ["v10"])


@pytest.mark.parametrize("room", [ROW, 10**9])
def test_a_fault_in_the_later_branch_is_not_put_into_the_earlier(tmp_path: Path, room: int) -> None:
    right = networks.diamond(tmp_path / "right.onnx")
    trail, _ = found(right, networks.diamond(tmp_path / "wrong.onnx", right=3.1), room)
    assert trail.fault is not None
    assert trail.fault.value == "r"


def test_right_nodes_behind_the_fault_are_right(tmp_path: Path) -> None:
    """Their values differ from the reference's, and they are what the nodes make of what they were given."""
    right = networks.chain(tmp_path / "right.onnx", 16)
    trail, _ = found(right, networks.chain(tmp_path / "wrong.onnx", 16, wrong=[4], by=1.5), 10**9)
    behind = [trail.layers[f"v{number}"] for number in range(5, 15)]
    assert all(figure.max_abs > 0.01 for figure in behind)
    assert all(figure.local_share is not None and figure.local_share <= 1 for figure in behind)


def test_values_are_chosen_evenly_and_small() -> None:
    sizes = {f"v{i}": 100 if i % 2 else 10 for i in range(20)}
    assert choose(list(sizes), sizes, 10**6) == list(sizes)
    few = choose(list(sizes), sizes, 60)
    assert 3 <= len(few) <= 6
    assert all(sizes[name] == 10 for name in few)
    (single,) = choose(list(sizes), sizes, 0)
    assert 6 <= int(single[1:]) <= 13, "one alone halves them"


def test_one_fault_behind_two_stretches_is_one_fault(tmp_path: Path) -> None:
    """With few cuts the ends of both branches come out otherwise for the same node."""
    right = networks.fork(tmp_path / "right.onnx", 6)
    wrong = networks.fork(tmp_path / "wrong.onnx", 6, factor=2.1)
    trail, runs = found(right, wrong, 3 * ROW, ("y", "z"))
    assert runs > 1, "not everything fits"
    assert trail.fault is not None
    assert trail.fault.value == "b"
    assert trail.others == []
