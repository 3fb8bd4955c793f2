"""Outputs that are 0 or 1 for all inputs: what lies between is looked for, else they prove nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxport.formats.artifact import Artifact
from tests.validate.models import parsed, save, verdict

# Scores of hundreds, as of a network that is fed other ranges than those of its training (MEGnet's dense layers).
TEXT = """g (float[N, 16] x) => (float[N, 4] y)
    {{ h = MatMul (x, a) r = Relu (h) s = MatMul (r, b) y = {squash} (s) }}"""


def network(
    path: Path, squash: str = "Softmax <axis = 1>", factor: float = 1.0, steep: float = 1e3
) -> Artifact:
    random = np.random.default_rng(3)
    model = parsed(TEXT.format(squash=squash))
    weights = {"a": random.standard_normal((16, 32)), "b": random.standard_normal((32, 4)) * steep * factor}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(each.astype(np.float32), name) for name, each in weights.items()
    )
    return save(model, path)


@pytest.mark.parametrize("squash", ["Softmax <axis = 1>", "Sigmoid", "Tanh"])
def test_weights_behind_a_saturated_output_are_found(squash: str, tmp_path: Path) -> None:
    right, again = network(tmp_path / "right.onnx", squash), network(tmp_path / "again.onnx", squash)
    wrong = network(tmp_path / "wrong.onnx", squash, factor=1.25)
    report = verdict(right, again)
    assert report.verdict == "proven"
    assert any(each.label.startswith("between set ") for each in report.fed)
    assert verdict(right, wrong).verdict == "not equivalent"


def test_the_users_samples_are_joined_by_one_between_two_of_them(tmp_path: Path) -> None:
    right, wrong = network(tmp_path / "right.onnx"), network(tmp_path / "wrong.onnx", factor=1.25)
    (tmp_path / "in").mkdir()
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 16)).astype(np.float32)
        np.savez(tmp_path / "in" / f"{seed}.npz", x=x)
    assert verdict(right, right, inputs=tmp_path / "in").verdict == "proven"
    assert verdict(right, wrong, inputs=tmp_path / "in").verdict == "not equivalent"


def test_what_lies_between_is_no_input_that_a_user_has(tmp_path: Path) -> None:
    """Weights of float16 turn no decision, and the loss is that of inputs that are decided."""
    right = network(tmp_path / "right.onnx")
    model = onnx.load(right.path)
    for tensor in model.graph.initializer:
        narrow = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        model.graph.node.insert(0, onnx.helper.make_node("Cast", [f"{tensor.name}16"], [tensor.name], to=1))
        tensor.CopyFrom(onnx.numpy_helper.from_array(narrow, f"{tensor.name}16"))
    report = verdict(right, save(model, tmp_path / "narrow.onnx"))
    assert report.verdict == "proven"
    assert any(each.label.startswith("between set ") for each in report.fed)
    (loss,) = (each for each in report.judgements if each.question == "quality")
    assert loss.outputs[0].max_abs == 0, "each of them is decided"


def test_an_output_that_jumps_from_one_end_to_the_other_is_inconclusive(tmp_path: Path) -> None:
    steep = network(tmp_path / "steep.onnx", steep=1e12)
    report = verdict(steep, steep)
    assert report.verdict == "inconclusive"
    assert "its last node is saturated" in report.reason


def test_a_saturated_output_beside_its_scores_needs_nothing_between(tmp_path: Path) -> None:
    network(tmp_path / "net.onnx", steep=1e12)
    model = onnx.load(tmp_path / "net.onnx")
    model.graph.output.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, ["N", 4]))
    both = save(model, tmp_path / "both.onnx")
    assert verdict(both, both).verdict == "proven"
