"""Models with a state are run for several steps: a stale state is found, a right one is proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from fixtures import models
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact
from onnxport.samples.domain import Domain
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Report
from onnxport.validate.rollout import advance

HIDDEN = 6


def lstm(fault: str = "") -> onnx.ModelProto:
    """An LSTM over windows [1, N, 4] with its state in and out, and faults that one step from zeros hides."""
    draw = np.random.default_rng(0)
    weights = {
        "w": draw.standard_normal((1, 4 * HIDDEN, 4)),
        "r": draw.standard_normal((1, 4 * HIDDEN, HIDDEN)),
        "limit": np.array(0.5),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["all", "hy", "cy"], hidden_size=HIDDEN),
        helper.make_node("Squeeze", ["all"], ["y"])
        if fault == "flat"
        else helper.make_node("Tanh", ["all"], ["y"]),
    ]
    stale = {"stale hidden": ("h", "hy"), "stale cell": ("c", "cy")}.get(fault)
    for given, made, out in (("h", "hy", "hn"), ("c", "cy", "cn")):
        source = given if stale == (given, made) else made
        nodes.append(helper.make_node("Identity", [source], [out]))
    if fault == "ignored":
        nodes[0].input[5] = nodes[0].input[6] = ""
    state = [helper.make_tensor_value_info(name, 1, [1, "N", HIDDEN]) for name in ("h", "c")]
    ends = [helper.make_tensor_value_info(name, 1, [1, "N", HIDDEN]) for name in ("hn", "cn")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [1, "N", 4]), *state],
        [helper.make_tensor_value_info("y", 1, [1, 1, "N", HIDDEN]), *ends],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def saved(model: onnx.ModelProto, path: Path) -> Artifact:
    onnx.save(model, path)
    return Artifact.open(path)


def verdict(reference: Artifact, candidate: Artifact, **options: object) -> Report:
    with Judge(reference, ValidateParams(**options)) as judge:  # type: ignore[arg-type]
        return judge.verdict(candidate)


def test_a_right_model_is_proven_over_several_steps(tmp_path: Path) -> None:
    model = saved(lstm(), tmp_path / "a.onnx")
    report = verdict(model, model)
    assert report.verdict == "proven"
    assert {each.steps for each in report.fed} == {4}
    assert "4 steps with the state fed back: h=hn, c=cn" in report.notes
    assert {each.steps for each in verdict(model, model, steps=2).fed} == {2}
    single = verdict(model, model, steps=1)
    assert {each.steps for each in single.fed} == {1}
    assert not any("steps" in note for note in single.notes)


@pytest.mark.parametrize("fault", ["stale hidden", "stale cell", "ignored"])
def test_a_stale_state_is_found(tmp_path: Path, fault: str) -> None:
    report = verdict(saved(lstm(), tmp_path / "a.onnx"), saved(lstm(fault), tmp_path / "b.onnx"))
    assert report.verdict == "not equivalent"
    worst = next(output.worst for output in report.outputs if output.name == "y")
    assert worst is not None
    assert len(worst.index) == 5, "y has an axis of steps"


def test_each_side_feeds_back_its_own_state_as_deployed(tmp_path: Path) -> None:
    """Against ONNX Runtime by hand: three steps, the outputs along axis 1."""
    model = saved(lstm(), tmp_path / "a.onnx")
    x = np.random.default_rng(1).standard_normal((1, 2, 4)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x)
    with Judge(model, ValidateParams(inputs=tmp_path, steps=3)) as judge:
        report = judge.verdict(model)
        reference = judge.reference
        feeds, answers = reference.answers(reference.sets[0])
    assert "a.npz has no state 'h', so it begins with zeros" in report.notes
    assert feeds["h"].shape == (1, 2, HIDDEN)
    session = onnxruntime.InferenceSession(str(model.path))
    h = c = np.zeros((1, 2, HIDDEN), np.float32)
    for step in range(3):
        y, h, c = session.run(None, {"x": np.roll(x, step, 2), "h": h, "c": c})
        np.testing.assert_array_equal(answers["y"][:, step], y)
        np.testing.assert_array_equal(answers["cn"][:, step], c)


def test_a_pair_given_by_hand_is_taken_and_a_wrong_one_refused(tmp_path: Path) -> None:
    model = saved(lstm(), tmp_path / "a.onnx")
    report = verdict(model, model, state={"h": "cn"})
    assert any(note.endswith("fed back: h=cn") for note in report.notes)
    with pytest.raises(UsageError, match="the outputs are 'y', 'hn', 'cn'"):
        verdict(model, model, state={"h": "state"})


def test_a_state_that_comes_back_in_another_size_is_refused(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 4] x, float[1, T] seen) => (float[1, S] all) { all = Concat <axis = 1> (seen, x) }"""
    model = saved(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"'all' cannot be fed back to 'seen': it has shape .*--steps 1"):
        verdict(model, model, state={"seen": "all"})


def test_a_cache_that_grows_is_left_alone_and_that_is_said(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 4] x, float[1, P] past_key) => (float[1, S] present_key)
        { present_key = Concat <axis = 1> (past_key, x) }"""
    model = saved(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    report = verdict(model, model)
    assert {each.steps for each in report.fed} == {1}
    assert any("one step only: the cache 'past_key' grows" in note for note in report.notes)
    assert not any("steps in a row" in note for note in report.notes)


@pytest.mark.real
@pytest.mark.parametrize(
    "key",
    [
        "silero-vad/silero_vad_16k_sequence.onnx",
        "g2p-id-py/decoder_model.onnx",
        "silero-vad/silero_vad_half.onnx",
    ],
)
def test_a_real_model_with_a_stale_state_is_found(key: str, tmp_path: Path) -> None:
    source = Artifact.open(models.path(key))
    assert verdict(source, source).verdict == "proven"
    broken = onnx.load(source.path)
    state = next(value.name for value in broken.graph.input if value.name in ("h", "input_3", "state"))
    output = next(value.name for value in broken.graph.output if value.name in ("hn", "lstm_1", "stateN"))
    for node in broken.graph.node:
        node.output[:] = ["unused" if name == output else name for name in node.output]
    broken.graph.node.append(helper.make_node("Identity", [state], [output]))
    report = verdict(source, saved(broken, tmp_path / "broken.onnx"))
    assert report.verdict == "not equivalent"
    wrong = {each.name for each in report.outputs if each.verdict == "not equivalent"}
    assert wrong > {output}, "what the state decides is wrong as well"


@pytest.mark.parametrize(
    "domain",
    [
        Domain("integer", 0, 2),
        Domain("integer", 5, 7),
        Domain("integer", -3, 900),
        Domain("mask"),
        Domain("real"),
        Domain("length"),
    ],
)
def test_later_steps_stay_in_the_domain_and_differ_where_they_may(domain: Domain) -> None:
    low, high = (domain.low, domain.high) if domain.kind == "integer" else (0, 1)
    first = np.random.default_rng(0).integers(low, high + 1, (2, 9))
    first = first.astype(np.float32) if domain.kind == "real" else first
    before = first
    for step in (1, 2, 3):
        later = advance(first, domain, step)
        assert (later.dtype, later.shape) == (first.dtype, first.shape)
        assert low <= later.min()
        assert later.max() <= high
        assert np.array_equal(later, before) == (domain.kind in ("mask", "length"))
        before = later


def test_a_step_of_one_value_differs_too() -> None:
    assert advance(np.array([[7]]), Domain("integer", 0, 99), 1) != 7
    assert advance(np.array([[1.0]], np.float32), Domain("real"), 2) == np.float32(0.5625)
