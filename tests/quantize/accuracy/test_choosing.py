"""Of several candidates the one that is nearest to the float model is kept, whatever it is called."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.quantize.candidate_score import Scorer, select_best
from onnxport.samples.readers import find_samples


def linear(path: Path, weight: np.ndarray) -> Model:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(weight.astype(np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return Model.load(path)


@pytest.mark.parametrize("finest", ["first", "second", "third"])
def test_the_nearest_is_kept(tmp_path: Path, finest: str) -> None:
    rng = np.random.default_rng(5)
    weight = rng.normal(size=(8, 5))
    (tmp_path / "samples").mkdir()
    for number in range(4):
        np.save(tmp_path / "samples" / f"{number}.npy", rng.normal(size=(1, 8)).astype(np.float32))
    original = linear(tmp_path / "original.onnx", weight)
    steps = {"first": 4, "second": 4, "third": 4} | {finest: 16}
    told: list[tuple[int, int]] = []
    files = find_samples(tmp_path / "samples", original.inputs, 10)
    with Scorer(original, files) as scorer:
        choice = select_best(
            steps,
            lambda step: linear(tmp_path / f"{step}.onnx", np.round(weight * step) / step),
            scorer,
            lambda done, total: told.append((done, total)),
        )
    assert (choice.name, choice.value) == (finest, 16)
    assert choice.scores[finest] == max(choice.scores.values())
    assert finest in choice.note
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_lead_that_the_samples_alone_may_account_for_does_not_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    weight = rng.normal(size=(8, 5))
    (tmp_path / "samples").mkdir()
    for number in range(4):
        np.save(tmp_path / "samples" / f"{number}.npy", rng.normal(size=(1, 8)).astype(np.float32))
    original = linear(tmp_path / "original.onnx", weight)
    noise = rng.normal(size=(8, 5)) * 0.01
    shares = {"first": 1.0, "a little nearer": 0.97, "much nearer": 0.5}
    with Scorer(original, find_samples(tmp_path / "samples", original.inputs, 10)) as scorer:

        def kept(*names: str) -> str:
            candidates = {name: shares[name] for name in names}
            return select_best(
                candidates, lambda share: linear(tmp_path / f"{share}.onnx", weight + share * noise), scorer
            ).name

        assert kept("first", "a little nearer") == "first"
        assert kept("first", "a little nearer", "much nearer") == "much nearer"
