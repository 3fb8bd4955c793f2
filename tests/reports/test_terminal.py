"""The terminal form with --verbose: a table per question."""

from __future__ import annotations

import pytest

from onnxport.reports.run.terminal import result_lines
from onnxport.reports.run_report import RunReport
from tests.reports.handmade import (
    broken,
    crowded,
    failing,
    judgement,
    nasty,
    output,
    passing,
    run_of,
    without_outputs,
    worst,
)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the width is where the tests run: pytest-xdist says 80 to its workers."""
    monkeypatch.setenv("COLUMNS", "140")


def test_detailed_run_has_a_table_per_question() -> None:
    assert result_lines(failing(), detailed=True).splitlines()[1:] == [
        "",
        "fidelity: not equivalent   Does it compute what an ONNX model with the same roundings computes?",
        "  output     verdict          difference   of scale   SQNR       beyond tolerance   decided by",
        "  scores     not equivalent   0.2          0.2        14 dB      3 of 60            "
        "difference 0.2 at [0,3], allowed 1e-05",
        "  boxes      proven           3.1e-07      3.1e-07    132 dB     0 of 60            within float32 noise",
        "",
        "quality: over budget   How much accuracy does the lower precision lose against the float original?",
        "  output     verdict       difference   of scale   SQNR       decided by",
        "  scores     over budget   0.2          0.2        14 dB      top1_agreement is below its budget",
        "  char_error_rate   0.12   at most 0.1: missed",
        "  SQNR (sqnr)   31 dB   at least 20: kept",
    ]


def test_line_alone_is_one_line() -> None:
    assert len(result_lines(passing()).splitlines()) == 1


def test_table_keeps_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = result_lines(failing(), detailed=True).splitlines()
    tables = [line for line in lines if line.startswith("  ")]
    assert max(map(len, tables)) <= 80


def test_names_from_files_do_not_command_the_terminal() -> None:
    shown = result_lines(nasty(), detailed=True)
    assert "\x1b" not in shown
    assert "\x00" not in shown


def test_2000_outputs_are_cut_with_a_count() -> None:
    shown = result_lines(crowded(), detailed=True)
    assert len(shown.splitlines()) < 30
    assert shown.splitlines()[-1].strip() == "... and 1,980 more outputs"
    assert "  bad " in shown


def test_judgement_without_outputs_has_no_empty_table() -> None:
    assert (
        result_lines(without_outputs(), detailed=True).splitlines()[-1].startswith("fidelity: not equivalent")
    )


def test_nan_is_said_in_words_and_never_called_identical() -> None:
    line = result_lines(broken())
    assert "NaN in 60 of 60 where the reference has none at 'y'" in line
    assert "identical" not in line


def test_line_and_table_have_the_numbers_of_the_worst_element_where_a_companion_alone_fails() -> None:
    element = worst(candidate=1.9).model_copy(update={"scale": 3.0, "input_set": "set 8 (large)"})
    lone = output("y", "not equivalent", max_abs=0.0, scale=1.0, worst=element)
    asked = judgement(lone, verdict="not equivalent")
    shown = result_lines(run_of(asked, verdict="not equivalent"), detailed=True)
    assert "worst 4.0e-01 of scale at 'y'" in shown
    assert "  1.2          0.4        " in shown


def optimized() -> RunReport:
    run = passing()
    facts = {
        "changed": {"nodes": [310, 187], "parameters": [3_504_872, 3_487_816], "opset": [11, 26]},
        "passes": [
            {
                "pass": "fold constants",
                "nodes": [310, 200],
                "bytes": [14_000_000, 14_000_512],
                "skipped": None,
            },
            {"pass": "fuse", "skipped": "it changes the model's answers"},
            {
                "pass": "remove unused",
                "nodes": [200, 187],
                "bytes": [14_000_512, 14_000_512],
                "skipped": None,
            },
        ],
    }
    artifact = run.artifacts[0].model_copy(update={"facts": facts})
    return run.model_copy(update={"artifacts": (artifact,)})


def test_what_an_optimization_changed_leads_its_line() -> None:
    (line,) = result_lines(optimized()).splitlines()
    assert line.startswith("out/model.tflite   nodes 310 -> 187, opset 11 -> 26, 4.7 MB   proven: ")


def test_rows_of_a_stage_are_a_table_of_differences() -> None:
    lines = result_lines(optimized(), detailed=True).splitlines()
    assert lines[lines.index("passes") :] == [
        "passes",
        "  pass             nodes      bytes      skipped",
        "  fold constants   -110       +512",
        "  fuse                                   it changes the model's answers",
        "  remove unused    -13        0",
    ]


def test_the_line_says_of_two_questions_to_which_its_figure_belongs() -> None:
    assert "   worst 3.1e-07 of scale at 'scores'   " in result_lines(passing())
    two = run_of(judgement(output()), judgement(output(), question="quality"))
    assert "   fidelity: worst 3.1e-07 of scale at 'scores'   " in result_lines(two)


def test_the_line_says_once_of_which_question_its_reason_and_figure_are() -> None:
    quality = judgement(output(), question="quality", reason="quality: SQNR 20.1 dB")
    placed = judgement(question="translation", reason="each node is the source's, quantized")
    line = result_lines(run_of(quality, placed, reason=f"{quality.reason}; {placed.reason}"))
    assert f"   proven: {quality.reason}; {placed.reason}   worst 3.1e-07 of scale at " in line
    # Both have figures: the figure's own question stands before it.
    right = judgement(output(), reason="fidelity: within float32 noise")
    line = result_lines(run_of(right, quality, reason=f"{right.reason}; {quality.reason}"))
    assert "; quality: SQNR 20.1 dB   fidelity: worst 3.1e-07 of scale at " in line
