"""Budgets: which figure they are about, whether it keeps them, and in which words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.validate.budgets import Budgets, apply_budgets, sentence
from onnxport.validate.custom_metrics import UserMetric, metric
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Figure, Judgement, OutputReport, Verdict

OUTPUTS = (
    TensorSpec("Identity:0", "float32", ("N", 10)),
    TensorSpec("head/boxes:1", "float32", ("N", 100, 4)),
)


@metric(better="lower", unit="%")
def char_error_rate(reference: Any, candidate: Any) -> float:
    return 0.0


OWN = UserMetric("m:char_error_rate", "char_error_rate", char_error_rate, char_error_rate.__onnxport_metric__)


def figure(name: str, value: float, better: Any = "higher") -> Figure:
    return Figure(metric=name, value=value, unit="", better=better)


def output(name: str, *figures: Figure, verdict: Verdict = "proven") -> OutputReport:
    return OutputReport(
        name=name,
        dtype="float32",
        shape=(1, 10),
        verdict=verdict,
        rule="within float32 noise",
        max_abs=0,
        mean_abs=0,
        scale=1,
        noise=0,
        tolerance=0,
        sqnr_db=None,
        mismatches=0,
        elements=10,
        figures=figures,
    )


def judgement(
    *outputs: OutputReport, verdict: Verdict = "proven", metrics: tuple[Figure, ...] = ()
) -> Judgement:
    return Judgement(
        question="quality",
        verdict=verdict,
        reason="fine",
        against="the original",
        outputs=outputs,
        metrics=metrics,
    )


BOTH = judgement(
    output("Identity:0", figure("sqnr", 30), figure("top1_agreement", 0.94)),
    output("head/boxes:1", figure("sqnr", 12)),
)


def test_a_budget_without_an_output_is_for_all_that_have_the_metric() -> None:
    found = apply_budgets(BOTH, Budgets({"sqnr": 20, "top1_agreement": 0.9}))
    assert found.verdict == "over budget"
    assert found.reason == "'head/boxes:1': sqnr 12, the budget is at least 20"
    assert [each.verdict for each in found.outputs] == ["proven", "over budget"]
    assert [(f.metric, f.budget, f.met) for f in found.outputs[0].figures] == [
        ("sqnr", 20, True),
        ("top1_agreement", 0.9, True),
    ]


def test_a_budget_for_one_output_goes_before_that_for_all() -> None:
    found = apply_budgets(BOTH, Budgets({"sqnr": 20, "head/boxes:1:sqnr": 10}))
    assert (found.verdict, found.reason) == (
        "proven",
        "fine; budget kept: sqnr 30 of at least 20, sqnr 12 of at least 10",
    )
    assert found.outputs[1].figures[0].budget == 10
    assert apply_budgets(BOTH, Budgets({"Identity:0:sqnr": 20})).verdict == "proven"


def test_what_is_at_the_limit_is_within_it_in_either_direction() -> None:
    exact = judgement(output("y", figure("sqnr", 20), figure("max_abs", 0.5, "lower")))
    assert apply_budgets(exact, Budgets({"sqnr": 20, "max_abs": 0.5})).verdict == "proven"
    found = apply_budgets(exact, Budgets({"sqnr": 20.5, "max_abs": 0.25}))
    assert found.reason == "'y': sqnr 20, the budget is at least 20.5 (and 1 more)"
    assert found.outputs[0].rule == (
        "sqnr 20, the budget is at least 20.5; max_abs 0.5, the budget is at most 0.25"
    )


def test_what_is_kept_is_said_of_the_worst_output() -> None:
    several = judgement(
        output("a", figure("sqnr", 30), figure("max_abs", 0.1, "lower")),
        output("b", figure("sqnr", 20.01), figure("max_abs", 0.3, "lower")),
        metrics=(Figure(metric="char_error_rate", value=4.5, unit="%", better="lower"),),
    )
    found = apply_budgets(several, Budgets({"sqnr": 20, "max_abs": 0.5, "char_error_rate": 5}, [OWN]))
    assert found.reason == (
        "fine; budget kept: sqnr 20.01 of at least 20, max_abs 0.3 of at most 0.5, "
        "char_error_rate 4.5 % of at most 5 %"
    )


def test_a_metric_that_is_no_number_keeps_no_budget() -> None:
    assert (
        apply_budgets(judgement(output("y", figure("sqnr", math.nan))), Budgets({"sqnr": 1})).verdict
        == "over budget"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("not equivalent", "not equivalent"), ("inconclusive", "over budget"), ("unproven", "over budget")],
)
def test_a_fault_goes_before_a_budget_and_a_budget_before_a_doubt(before: Verdict, after: Verdict) -> None:
    given = judgement(output("y", figure("sqnr", 1), verdict=before), verdict=before)
    found = apply_budgets(given, Budgets({"sqnr": 20}))
    assert (found.verdict, found.outputs[0].verdict) == (after, after)
    assert found.outputs[0].figures[0].met is False


def test_a_users_metric_has_a_budget_by_its_functions_name() -> None:
    value = Figure(metric="char_error_rate", value=7.25, unit="%", better="lower")
    found = apply_budgets(judgement(output("y"), metrics=(value,)), Budgets({"char_error_rate": 5}, [OWN]))
    assert found.reason == "char_error_rate 7.25 %, the budget is at most 5 %"
    assert (found.metrics[0].budget, found.metrics[0].met) == (5, False)


def test_value_and_limit_are_written_with_as_many_digits_as_tell_them_apart() -> None:
    near = Figure(metric="cosine", value=0.99996, unit="", better="higher", budget=0.99997, met=False)
    assert sentence(near) == "cosine 0.99996, the budget is at least 0.99997"


def test_a_budget_on_a_metric_that_no_output_turned_out_to_have_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"no output has the metric of the budget 'mean_iou': mean_iou is for .*masks"
    ):
        apply_budgets(BOTH, Budgets({"mean_iou": 0.5}))
    with pytest.raises(UsageError, match="'head/boxes:1' does not have the metric of the budget"):
        apply_budgets(BOTH, Budgets({"head/boxes:1:top1_agreement": 0.5}))


def test_a_fault_is_told_even_where_it_leaves_a_budget_without_a_figure() -> None:
    fault = judgement(output("y", verdict="not equivalent"), verdict="not equivalent")
    assert apply_budgets(fault, Budgets({"sqnr": 20})) == fault
    silent = judgement(verdict="not equivalent")
    assert apply_budgets(silent, Budgets({"sqnr": 20})) == silent


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"sqrn": 20}, "did you mean 'sqnr'.*metrics are max_abs, .*mismatch_share, char_error_rate"),
        ({"top1": 0.9}, "did you mean 'top1_agreement'"),
        ({"scores:top-5": 0.9}, "did you mean 'top5_agreement'"),
        ({"": 0.9}, "names no known metric; metrics are"),
        ({"char_eror_rate": 20}, "did you mean 'char_error_rate'"),
        ({"Identity:0": 20}, "'Identity:0' names no known metric"),
        ({"sqnr": math.nan}, "has the limit nan"),
        ({"top1_agreement": 98}, "has the limit 98: the metric is a share, at most 1; give 0.98"),
        ({"Identity:0:mean_iou": 1.5}, "has the limit 1.5: the metric is a share, at most 1; give less"),
        ({"Identity:0:char_error_rate": 1}, "'char_error_rate' is a metric of all outputs together"),
    ],
)
def test_a_budget_that_cannot_be_meant_is_refused(budget: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Budgets(budget, [OWN])


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (
            "Identity:sqnr=20",
            "no output 'Identity' for the budget 'Identity:sqnr'; did you mean 'Identity:0'?",
        ),
        ("mean_iou=0.5,", "give a number"),
        ("mismatch_share=0.5", "the metric of the budget 'mismatch_share'"),
        ("Identity:0:mean_iou=0.5", "the metric of the budget 'Identity:0:mean_iou'"),
        ("head/boxes:1:top5_agreement=0.5", "does not have the metric of the budget"),
    ],
)
def test_a_budget_that_no_output_can_have_is_refused_by_the_signature(budget: str, words: str) -> None:
    from onnxport.pipelines.params import params_of

    with pytest.raises(UsageError) as caught:
        Budgets(params_of(ValidateParams, {"budget": budget}, purpose="validation").budget).check(OUTPUTS)
    assert words in str(caught.value)


def test_budgets_that_outputs_of_open_shape_may_have_pass_the_first_look() -> None:
    unknown = (TensorSpec("y", "float32", ()),)
    Budgets({"top1_agreement": 1, "top5_agreement": 1, "mean_iou": 1, "sqnr": 1}).check(unknown)
    Budgets({"char_error_rate": 1}, [OWN]).check(unknown)


def test_a_users_metric_may_not_take_a_known_name() -> None:
    with pytest.raises(UsageError, match="has the name of a built-in one"):
        Budgets({}, [UserMetric("m:sqnr", "sqnr", OWN.function, OWN.declared)])
