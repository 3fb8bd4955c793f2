"""Outputs that prove nothing: they do not vary, are empty or NaN, or their rows are alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from fixtures import graphs
from onnxport.formats.artifact import Artifact
from onnxport.samples.generator import COMPANIONS, FURTHER_KINDS
from tests.validate.models import parsed, save, verdict


@pytest.fixture
def mlp(tmp_path: Path) -> Artifact:
    return save(graphs.mlp(), tmp_path / "mlp.onnx")


SATURATED = """g (float[N, 4] x) => (float[N, 4] y) <float big = {1e30}, float[4] b = {9, 0, 0, 0}>
    { a = Clip (x) c = Div (a, big) d = Add (c, b) e = Mul (d, big) y = Softmax <axis = 1> (e) }"""


def test_an_output_that_never_varies_is_inconclusive_unless_that_is_accepted(tmp_path: Path) -> None:
    source = save(parsed(SATURATED), tmp_path / "a.onnx")
    copy = save(parsed(SATURATED), tmp_path / "b.onnx")
    report = verdict(source, copy)
    assert (report.verdict, report.passed) == ("inconclusive", False)
    assert report.reason == "'y': it does not vary with the inputs"
    assert len(report.fed) == 6 + len(FURTHER_KINDS) + 3 + len(COMPANIONS), (
        "further sets were tried, five of them at batch 3"
    )
    accepted = verdict(source, copy, accept_inconclusive=True)
    assert (accepted.verdict, accepted.passed) == ("unproven", True)


def test_an_output_that_only_longer_inputs_move_is_proven_by_these(tmp_path: Path) -> None:
    text = """g (float[1, T, 4] x) => (float[1, T, 4] y)
        <int64[1] from = {16}, int64[1] to = {1000}, int64[1] axes = {1}>
        { late = Slice (x, from, to, axes) s = ReduceSum (late, axes) z = Sub (x, x) y = Add (z, s) }"""
    source = save(parsed(text), tmp_path / "a.onnx")
    assert verdict(source, save(parsed(text), tmp_path / "b.onnx")).verdict == "proven"
    wrong = save(parsed(text.replace("{16}", "{15}")), tmp_path / "c.onnx")
    assert verdict(source, wrong).verdict == "not equivalent"


def test_inputs_that_excite_a_silent_detector_are_searched_for(tmp_path: Path) -> None:
    """It answers to an edge 6 wide between -2 and 2; on everything else its answer is 0 or a sigmoid's last bits."""
    text = """g (float[1, 3, 32, 32] x) => (float[1, 1, H, W] y)
        <float low = {-2.2}, float high = {2.2}, float limit = {1.75}, float steep = {60}>
        { c = Clip (x, low, high) e = Conv (c, k) d = Sub (e, limit) z = Mul (d, steep) y = Sigmoid (z) }"""
    model = parsed(text)
    edge = np.repeat(np.array([-1, 1], np.float32) / 36, 3)
    kernel = np.broadcast_to(edge, (1, 3, 2, 6)).copy()
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "k"))
    source = save(model, tmp_path / "a.onnx")
    report = verdict(source, source)
    assert report.verdict == "proven", report.reason
    assert report.fed[-1].label.endswith("(blocks)")


def test_an_output_that_hangs_on_no_input_has_nothing_to_vary_with(tmp_path: Path) -> None:
    text = """g (float[2, 4] x) => (float[2, 4] y, int64[2] shape, float[2] anchors) <float[2] a = {1, 2}>
        { y = Relu (x) shape = Shape (x) anchors = Neg (a) }"""
    source = save(parsed(text), tmp_path / "a.onnx")
    report = verdict(source, save(parsed(text), tmp_path / "b.onnx"))
    assert {output.name: output.rule for output in report.outputs} == {
        "y": "exact",
        "shape": "exact",
        "anchors": "exact",
    }
    assert report.verdict == "proven"
    wrong = verdict(source, save(parsed(text.replace("{1, 2}", "{1, 3}")), tmp_path / "c.onnx"))
    assert [output.verdict for output in wrong.outputs] == ["proven", "proven", "not equivalent"]


def test_outputs_that_happen_to_have_no_elements_prove_nothing(tmp_path: Path) -> None:
    text = "g (float[4] x) => (int64[1, N] y) <float zero = {0}> { z = Mul (x, zero) y = NonZero (z) }"
    model = save(parsed(text), tmp_path / "m.onnx")
    report = verdict(model, model)
    assert report.verdict == "inconclusive"
    assert "it is empty" in report.reason


def test_outputs_that_never_have_elements_need_no_evidence(tmp_path: Path) -> None:
    model = save(parsed("g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    assert verdict(model, model).verdict == "proven"


def test_an_empty_batch_of_the_users_proves_nothing(mlp: Artifact, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((0, 6), np.float32))
    assert verdict(mlp, mlp, inputs=tmp_path).verdict == "inconclusive"


def test_outputs_that_are_nan_everywhere_are_called_so(tmp_path: Path) -> None:
    text = "g (float[5] x) => (float[5] y) <float[1] m = {-1000}> { n = Clip(x, , m)  y = Log(n) }"
    model = save(parsed(text), tmp_path / "m.onnx")
    report = verdict(model, model)
    assert report.verdict == "inconclusive"
    assert "it is NaN everywhere" in report.reason


SATURATES = (
    "g (float[N, 3, 16, 16] x) => (float[N, 3, 1, 1] y) {{ p = GlobalAveragePool (x) s = Sigmoid (p) {end} }}"
)


FIRST_ROW_FOR_ALL = (
    "i = Constant <value = int64[1] {0}> () f = Gather <axis = 0> (s, i) n = Shape (s) y = Expand (f, n)"
)


def test_rows_that_are_alike_on_pictures_are_told_apart_on_noise(tmp_path: Path) -> None:
    right = save(parsed(SATURATES.format(end="y = Identity (s)")), tmp_path / "right.onnx")
    wrong = save(parsed(SATURATES.format(end=FIRST_ROW_FOR_ALL)), tmp_path / "wrong.onnx")
    report = verdict(right, wrong)
    assert report.verdict == "not equivalent"
    assert report.outputs[0].worst is not None
    assert report.outputs[0].worst.input_set == "set 5 (normal)"
    assert not any("never differed" in note for note in verdict(right, right).notes)


def test_a_batch_whose_rows_never_differ_is_said(tmp_path: Path) -> None:
    """Every row of this model answers with the sum over the batch."""
    text = (
        "g (float[N, 4] x) => (float[N, 4] y) { a = Constant <value = int64[1] {0}> () "
        "t = ReduceSum <keepdims = 1> (x, a) n = Shape (x) y = Expand (t, n) }"
    )
    mixes = save(parsed(text), tmp_path / "mixes.onnx")
    report = verdict(mixes, mixes)
    assert report.verdict == "proven"
    assert any("rows of a batch never differed at 'y'" in note for note in report.notes)
