"""`--runtimes`: other engines in the same session."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from onnxport.bench.params import BenchParams
from onnxport.bench.plan import plan_rows
from onnxport.cli.commands import cli
from onnxport.formats.artifact import Artifact

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
QUICK = ("--runs", "1", "--warmup", "0")


def test_engines_are_rows_beside_onnx_runtime_and_their_answers_are_compared() -> None:
    done = CliRunner().invoke(
        cli, ["bench", str(DIGITS), "--runtimes", "ort,tract,openvino,ncnn", *QUICK, "--json"]
    )
    report = json.loads(done.stdout)
    assert done.exit_code == 0, done.stderr
    rows = {row["settings"]["runtime"]: row for row in report["rows"]}
    assert list(rows) == ["ort", "tract", "openvino", "ncnn"]
    assert {row["status"] for row in rows.values()} == {"measured"}
    assert rows["tract"]["ran_on"].startswith("tract 0.")
    assert [row["settings"]["threads"] for row in rows.values()] == [2, None, 2, 2]
    # The answers are of the same model: nothing but rounding lies between them.
    assert all(float(row["accuracy"]["sqnr"]) > 100 for row in rows.values())
    assert {"tract", "openvino", "ncnn", "pnnx"} <= report["versions"].keys()


def test_a_setting_that_an_engine_does_not_know_makes_no_rows_of_it() -> None:
    params = BenchParams(runtimes=("ort", "tract", "mnn"), threads=(1, 2), levels=("all", "disable"))
    settings = [row.settings for row in plan_rows([Artifact.open(DIGITS)], params)]
    told = [(each.runtime, each.threads, each.level) for each in settings]
    assert told == [
        *(("ort", threads, level) for threads in (1, 2) for level in ("all", "disable")),
        ("tract", None, None),
        *(("mnn", threads, None) for threads in (1, 2)),
    ]


def test_what_is_no_runtime_is_refused_and_what_runs_no_such_file_is_a_row_without_figures() -> None:
    unknown = CliRunner().invoke(cli, ["bench", str(DIGITS), "--runtimes", "trakt"])
    assert unknown.exit_code == 2
    assert "there is no runtime 'trakt' to measure; did you mean 'tract'?" in unknown.stderr
    other = CliRunner().invoke(cli, ["bench", str(DIGITS), "--runtimes", "litert", *QUICK, "--json"])
    (row,) = json.loads(other.stdout)["rows"]
    assert row["status"] == "not here"
    assert "none of litert runs .onnx files" in row["why"]
