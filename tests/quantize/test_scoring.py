"""The scorer: its figures are those that anyone computes from the answers, and its budgets are the judge's."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.quantize.candidate_score import Scorer
from onnxport.samples.readers import find_samples
from onnxport.validate.params import ValidateParams


def linear(path: Path, weight: np.ndarray) -> Model:
    """scores = x W with a second output that is always zero."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["scores"]), helper.make_node("Sub", ["x", "x"], ["zero"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 5]),
            helper.make_tensor_value_info("zero", TensorProto.FLOAT, [1, 8]),
        ],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return Model.load(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Model, Model, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(8, 5)).astype(np.float32)
    samples = [rng.normal(size=(1, 8)).astype(np.float32) for _ in range(6)]
    (tmp_path / "samples").mkdir()
    for number, sample in enumerate(samples):
        np.save(tmp_path / "samples" / f"{number}.npy", sample)
    coarse = (np.round(weight * 4) / 4).astype(np.float32)
    return linear(tmp_path / "a.onnx", weight), linear(tmp_path / "b.onnx", coarse), samples


def test_sqnr_is_that_of_all_samples_together(pair: tuple[Model, Model, list[np.ndarray]]) -> None:
    original, candidate, samples = pair
    assert original.path is not None
    assert candidate.path is not None
    sides = [onnxruntime.InferenceSession(str(each.path)) for each in (original, candidate)]
    ours, theirs = (np.concatenate([s.run(["scores"], {"x": x})[0] for x in samples]) for s in sides)
    expected = 10 * math.log10((ours**2).sum() / ((ours - theirs) ** 2).sum())
    with Scorer(original, find_samples(original.path.parent / "samples", original.inputs, 100)) as scorer:
        score = scorer.score(candidate)
    assert score.sqnr["scores"] == pytest.approx(expected, abs=1e-4)
    assert score.sqnr["zero"] == math.inf  # no signal, no error
    assert score.meets


@pytest.mark.parametrize(("limit", "met"), [(5, True), (60, False)])
def test_a_budget_is_kept_or_said_to_be_missed(
    pair: tuple[Model, Model, list[np.ndarray]], limit: float, met: bool
) -> None:
    original, candidate, _ = pair
    assert original.path is not None
    files = find_samples(original.path.parent / "samples", original.inputs, 100)
    with Scorer(original, files, ValidateParams(budget={"scores:sqnr": limit})) as scorer:
        score = scorer.score(candidate)
    assert score.meets is met
    assert (score.shortfall > 0) is not met
    if not met:
        assert "'scores': sqnr" in score.unmet[0]
        assert "the budget is at least 60 dB" in score.unmet[0]


def test_a_budget_may_name_a_function_of_the_users(
    pair: tuple[Model, Model, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, candidate, _ = pair
    assert original.path is not None
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metrics.py").write_text(
        "import onnxport\n@onnxport.metric(better='lower')\ndef cer(a, b): return 0.5\n"
    )
    monkeypatch.chdir(tmp_path)
    files = find_samples(original.path.parent / "samples", original.inputs, 100)
    with Scorer(original, files, ValidateParams(budget={"mine.metrics:cer": 0.02})) as scorer:
        assert scorer.score(candidate).unmet == ("cer 0.5, the budget is at most 0.02",)


@pytest.mark.parametrize(("away", "is_partial"), [(-10, True), (10, True), (-0.5, False), (0.5, False)])
def test_some_samples_decide_where_they_are_far_from_the_limit(
    away: float, is_partial: bool, pair: tuple[Model, Model, list[np.ndarray]]
) -> None:
    original, candidate, _ = pair
    assert original.path is not None
    files = find_samples(original.path.parent / "samples", original.inputs, 100)
    with Scorer(original, files) as scorer:
        reached = scorer.score(candidate, samples=4).sqnr["scores"]
    limit = ValidateParams(budget={"scores:sqnr": reached + away})
    with Scorer(original, files, limit) as scorer:
        found = scorer.score(candidate, decides=True)
        assert found.is_partial == is_partial
        assert found.meets == scorer.score(candidate).meets == (away < 0)
        assert found.is_partial or found == scorer.score(candidate)
