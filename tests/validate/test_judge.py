"""The judge on small models: right artefacts pass, wrong ones do not, and what proves nothing says so."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from fixtures import graphs
from onnxport.core.errors import InputError, MachineError, MissingDependencyError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.base import MemoryFullError
from onnxport.samples.generator import COMPANIONS
from onnxport.validate import reference
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from tests.faults import attributes, graph, surgery, weights
from tests.validate import tflite_files
from tests.validate.models import parsed, save, verdict

LEVELS = onnxruntime.GraphOptimizationLevel


def optimized(source: Artifact, path: Path) -> Artifact:
    """What ONNX Runtime makes of a model, a right artefact whose sums are in another order."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source.path), options, providers=["CPUExecutionProvider"])
    return Artifact.open(path)


@pytest.fixture
def conv(tmp_path: Path) -> Artifact:
    return save(graphs.conv_relu(), tmp_path / "conv.onnx")


@pytest.fixture
def mlp(tmp_path: Path) -> Artifact:
    return save(graphs.mlp(), tmp_path / "mlp.onnx")


def test_a_right_artefact_is_proven_and_the_report_says_on_what(conv: Artifact, tmp_path: Path) -> None:
    candidate = optimized(conv, tmp_path / "candidate.ort")
    report = verdict(conv, candidate)
    assert (report.verdict, report.passed) == ("proven", True)
    assert report.reason in ("exact", "within float32 noise")
    assert [dict(each.shapes)["x"][0] for each in report.fed] == [1, 3, 1, 1, *[1] * len(COMPANIONS)]
    assert {each.source for each in report.fed} == {"generated"}
    (output,) = report.outputs
    assert (output.name, output.dtype, output.mismatches) == ("y", "float32", 0)
    assert output.elements == (6 + len(COMPANIONS)) * 4 * 8 * 10
    assert 0 < output.noise < 1e-5 * output.scale
    assert report.reference.digest == conv.digest()
    assert report.candidate.runtime.startswith("ONNX Runtime")
    assert any("--inputs" in note for note in report.notes)


@pytest.mark.parametrize(
    "fault",
    [
        weights.swapped_channels,
        weights.one_percent_more,
        weights.dropped_bias,
        weights.not_a_number,
        attributes.padding_moved,
        attributes.leaking_relu,
    ],
)
def test_a_fault_is_found(conv: Artifact, tmp_path: Path, fault: surgery.Fault) -> None:
    broken = graphs.conv_relu()
    fault(broken, random.Random(0))
    report = verdict(conv, save(broken, tmp_path / "broken.onnx"))
    assert (report.verdict, report.passed) == ("not equivalent", False)
    assert report.reason.startswith("'y': ")
    assert report.outputs[0].worst is not None
    assert report.outputs[0].mismatches > 0


def test_a_fault_that_shows_at_batch_3_alone_is_found(tmp_path: Path) -> None:
    source = parsed("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }")
    broken = parsed(
        """g (float[N, 4] x) => (float[N, 4] y) <int64[1] zero = {0}, int64[1] one = {1}>
        { first = Slice (x, zero, one) a = Relu (first) shape = Shape (x) y = Expand (a, shape) }"""
    )
    report = verdict(save(source, tmp_path / "a.onnx"), save(broken, tmp_path / "b.onnx"))
    assert report.verdict == "not equivalent"
    assert report.outputs[0].worst is not None
    assert report.outputs[0].worst.input_set == "set 2 (image)"


TWINS = """g (float[N, 4] x) => (float[N, 4] up, float[N, 4] down) { up = Exp (x) down = Neg (x) }"""


def test_outputs_that_were_swapped_are_found(tmp_path: Path) -> None:
    source = save(parsed(TWINS), tmp_path / "a.onnx")
    broken = parsed(TWINS)
    graph.swap_values(broken, "up", "down")
    report = verdict(source, save(broken, tmp_path / "b.onnx"))
    assert [output.verdict for output in report.outputs] == ["not equivalent"] * 2
    assert report.reason.endswith("(and 1 more output)")


def test_a_map_tells_swapped_outputs_from_renamed_ones(tmp_path: Path) -> None:
    source = save(parsed(TWINS), tmp_path / "a.onnx")
    renamed = save(parsed(TWINS.replace("up", "a").replace("down", "b")), tmp_path / "b.onnx")
    assert verdict(source, renamed, map={"up": "a", "down": "b"}).verdict == "proven"
    crossed = verdict(source, renamed, map={"up": "b", "down": "a"})
    assert [output.verdict for output in crossed.outputs] == ["not equivalent"] * 2
    exchanged = verdict(source, source, map={"up": "down", "down": "up"})
    assert [output.name for output in exchanged.outputs] == ["up", "down"]
    assert exchanged.verdict == "not equivalent"


def test_the_report_names_the_node_that_makes_an_output(tmp_path: Path) -> None:
    model = parsed("g (float[2] x) => (float[2] y, float[2] x) { y = Exp (x) }")
    model.graph.node[0].name = "head/exp"
    source = save(model, tmp_path / "a.onnx")
    first, second = verdict(source, source).outputs
    assert first.node is not None
    assert (first.node.name, first.node.op, first.node.value) == ("head/exp", "Exp", "y")
    assert second.node is None, "an input that is given back"


def test_the_worst_elements_of_all_sets_are_shown_the_worst_first(mlp: Artifact, tmp_path: Path) -> None:
    near = graphs.mlp()
    weights.one_percent_more(near, random.Random(0))
    (output,) = verdict(mlp, save(near, tmp_path / "near.onnx")).outputs
    assert output.worst == output.worst_elements[0]
    assert len(output.worst_elements) == 5
    assert len(set(output.worst_elements)) == 5
    off = [abs(each.candidate - each.reference) for each in output.worst_elements]
    assert max(off) == pytest.approx(output.max_abs)
    same = verdict(mlp, mlp).outputs[0]
    assert (same.worst, same.worst_elements) == (None, ())


def test_a_budget_that_is_not_met_fails_what_is_equivalent(mlp: Artifact) -> None:
    sealed = verdict(mlp, mlp, budget={"max_abs": 0.0, "probabilities:cosine": 0.5})
    assert sealed.verdict == "proven"
    kept = {figure.metric: figure.met for figure in sealed.outputs[0].figures}
    assert (kept["max_abs"], kept["cosine"], kept["sqnr"]) == (True, True, None)
    broken = verdict(mlp, mlp, budget={"max_abs": -1.0})
    assert broken.verdict == "over budget"
    assert broken.reason == "'probabilities': max_abs 0, the budget is at most -1"
    assert broken.judgements[0].outputs[0].verdict == "over budget"


def test_a_budget_for_what_no_output_has_is_refused_before_a_model_is_run(mlp: Artifact) -> None:
    with pytest.raises(UsageError, match="the metric of the budget 'mismatch_share'"):
        verdict(mlp, mlp, budget={"mismatch_share": 0.1}, inputs=Path("/nowhere"))


def test_a_budget_for_what_the_answers_turn_out_not_to_be_is_refused(tmp_path: Path) -> None:
    source = save(
        parsed("g (float[1, 20, 30] x) => (float[1, 20, 30] y) { y = Neg (x) }"), tmp_path / "a.onnx"
    )
    with pytest.raises(
        UsageError,
        match="'y' does not have the metric of the budget 'y:mean_iou': mean_iou is for masks",
    ):
        verdict(source, source, budget={"y:mean_iou": 0.9})


def test_outputs_in_another_order_are_matched_by_name_and_noted(tmp_path: Path) -> None:
    turned = parsed(TWINS)
    outputs = list(turned.graph.output)
    del turned.graph.output[:]
    turned.graph.output.extend(reversed(outputs))
    report = verdict(save(parsed(TWINS), tmp_path / "a.onnx"), save(turned, tmp_path / "b.onnx"))
    assert report.verdict == "proven"
    assert any("another order" in note for note in report.notes)


def test_another_signature_is_refused_with_both_sides_listed(conv: Artifact, tmp_path: Path) -> None:
    renamed = graphs.conv_relu()
    renamed.graph.input[0].name = renamed.graph.node[0].input[0] = "image"
    with pytest.raises(UsageError) as caught:
        verdict(conv, save(renamed, tmp_path / "b.onnx"))
    title, paths, inputs, outputs, way_out = str(caught.value).splitlines()
    assert title == "the two models do not take and give the same tensors:"
    assert paths.split() == [str(conv.path), str(tmp_path / "b.onnx")]
    assert " ".join(inputs.split()) == "input x: float32[N, 3, 8, 10] image: float32[N, 3, 8, 10]"
    assert " ".join(outputs.split()) == "output y: float32[N, 4, 8, 10] y: float32[N, 4, 8, 10]"
    assert way_out == "likely 'x' is 'image'; if so, give --map x=image"
    assert verdict(conv, Artifact.open(tmp_path / "b.onnx"), map={"x": "image"}).verdict == "proven"


@pytest.mark.parametrize(
    "other",
    [
        "g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) { y = Relu (x) z = Neg (x) }",
        "g (float[N, 2, 2] x) => (float[N, 4] y) <int64[2] s = {-1, 4}> { a = Relu (x) y = Reshape (a, s) }",
        "g (double[N, 4] x) => (float[N, 4] y) { a = Relu (x) y = Cast <to = 1> (a) }",
    ],
    ids=["count", "rank", "dtype"],
)
def test_other_counts_ranks_and_dtypes_are_refused(tmp_path: Path, other: str) -> None:
    source = save(parsed("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }"), tmp_path / "a.onnx")
    with pytest.raises(UsageError, match="do not take and give the same tensors"):
        verdict(source, save(parsed(other), tmp_path / "b.onnx"))


def test_a_batch_that_was_baked_in_is_no_equivalent(conv: Artifact, tmp_path: Path) -> None:
    fixed = save(graphs.conv_relu(1), tmp_path / "fixed.onnx")
    report = verdict(conv, fixed)
    assert report.verdict == "not equivalent"
    assert "--shape x=1,3,8,10" in report.reason
    assert verdict(conv, fixed, shape={"x": (1, 3, 8, 10)}).verdict == "proven"
    assert verdict(fixed, conv).verdict == "proven", "a candidate may take more than the reference"


def test_integer_outputs_are_exact(tmp_path: Path) -> None:
    text = "g (float[N, 9] x) => (int64[N] best) { best = ArgMax <axis = 1, keepdims = 0> (x) }"
    source = save(parsed(text), tmp_path / "a.onnx")
    assert verdict(source, save(parsed(text), tmp_path / "b.onnx")).reason.startswith("exact")
    wrong = save(parsed(text.replace("ArgMax", "ArgMin")), tmp_path / "c.onnx")
    assert "the reference has" in verdict(source, wrong).reason


def test_given_tolerances_decide_alone(mlp: Artifact, tmp_path: Path) -> None:
    near = graphs.mlp()
    weights.one_percent_more(near, random.Random(0))
    candidate = save(near, tmp_path / "near.onnx")
    assert verdict(mlp, candidate).verdict == "not equivalent"
    assert verdict(mlp, candidate, atol=0.1).reason == "within atol 0.1 + rtol 0 as given"
    assert verdict(mlp, mlp, atol=0.0).verdict == "proven"


def test_a_model_without_float_inputs_has_its_weights_perturbed(tmp_path: Path) -> None:
    """They are where a candidate is not within the noise of kernels alone, which is 0 on some CPUs."""
    table = np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32)
    weights = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)

    def saved(name: str, factor: float) -> Artifact:
        graph = helper.make_graph(
            [
                helper.make_node("Gather", ["table", "ids"], ["rows"]),
                helper.make_node("MatMul", ["rows", "weights"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["N", "T"])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", "T", 64])],
            [
                numpy_helper.from_array(table, "table"),
                numpy_helper.from_array(weights * np.float32(factor), "weights"),
            ],
        )
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
        return save(model, tmp_path / name)

    source = saved("a.onnx", 1.0)
    assert verdict(source, source).verdict == "proven"
    report = verdict(source, saved("b.onnx", 1.001))
    assert report.verdict == "not equivalent"
    assert report.outputs[0].noise > 0


def test_a_permuted_tflite_is_judged_in_the_axis_order_of_the_source(tmp_path: Path) -> None:
    text = """g (float[3, T] x, int64[1] n) => (float[3, T] y, int64[1] m)
        <float[3, 1] one = {1, 2, 3}, int64[1] two = {2}>
        { e = Exp (x) y = Add (e, one) m = Add (n, two) }"""
    model = parsed(text)
    names = {"x": "images,1:0", "n": "count", "y": "answers,1:0", "m": "counted"}
    for value in (*model.graph.input, *model.graph.output):
        value.name = names[value.name]
    for node in model.graph.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(end, end) for end in ends]
    source = save(model, tmp_path / "a.onnx")
    right = tflite_files.chain(tmp_path / "right.tflite", tflite_files.chain_manifest((1, 0)))
    report = verdict(source, Artifact.open(right))
    assert report.verdict == "proven"
    assert report.candidate.runtime.startswith("LiteRT")
    surgery.edit(
        next(tensor for tensor in model.graph.initializer if tensor.name == "one"),
        lambda values: values.__setitem__((0, 0), 1.001),
    )
    assert verdict(save(model, tmp_path / "b.onnx"), Artifact.open(right)).verdict == "not equivalent"


def test_a_tflite_and_an_ort_file_may_be_the_reference(conv: Artifact, tmp_path: Path) -> None:
    chain = Artifact.open(tflite_files.chain(tmp_path / "m.tflite"))
    assert verdict(chain, chain).verdict == "proven"
    sealed = optimized(conv, tmp_path / "conv.ort")
    assert verdict(sealed, conv).verdict == "proven"


def test_a_candidate_that_cannot_run_at_some_size_is_no_equivalent(tmp_path: Path) -> None:
    source = parsed(
        "g (float[N, 4] x) => (float[M] y) <int64[1] s = {-1}> { a = Relu (x) y = Reshape (a, s) }"
    )
    stuck = parsed("g (float[N, 4] x) => (float[M] y) <int64[1] s = {4}> { a = Relu (x) y = Reshape (a, s) }")
    report = verdict(save(source, tmp_path / "a.onnx"), save(stuck, tmp_path / "b.onnx"))
    assert report.verdict == "not equivalent"
    assert "x [3, 4]" in report.reason


def test_open_sizes_that_no_proposal_fits_ask_for_the_option(tmp_path: Path) -> None:
    """Two products demand 23 and 24 columns."""
    text = """g (float[N, T] x) => (float[N, 1] y) <int64[2] s = {23, 1}, int64[2] r = {24, 1}>
        { w = ConstantOfShape <value = float[1] {1}> (s) v = ConstantOfShape <value = float[1] {1}> (r)
          a = MatMul (x, w) b = MatMul (x, v) y = Add (a, b) }"""
    source = save(parsed(text), tmp_path / "a.onnx")
    with pytest.raises(UsageError, match=r"input 'x'.*--shape x=SIZE,SIZE"):
        verdict(source, source)


def test_a_size_that_one_node_demands_is_found(tmp_path: Path) -> None:
    text = """g (float[N, T] x) => (float[N, 1] y) <int64[2] s = {23, 1}>
        { w = ConstantOfShape <value = float[1] {1}> (s) y = MatMul (x, w) }"""
    source = save(parsed(text), tmp_path / "a.onnx")
    assert verdict(source, source).verdict == "proven"


def test_a_shape_for_an_unknown_input_is_refused(conv: Artifact) -> None:
    with pytest.raises(UsageError, match="no input 'image'"):
        verdict(conv, conv, shape={"image": (1,)})


def test_the_users_own_inputs_are_fed(conv: Artifact, tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    for number in range(3):
        image = np.random.default_rng(number).standard_normal((1 + number, 3, 8, 10)).astype(np.float32)
        np.savez(folder / f"{number}.npz", x=image)
    report = verdict(conv, conv, inputs=folder)
    assert [(each.label, each.source) for each in report.fed] == [(f"{n}.npz", "samples") for n in range(3)]
    assert report.verdict == "proven"
    assert not report.notes
    assert len(verdict(conv, conv, inputs=folder, samples=2).fed) == 2
    np.savez(folder / "1.npz", y=np.zeros(1))
    with pytest.raises(InputError, match=r"1\.npz lacks the input 'x'"):
        verdict(conv, conv, inputs=folder)


def test_the_seed_decides_the_inputs_and_the_verdict_repeats(conv: Artifact) -> None:
    def figures(seed: int) -> list[float]:
        return [output.scale for output in verdict(conv, conv, seed=seed).outputs]

    assert figures(5) == figures(5)
    assert figures(5) != figures(6)


def test_answers_too_large_to_keep_are_computed_again(
    conv: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = optimized(conv, tmp_path / "candidate.ort")
    kept = verdict(conv, candidate)
    monkeypatch.setattr(reference, "_KEPT", 0)
    again = verdict(conv, candidate)
    assert again.outputs == kept.outputs


def test_differs_says_in_one_sentence_why_a_pass_changed_the_answer(mlp: Artifact) -> None:
    def changed(change: Callable[[onnx.ModelProto], object]) -> Model:
        import onnx_ir

        proto = graphs.mlp()
        change(proto)
        return Model(onnx_ir.from_proto(proto))

    with Judge(mlp, ValidateParams(), graph=Model.load(mlp.path)) as judge:
        assert judge.differs(changed(lambda proto: None)) is None
        fault = judge.differs(changed(lambda proto: weights.one_percent_more(proto, random.Random(0))))
        assert fault is not None
        assert fault.startswith("'probabilities': difference ")
        broken = judge.differs(changed(lambda proto: setattr(proto.graph.node[0], "op_type", "Nonsense")))
        assert broken is not None
        assert "cannot load" in broken


def test_the_reference_answers_once_in_the_background(mlp: Artifact) -> None:
    with Judge(mlp, ValidateParams()) as judge:
        first = judge.verdict(mlp)
        answered = judge.reference
        assert judge.verdict(mlp).outputs == first.outputs
        assert judge.reference is answered
        assert judge.seconds > 0


def test_an_error_of_the_reference_is_raised_by_every_question(tmp_path: Path) -> None:
    stuck = save(
        parsed("g (int32[64] x) => (int32[64] y) { w = Sub(x, x) y = Div(x, w) }"), tmp_path / "m.onnx"
    )
    with Judge(stuck, ValidateParams()) as judge:
        for _ in range(2):
            with pytest.raises(UsageError, match="Integer division by zero"):
                judge.verdict(stuck)
        assert isinstance(judge.refusal(), UsageError)


def test_a_large_reference_waits_until_it_is_needed(mlp: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxport.validate.judge._AHEAD", 0)
    with Judge(mlp, ValidateParams(), graph=Model.load(mlp.path)) as judge:
        assert not any(thread.name == "judge" for thread in threading.enumerate())
        assert judge.verdict(mlp).verdict == "proven"


def test_a_later_tflite_is_run_by_the_process_that_was_started_for_it(tmp_path: Path) -> None:
    chain = Artifact.open(tflite_files.chain(tmp_path / "m.tflite"))
    later = Artifact(tmp_path / "later.tflite", "tflite")
    with Judge(chain, ValidateParams(), candidate=later) as judge:
        assert judge.verdict(chain).verdict == "proven", "another candidate gets a process of its own"
        later.path.write_bytes(chain.path.read_bytes())
        assert judge.verdict(later).verdict == "proven"


def test_values_that_are_no_tensors_are_refused(tmp_path: Path) -> None:
    text = "g (float[4] x) => (seq(float[4]) y) { y = SequenceConstruct (x) }"
    source = save(parsed(text), tmp_path / "a.onnx")
    with pytest.raises(UsageError, match=r"'y' of .*a\.onnx is not a tensor but seq\(tensor\(float\)\)"):
        verdict(source, source)


def test_inputs_and_outputs_without_dimensions_are_judged(tmp_path: Path) -> None:
    model = save(parsed("g (float x) => (float y) { y = Exp(x) }"), tmp_path / "m.onnx")
    assert verdict(model, model).verdict == "proven"


@pytest.mark.parametrize("shape", ["100000,100000", "N,100000,100000"])
def test_inputs_too_large_to_generate_are_refused_with_their_size(shape: str, tmp_path: Path) -> None:
    model = save(parsed(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Relu(x) }}"), tmp_path / "m.onnx")
    with pytest.raises(MemoryFullError, match=r"40.0GB of them for the inputs.*--inputs DIR") as caught:
        verdict(model, model)
    assert caught.value.exit_code == 6


def test_a_reference_that_fails_on_generated_inputs_asks_for_the_users(tmp_path: Path) -> None:
    model = save(
        parsed("g (int32[64] x) => (int32[64] y) { w = Sub(x, x) y = Div(x, w) }"), tmp_path / "m.onnx"
    )
    with pytest.raises(
        UsageError, match=r"\(generated inputs\): .*Integer division by zero; give .*--inputs DIR"
    ):
        verdict(model, model)


def test_one_file_is_compared_with_itself_under_other_settings_of_its_runtime(conv: Artifact) -> None:
    for level in ("disable", "basic", "extended"):
        report = verdict(conv, conv, candidate_runtime={"level": level})
        assert report.verdict == "proven"
        assert report.reference.runtime != report.candidate.runtime
        assert level.replace("disable", "off") in report.candidate.runtime


def test_litert_runs_with_and_without_its_delegate(tmp_path: Path) -> None:
    chain = Artifact.open(tflite_files.chain(tmp_path / "m.tflite"))
    report = verdict(chain, chain, candidate_runtime={"delegate": "none"})
    assert report.verdict == "proven"
    assert "built-in kernels" in report.candidate.runtime


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levle": "basic"}, r"--candidate-runtime: .* has no 'levle'; did you mean 'level'\?"),
        (
            {"delegate": "none"},
            r"no 'delegate'; its settings are integers, level, provider, runtime, threads",
        ),
        ({"level": "3"}, r"'3' is not allowed for level; give disable, basic, extended, all"),
        ({"threads": "0"}, "'0' is not allowed for threads; give 1 to 256"),
    ],
)
def test_settings_that_a_runtime_does_not_know_are_refused(
    settings: dict[str, str], message: str, conv: Artifact
) -> None:
    with pytest.raises(UsageError, match=message):
        verdict(conv, conv, candidate_runtime=settings)


def test_a_provider_that_this_onnx_runtime_lacks_is_named_with_those_it_has(conv: Artifact) -> None:
    with pytest.raises(MissingDependencyError, match=r"no execution provider 'CUDA': it has .*CPU"):
        verdict(conv, conv, reference_runtime={"provider": "CUDA"})


def test_a_reference_whose_runtime_never_ends_is_an_error(tmp_path: Path) -> None:
    loop = parsed(
        "g (float[1] x) => (float[1] y) { n = Constant <value = int64 {9000000000000000000}> () "
        "t = Constant <value = bool {1}> () y = Loop (n, t, x) <body = b (int64 i, bool c, float[1] v) "
        "=> (bool d, float[1] w) { d = Identity (c) w = Add (v, v) }> }"
    )
    endless = save(loop, tmp_path / "endless.onnx")
    with pytest.raises(
        MachineError, match=r"ONNX Runtime running .*endless\.onnx hung: no answer within 3 s"
    ):
        verdict(endless, endless, timeout=3)


def test_a_tflite_that_keeps_a_state_inside_is_said_to(tmp_path: Path) -> None:
    keeper = Artifact.open(tflite_files.stateful(tmp_path / "m.tflite"))
    notes = verdict(keeper, keeper).notes
    assert any("keeps a state from one run to the next" in note for note in notes)


def test_another_float_type_at_the_border_is_refused_with_the_way_to_keep_it(tmp_path: Path) -> None:
    single = save(parsed("g (float[2] x) => (float[2] y) { y = Relu (x) }"), tmp_path / "a.onnx")
    half = save(parsed("g (float16[2] x) => (float16[2] y) { y = Relu (x) }"), tmp_path / "b.onnx")
    with pytest.raises(UsageError, match=r"x: float16\[2\]\n(.*\n)*.*keep_io_types=True"):
        verdict(single, half)


# y needs x alone; of `mask` no more than its shape is read, and of `left` nothing that an output needs.
WITH_UNREAD = """g (float[N, 4] x, float[N, 4] left, float[N, 4] mask) => (float[N, 4] y, int64[2] sizes) {
    h = Relu (x)
    dead = Mul (h, left)
    y = Neg (h)
    sizes = Shape (mask)
}"""
WITHOUT_LEFT = """g (float[N, 4] x, float[N, 4] mask) => (float[N, 4] y, int64[2] sizes) {
    h = Relu (x)
    y = Neg (h)
    sizes = Shape (mask)
}"""


def test_a_candidate_may_do_without_inputs_that_no_output_depends_on(tmp_path: Path) -> None:
    reference = save(parsed(WITH_UNREAD), tmp_path / "reference.onnx")
    candidate = save(parsed(WITHOUT_LEFT), tmp_path / "candidate.onnx")
    report = verdict(reference, candidate)
    assert report.verdict == "proven"
    assert [note for note in report.notes if "left" in note] == [
        "the candidate lacks the input 'left'; no output of the reference depends on it"
    ]
    assert not any("another order" in note for note in report.notes)
    with Judge(reference, ValidateParams()) as judge:
        assert judge.differs(Model.load(candidate.path)) is None


def test_an_output_that_no_input_reaches_is_told(tmp_path: Path) -> None:
    """A trace that kept one example's answer looks so; a constant beside other outputs is told, too."""
    text = "g (float[N, 4] x) => (float[2] y, int64[2] sizes) <float[2] c = {1, 2}> { y = Neg (c) sizes = Shape (x) }"
    path = save(parsed(text), tmp_path / "model.onnx")
    assert [note for note in verdict(path, path).notes if "depends on no input" in note] == [
        "the output 'y' depends on no input: it is a constant of the model"
    ]


@pytest.mark.parametrize("gone", ["mask", "x"])
def test_an_input_that_an_output_depends_on_has_to_be_there(gone: str, tmp_path: Path) -> None:
    reference = save(parsed(WITH_UNREAD), tmp_path / "reference.onnx")
    model = parsed(WITH_UNREAD)
    kept = [value for value in model.graph.input if value.name != gone]
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), gone))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    with pytest.raises(UsageError, match=rf"do not take and give the same tensors[\s\S]*{gone}"):
        verdict(reference, save(model, tmp_path / "candidate.onnx"))
