"""Adversarial companions: faults that wait for what ordinary inputs never hold, and no alarm where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.artifact import Artifact
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.validate import input_sets
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.report import Report


def saved(text: str, path: Path) -> Artifact:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}'), path)
    return Artifact.open(path)


def verdict(reference: Artifact, candidate: Artifact, **options: object) -> Report:
    with Judge(reference, ValidateParams(**options)) as judge:  # type: ignore[arg-type]
        return judge.verdict(candidate)


# A right model, what is wrong with its copy, and the companion that shows it. The ordinary sets do not.
FAULTS = {
    "a mask of -3e38 turned into -inf": (
        """g (float[N, 6] x, int64[N, 6] attention_mask) => (float[N, 6] y) <float one = {1}, float big = {-3e38}>
        { m = Cast <to = 1> (attention_mask) n = Sub (one, m) p = Mul (n, big) s = Add (x, p) y = Softmax (s) }""",
        # log(1 - n) is 0 where the mask keeps and -inf where it hides
        """g (float[N, 6] x, int64[N, 6] attention_mask) => (float[N, 6] y)
        { m = Cast <to = 1> (attention_mask) p = Log (m) s = Add (x, p) y = Softmax (s) }""",
        "zeros",
    ),
    "a clamp dropped at large magnitude": (
        "g (float[N, 6] x) => (float[N, 6] y) <float a = {-700}, float b = {700}> { y = Clip (x, a, b) }",
        "g (float[N, 6] x) => (float[N, 6] y) { y = Identity (x) }",
        "sparse",
    ),
    "an epsilon dropped below a fraction bar": (
        """g (float[N, 6] x) => (float[N, 6] y) <int64[1] last = {-1}, float eps = {1e-12}>
        { n = ReduceL2 <axes = [1]> (x) e = Max (n, eps) y = Div (x, e) }""",
        "g (float[N, 6] x) => (float[N, 6] y) { n = ReduceL2 <axes = [1]> (x) y = Div (x, n) }",
        "zeros",
    ),
    "an overflow to float16 on the way": (
        "g (float[N, 6] x) => (float[N, 6] y) <float k = {10}, float s = {0.001}> { a = Mul (x, k) y = Mul (a, s) }",
        """g (float[N, 6] x) => (float[N, 6] y) <float k = {10}, float s = {0.001}, float top = {65504},
            float low = {-65504}>
        { a = Mul (x, k) c = Clip (a, low, top) y = Mul (c, s) }""",
        "large",
    ),
}


SEED = 1  # with it no ordinary set of two ids holds a 0


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_ordinary_inputs_hide_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, kind = FAULTS[name]
    source, broken = saved(right, tmp_path / "a.onnx"), saved(wrong, tmp_path / "b.onnx")
    assert verdict(source, source).verdict == "proven"
    report = verdict(source, broken)
    assert report.verdict == "not equivalent"
    assert kind in {"zeros", "sparse", "constant", "large"}
    monkeypatch.setattr(input_sets, "COMPANIONS", (kind,))
    assert verdict(source, broken).verdict == "not equivalent", "the companion that is named shows it"
    monkeypatch.setattr(input_sets, "COMPANIONS", ())
    assert verdict(source, broken).verdict != "not equivalent", "no ordinary set shows it"


def test_an_id_kept_below_the_last_row_is_found_by_the_last_row(tmp_path: Path) -> None:
    def looked_up(top: int) -> onnx.ModelProto:
        text = f"""<ir_version: 9, opset_import: ["" : 17]>
            g (int64[N, 2] ids) => (float[N, 2] y, float[N, 2] z) <float[1] table = {{0}}, int64 top = {{{top}}}>
            {{ kept = Min (ids, top) y = Gather (table, kept) z = Gather (table, ids) }}"""
        model = onnx.parser.parse_model(text)
        table = np.random.default_rng(0).standard_normal(60_000).astype(np.float32)
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
        return model

    onnx.save(looked_up(59_999), tmp_path / "a.onnx")
    onnx.save(looked_up(59_998), tmp_path / "b.onnx")
    output = verdict(Artifact.open(tmp_path / "a.onnx"), Artifact.open(tmp_path / "b.onnx")).outputs[0]
    assert output.worst is not None
    assert output.worst.input_set.endswith(("(constant)", "(sparse)", "(large)"))


@pytest.mark.parametrize("body", ["y = Exp (x)", "y = Reciprocal (x)", "y = Div (x, x)"])
def test_a_companion_on_which_the_reference_is_not_finite_is_left_out(body: str, tmp_path: Path) -> None:
    """Kernels differ in how they overflow: LiteRT's exponential ends at 3.4e38 with XNNPACK, at infinity without."""
    # Nothing is known of what a sum demands of its terms.
    text = f"g (float[N, 6] v) => (float[N, 6] y) <int64 one = {{1}}> {{ x = CumSum (v, one) {body} }}"
    model = saved(text, tmp_path / "m.onnx")
    fed = {each.label.partition("(")[2] for each in verdict(model, model, seed=1).fed}
    assert "zeros)" not in fed or "large)" not in fed
    assert {"normal)", "constant)"} <= fed


def test_a_companion_that_the_reference_refuses_is_left_out(tmp_path: Path) -> None:
    text = """g (int32[2] x) => (int32[2] y) <int32 k = {70000}, int64 zero = {0}>
        { w = CumSum (x, zero) y = Div (k, w) }"""
    model = saved(text, tmp_path / "m.onnx")
    labels = [each.label for each in verdict(model, model, seed=SEED).fed]
    assert not any("zeros" in label for label in labels)
    assert any("constant" in label for label in labels)


def test_companions_are_no_evidence_that_an_output_varies(tmp_path: Path) -> None:
    """Only the zeros move this output, which no network means by its answers."""
    text = """g (float[N, 6] x) => (float[N, 1] y) <float k = {0}>
        { a = ReduceMax <axes = [1]> (x) b = ReduceMin <axes = [1]> (x) d = Sub (a, b)
          z = Equal (d, k) y = Cast <to = 1> (z) }"""
    model = saved(text, tmp_path / "m.onnx")
    assert verdict(model, model).reason == "'y': it does not vary with the inputs"


# Companions of magnitude 1e4, where a float's rounding turns the sine, and ordinary inputs where it does not.
SINE = "g (float[N, 6] x) => (float[N, 6] y) { y = Sin (x) }"
SINE_ROUNDED = (
    """g (float[N, 6] x) => (float[N, 6] y) <float k = {1.0000001}> { m = Mul (x, k) y = Sin (m) }"""
)


def runs_and_refined(monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], list[str]]:
    runs: list[object] = []
    refined: list[str] = []
    run, refine = IsolatedRuntime.run, Reference.refine

    def counted(self: IsolatedRuntime, feeds: Feeds, **options: Any) -> dict[str, Array]:
        runs.append(self.path)
        return run(self, feeds, **options)

    def noted(self: Reference, answered: AnsweredSet) -> bool:
        was = refine(self, answered)
        refined.extend([answered.label] if was else [])
        return was

    monkeypatch.setattr(IsolatedRuntime, "run", counted)
    monkeypatch.setattr(Reference, "refine", noted)
    return runs, refined


def is_companion(label: str) -> bool:
    return label.endswith(("(zeros)", "(sparse)", "(constant)", "(large)"))


def test_probes_of_companions_run_only_where_a_candidate_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = saved(SINE, tmp_path / "a.onnx")
    runs, refined = runs_and_refined(monkeypatch)
    report = verdict(right, saved(SINE, tmp_path / "b.onnx"))
    assert (report.verdict, refined) == ("proven", [])
    companions = sum(is_companion(each.label) for each in report.fed)
    assert companions >= 3
    probes = runs.count(right.path) - len(report.fed)
    assert probes <= len(report.fed) - companions, "one for each ordinary set"


def test_a_companion_on_which_the_reference_is_noisy_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, refined = runs_and_refined(monkeypatch)
    report = verdict(saved(SINE, tmp_path / "a.onnx"), saved(SINE_ROUNDED, tmp_path / "b.onnx"))
    assert report.verdict == "proven", report.reason
    assert refined, "its noise was estimated too small for this candidate"


def test_a_noisy_companion_is_probed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sets pass with the one probe that they had: a heavy model's further runs would cost seconds."""
    right = saved(SINE, tmp_path / "a.onnx")
    runs, refined = runs_and_refined(monkeypatch)
    report = verdict(right, saved(SINE_ROUNDED, tmp_path / "b.onnx"))
    assert report.verdict == "proven", report.reason
    companions = [each.label for each in report.fed if is_companion(each.label)]
    assert set(refined) < set(companions)
    ordinary = len(report.fed) - len(companions)
    assert runs.count(right.path) <= len(report.fed) + ordinary + 2 * len(refined)


MEAN = """g (float[N, 2, T] x) => (float[N, 2, 1] y) { y = GlobalAveragePool (x) }"""
# Sums from left to right, as some kernels do.
PLAIN_MEAN = """g (float[N, 2, T] x) => (float[N, 2, 1] y)
    <int64 axis = {2}, int64[1] last = {-1}, float scale = {SCALE}> {
      sums = CumSum (x, axis) s = Shape <start = 2> (x) t = Cast <to = 1> (s)
      total = Gather <axis = 2> (sums, last) mean = Div (total, t) y = Mul (mean, scale) }"""


def test_a_plain_sum_of_equal_numbers_is_rounding(tmp_path: Path) -> None:
    """The errors of equal terms do not cancel."""
    right = saved(MEAN, tmp_path / "mean.onnx")
    plain = saved(PLAIN_MEAN.replace("SCALE", "1"), tmp_path / "plain.onnx")
    assert verdict(right, plain, shape={"x": (None, 2, 30000)}).verdict == "proven"


def test_a_mean_that_is_off_by_more_than_rounding_is_found(tmp_path: Path) -> None:
    right = saved(MEAN, tmp_path / "mean.onnx")
    wrong = saved(PLAIN_MEAN.replace("SCALE", "1.003"), tmp_path / "wrong.onnx")
    assert verdict(right, wrong, shape={"x": (None, 2, 30000)}).verdict == "not equivalent"


def test_on_zeros_the_rounding_of_a_network_s_own_constants_is_no_alarm(tmp_path: Path) -> None:
    """A bias goes through a product and nearly cancels: no input has a neighbour that would show the rounding."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((256, 4)).astype(np.float32)
    bias = random.standard_normal(256).astype(np.float32)
    left = (bias @ weights + np.float32(1e-4)).astype(np.float32)
    constants = {"b": bias, "w": weights, "c": left, "w1": weights[:100], "w2": weights[100:]}
    head = "g (float[N, 256] x) => (float[N, 4] y) { h = Add (x, b) "
    whole = saved(head + "p = MatMul (h, w) y = Sub (p, c) }", tmp_path / "whole.onnx")
    halves = saved(
        head + "h1, h2 = Split <axis = 1> (h, s) p1 = MatMul (h1, w1) p2 = MatMul (h2, w2) p = Add (p1, p2) "
        "y = Sub (p, c) }",
        tmp_path / "halves.onnx",
    )
    constants["s"] = np.array([100, 156])
    for artifact in (whole, halves):
        model = onnx.load(artifact.path)
        read = {name for node in model.graph.node for name in node.input}
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if name in read
        )
        onnx.save(model, artifact.path)
    report = verdict(whole, halves)
    assert report.passed, report.reason
    assert any("zeros" in each.label for each in report.fed)
