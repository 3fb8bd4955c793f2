"""Budgets, metrics of one's own and maps through the installed command: what passes, what fails, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx
import pytest

from onnxport.core import errors
from tests.cli.sandbox import Sandbox

VALIDATE = ("validate", "model.onnx", "other.onnx")

METRICS = """
import numpy as np
import onnxport

@onnxport.metric(better="lower", unit="px")
def gap(reference, candidate):
    return np.abs(reference["logits"] - candidate["logits"]).max()

@onnxport.metric(better="lower")
def raising(reference, candidate):
    raise KeyError("no such key")

@onnxport.metric(better="lower")
def nan(reference, candidate):
    return float("nan")

def undeclared(reference, candidate):
    return 0
"""


@pytest.fixture
def other(sandbox: Sandbox) -> Sandbox:
    """The sandbox with the model's copy beside it and a module of metrics in a package."""
    (sandbox.folder / "other.onnx").write_bytes(sandbox.model.read_bytes())
    (sandbox.folder / "mypkg").mkdir()
    (sandbox.folder / "mypkg" / "metrics.py").write_text(METRICS)
    return sandbox


def test_figures_budgets_and_own_metrics_stand_in_the_report(other: Sandbox) -> None:
    outcome = other.run(
        *VALIDATE,
        *("--budget", "top1_agreement=0.98", "--budget", "sqnr=20", "--budget", "logits:cosine=0.9"),
        *("--metric", "mypkg.metrics:gap", "--budget", "gap=0", "--json"),
    )
    assert outcome.code == 0, outcome.stderr
    (judgement,) = outcome.document["artifacts"][0]["report"]["judgements"]
    limits = {
        figure["metric"]: (figure["budget"], figure["met"]) for figure in judgement["outputs"][0]["figures"]
    }
    assert limits["top1_agreement"] == (0.98, True)
    assert limits["sqnr"] == (20, True)
    assert limits["cosine"] == (0.9, True)
    assert limits["max_ulps"] == (None, None)
    assert judgement["metrics"] == [
        {"metric": "gap", "value": 0, "unit": "px", "better": "lower", "budget": 0, "met": True}
    ]


def test_a_budget_that_is_not_met_is_exit_1_with_output_metric_value_and_limit(other: Sandbox) -> None:
    outcome = other.run(*VALIDATE, "--budget", "max_abs=-1")
    assert outcome.code == errors.NOT_EQUIVALENT
    assert "   over budget   " in outcome.stdout
    assert "'logits': max_abs 0, the budget is at most -1; this is on generated inputs only" in outcome.stderr


def test_conversion_over_budget_leaves_nothing(other: Sandbox) -> None:
    before = other.contents().keys()
    outcome = other.run(
        "convert", "model.onnx", "--to", "ort", "--metric", "mypkg.metrics:gap", "--budget", "gap=-1"
    )
    assert outcome.code == errors.NOT_EQUIVALENT
    assert "model.ort loses more accuracy against model.onnx than the budget allows: gap " in outcome.stderr
    assert {name for name in other.contents() if "__pycache__" not in name} == set(before)


@dataclass(frozen=True)
class Refusal:
    """Bad options, and what has to stand in the message; `early`: found before the models are run."""

    options: tuple[str, ...]
    says: tuple[str, ...]
    early: bool = True


REFUSALS = {
    "unknown metric": Refusal(
        ("--budget", "sqrn=20"), ("did you mean 'sqnr'?", "metrics are max_abs, mean_abs")
    ),
    "unknown output": Refusal(("--budget", "logit:sqnr=20"), ("no output 'logit'", "did you mean 'logits'?")),
    "no metric after the output": Refusal(("--budget", "logits=20"), ("'logits' names no known metric",)),
    "NaN limit": Refusal(("--budget", "sqnr=nan"), ("'sqnr' has the limit nan; give a number",)),
    "no number": Refusal(
        ("--budget", "sqnr=high"), ("--budget['sqnr']: high is not allowed; give a number",)
    ),
    "no name": Refusal(("--budget", "20"), ("'20' has no name before '='; write NAME=VALUE",)),
    "no value": Refusal(("--budget", "sqnr"), ("'sqnr' has no value; write NAME=VALUE",)),
    "inapplicable": Refusal(
        ("--budget", "mean_iou=0.9"), ("the metric of the budget 'mean_iou'", "'logits'")
    ),
    "no module": Refusal(("--metric", "mypkg.nothing:gap"), ("No module named 'mypkg.nothing'",)),
    "no function": Refusal(("--metric", "mypkg.metrics:nothing"), ("metrics.py has no 'nothing'",)),
    "no declaration": Refusal(("--metric", "mypkg.metrics:undeclared"), ("@onnxport.metric(better=",)),
    "no colon": Refusal(("--metric", "mypkg.metrics"), ("write package.module:function",)),
    "raises": Refusal(
        ("--metric", "mypkg.metrics:raising"),
        ("'mypkg.metrics:raising' failed on set 1 (image): KeyError: 'no such key'",),
        early=False,
    ),
    "gives NaN": Refusal(
        ("--metric", "mypkg.metrics:nan"), ("'mypkg.metrics:nan' gave nan on set 1 (image)",), early=False
    ),
    "unknown name in a map": Refusal(
        ("--map", "imag=image"),
        ("--map names the tensor 'imag', which model.onnx does not have",),
        early=False,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_option_is_one_sentence_and_exit_2(name: str, other: Sandbox) -> None:
    refusal = REFUSALS[name]
    outcome = other.run(*VALIDATE, *refusal.options)
    assert outcome.code == errors.USAGE, outcome.stderr
    last, code = outcome.stderr.splitlines()[-2:]
    assert last.startswith("error: ")
    assert code == "exit 2"
    for part in refusal.says:
        assert part in last
    assert "Traceback" not in outcome.stderr
    assert ("validate ..." in outcome.stderr) is not refusal.early


def edited(change: Callable[[onnx.ModelProto], None], sandbox: Sandbox) -> None:
    model = onnx.load(sandbox.model)
    change(model)
    onnx.save(model, sandbox.folder / "other.onnx")


def renamed(model: onnx.ModelProto) -> None:
    old = model.graph.input[0].name
    model.graph.input[0].name = "serving_default_image:0"
    for node in model.graph.node:
        node.input[:] = ["serving_default_image:0" if name == old else name for name in node.input]


def test_another_name_is_exit_2_and_the_printed_option_mends_it(sandbox: Sandbox) -> None:
    edited(renamed, sandbox)
    outcome = sandbox.run(*VALIDATE)
    assert outcome.code == errors.USAGE
    *_, title, files, inputs, outputs, way_out, _ = outcome.stderr.splitlines()
    assert title == "error: the two models do not take and give the same tensors:"
    assert files.split() == ["model.onnx", "other.onnx"]
    assert inputs.split()[:2] == ["input", "image:"]
    assert "serving_default_image:0: float32" in inputs
    assert outputs.split()[0] == "output"
    assert way_out.startswith("likely 'image' is 'serving_default_image:0'; if so, give --map ")
    option = way_out.partition("give ")[2].split()
    assert sandbox.run(*VALIDATE, *option).code == 0


def test_other_counts_are_exit_2_with_a_dash_for_what_lacks(sandbox: Sandbox) -> None:
    def one_more(model: onnx.ModelProto) -> None:
        model.graph.node.append(onnx.helper.make_node("Neg", ["logits"], ["more"]))
        model.graph.output.append(
            onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, ["N", 10])
        )

    edited(one_more, sandbox)
    outcome = sandbox.run(*VALIDATE)
    assert outcome.code == errors.USAGE
    assert any(line.split()[:3] == ["output", "-", "more:"] for line in outcome.stderr.splitlines())
    assert "export both with the same inputs and outputs" in outcome.stderr


@pytest.mark.parametrize(
    "option",
    [("--budget", "sqnr=20"), ("--metric", "m:f"), ("--report-tensors", "t.npz")],
    ids=lambda o: o[0],
)
def test_a_demand_that_no_validate_would_never_check_is_refused(
    option: tuple[str, str], sandbox: Sandbox
) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--no-validate", *option)
    assert outcome.code == errors.USAGE
    assert f"{option[0]} needs the proof, which --no-validate leaves out" in outcome.stderr
    assert not (sandbox.folder / "model.ort").exists()
