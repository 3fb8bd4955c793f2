"""A bench as JSON, Markdown and JUnit XML, and the words that all forms share."""

from __future__ import annotations

import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from onnxport.bench.report import BenchReport
from onnxport.reports.bench import figures, junit, markdown
from onnxport.reports.bench.figures import Bench
from onnxport.reports.bench.terminal import bench_lines
from tests.reports.bench.handmade import REPORTS, gated, hostile, nothing, settings, whole
from tests.reports.handmade import NASTY


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest) -> BenchReport:
    return REPORTS[request.param]()


def test_markdown_has_a_table_of_the_rows_that_were_measured(report: BenchReport) -> None:
    source = markdown.view(report)
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(source)
    bench = Bench(report)
    assert rendered.count("<tr>") == len(bench.measured) + bool(bench.measured)
    assert "<script" not in rendered


def test_a_table_of_the_terminal_says_what_stands_beside_the_median() -> None:
    head, row = bench_lines(whole()).splitlines()[1:3]
    assert "  95 % CI  p99 ms  " in head
    low = head.index("95 % CI")
    assert "–" in row[low : low + len("95 % CI")]


def test_markdown_says_what_could_not_run_and_why() -> None:
    source = markdown.view(whole())
    assert "not here, Core ML runs on macOS only: run this command there" in source.replace("\\", "")
    assert "mobilenetv2_int8.onnx is fastest: 4.52 ms" in source.replace("\\", "")


def test_columns_without_any_figure_are_left_out() -> None:
    assert "energy" not in markdown.view(whole())
    assert "settings" not in markdown.view(gated())


@pytest.mark.parametrize(
    ("make", "failures", "errors", "skipped"),
    [(gated, 1, 0, 0), (whole, 0, 0, 1), (hostile, 0, 2, 0), (settings, 0, 0, 0), (nothing, 0, 1, 0)],
)
def test_junit_has_a_case_per_row_that_fails_as_the_row_does(
    make: object, failures: int, errors: int, skipped: int
) -> None:
    report = make()  # type: ignore[operator]
    found = JUnitXml.fromstring(junit.view(report).encode())
    assert (found.tests, found.failures, found.errors) == (len(report.rows), failures, errors)
    assert next(iter(found)).skipped == skipped
    assert (failures + errors > 0) == (report.exit_code != 0)


def test_junit_has_the_ratio_of_a_slower_row() -> None:
    found = JUnitXml.fromstring(junit.view(gated()).encode())
    failing = [case for suite in found for case in suite if case.result]
    assert [case.result[0].message for case in failing] == [
        "b.onnx: slower: 1.17 times as long as before (1.13-1.22), the limit is 1.1"
    ]


def test_rows_that_the_noise_does_not_tell_from_the_fastest_are_counted() -> None:
    report = whole()
    slow, *others = report.rows
    assert slow.latency is not None
    noisy = slow.model_copy(update={"latency": slow.latency.model_copy(update={"low": 4.1})})
    summary = Bench(report.model_copy(update={"rows": (noisy, *others)})).summary
    assert summary.endswith("is fastest: 4.52 ms; mobilenetv2.onnx is as fast within the noise")
    assert Bench(report).summary.endswith("is fastest: 4.52 ms")


def test_labels_of_rows_are_unique() -> None:
    several, one_each = Bench(settings()), Bench(whole())
    assert several.label(several.rows[0]) == "mobilenetv2.onnx, 1 thread, level basic, batch 1"
    assert len({several.label(row) for row in several.rows}) == 16
    assert several.shared == "cpu"
    assert one_each.label(one_each.rows[1]) == "mobilenetv2.ort"
    assert one_each.settings(one_each.rows[4]) == "xnnpack"
    assert one_each.shared == "1 thread, level all, batch 1"


def test_artefacts_of_one_name_are_called_by_their_paths() -> None:
    report = whole()
    first, second, *_ = report.rows
    twins = [row.model_copy(update={"artifact": f"{at}/m.onnx"}) for at, row in enumerate((first, second))]
    bench = Bench(report.model_copy(update={"rows": tuple(twins)}))
    assert [bench.label(row) for row in bench.rows] == ["0/m.onnx", "1/m.onnx"]


def test_rows_of_several_batches_compare_by_the_sample() -> None:
    bench = Bench(settings())
    (fastest,) = (best for best in bench.bests if best.title == "fastest")
    assert fastest.label == "mobilenetv2_int8.onnx, 2 threads, level all, batch 8"
    row = next(row for row in bench.rows if bench.label(row) == fastest.label)
    assert row.latency is not None
    assert fastest.figure == f"{row.latency.median / 8:.3g} ms a sample"


def test_names_lose_what_is_no_text() -> None:
    bench = Bench(hostile())
    assert all("\x1b" not in bench.label(row) and "\x00" not in bench.label(row) for row in bench.rows)
    assert NASTY.encode()[:8] in junit.view(hostile()).encode() or "&lt;script" in junit.view(hostile())


def test_standing_has_the_words_of_the_comparison() -> None:
    kept, slower, unclear, new = map(figures.standing, gated().rows)
    assert kept == "kept: 1.01 times as long as before (0.98-1.04)"
    assert slower.endswith("the limit is 1.1")
    assert unclear == "unclear: 1.08 times as long as before (0.95-1.21), which may be noise"
    assert new == "new: the baseline has no such row"
    assert [figures.ratio(row) for row in gated().rows][2:] == ["1.08x (0.95–1.21)", ""]
