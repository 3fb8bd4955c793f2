"""The inputs of rows: equal for equal names and sizes, and refused for open sizes that are not given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxport.bench.inputs import Inputs
from onnxport.bench.params import BenchParams
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model

IMAGE = (TensorSpec("image", "float32", ("N", 3, "H", "W")),)
IDS = (TensorSpec("ids", "int64", ("batch", "length")),)


def inputs(graphs: tuple[Model, ...] = (), **options: object) -> Inputs:
    return Inputs(BenchParams.model_validate(options), graphs)


def embedding(folder: Path, rows: int) -> Model:
    """Looks ids up in a table of so many rows."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [rows, 2], np.zeros(2 * rows))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        "embedding",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 2])],
        [table],
    )
    path = folder / "embedding.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return Model.load(path)


def test_an_open_size_is_refused_with_the_option_that_sets_it() -> None:
    with pytest.raises(UsageError) as caught:
        inputs().resolve_sizes([("m.onnx", IMAGE)])
    assert caught.value.what.startswith("m.onnx has open sizes")
    assert "--shape 'image=?,3,SIZE,SIZE'" in caught.value.fix


def test_given_sizes_are_used_and_the_batch_is_one_by_default() -> None:
    given = inputs(shape="image=?,3,32,48")
    given.resolve_sizes([("m.onnx", IMAGE)])
    assert given.feeding(None)(IMAGE)["image"].shape == (1, 3, 32, 48)
    assert given.feeding(8)(IMAGE)["image"].shape == (8, 3, 32, 48)
    assert given.batch_of(IMAGE, given.feeding(8)(IMAGE)) == 8


def test_a_size_that_another_artefact_has_fixed_is_taken_and_both_are_fed_the_same() -> None:
    fixed = (TensorSpec("image", "float32", (1, 3, 64, 96)),)
    shared = inputs()
    shared.resolve_sizes([("m.onnx", IMAGE), ("m.tflite", fixed)])
    ours, theirs = shared.feeding(None)(IMAGE), shared.feeding(None)(fixed)
    assert ours["image"].shape == (1, 3, 64, 96)
    np.testing.assert_array_equal(ours["image"], theirs["image"])
    assert shared.batch_of(fixed, theirs) is None


def test_a_batch_that_is_fixed_is_not_what_was_asked_for() -> None:
    fixed = (TensorSpec("image", "float32", (4, 3, 8, 8)),)
    assert inputs().feeding(4)(fixed)["image"].shape == (4, 3, 8, 8)
    with pytest.raises(UsageError, match="cannot run at batch 8: its input 'image' has the fixed size 4"):
        inputs().feeding(8)(fixed)


def test_generated_ids_lie_in_the_table_that_the_graph_looks_them_up_in(tmp_path: Path) -> None:
    known = inputs((embedding(tmp_path, rows=5),), shape="ids=?,400")
    ids = known.feeding(2)(IDS)["ids"]
    assert (ids.min(), ids.max()) == (0, 4)


def test_the_users_own_inputs_tell_all_sizes_and_are_repeated_for_a_larger_batch(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((2, 3, 8, 6), np.float32)
    np.savez(tmp_path / "own.npz", image=images)
    own = inputs(inputs=tmp_path)
    own.resolve_sizes([("m.onnx", IMAGE)])
    np.testing.assert_array_equal(own.feeding(None)(IMAGE)["image"], images)
    np.testing.assert_array_equal(own.feeding(3)(IMAGE)["image"], images[[0, 1, 0]])


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("picture=1,3,8,8", "no model has an input 'picture'; the inputs are 'image'"),
        ("image=1,3,8..16,8", "has '8..16', but a row needs one size"),
    ],
)
def test_an_invalid_shape_is_refused(shape: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace(".", r"\.")):
        inputs(shape=shape).resolve_sizes([("m.onnx", IMAGE)])
