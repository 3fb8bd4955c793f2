"""Rows compared with a baseline: unchanged ones raise no alarm, slower ones do, undecidable ones are unclear.

The figures are real: `busy.json` has the turns of MobileNetV2 and of the same net with more to do (18 % on this
machine), recorded on one thread, on two cores on which other programs came and went. How often the whole gate is
right, `python -m benchmarks.bench_gate` measures.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from onnxport.bench.baseline import Baseline
from onnxport.bench.comparison import Conditions, compare
from onnxport.bench.report import Floor, Row, Settings
from onnxport.bench.statistics import floor_of
from onnxport.core.errors import UsageError
from tests.reports.bench import handmade

CALM = Conditions(pace=0.034, others=0.0)
BUSY = Conditions(pace=0.034, others=0.8)
LIMIT = 1.10


@pytest.fixture(autouse=True)
def of_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def floor(milliseconds: float, *, cores: float = 2.0, noise: float = 0.005, turns: int = 200) -> Floor:
    return Floor(
        wall=milliseconds,
        wall_next=milliseconds * (1 + noise),
        cpu=milliseconds * 0.999,
        cpu_low=milliseconds * (1 - noise),
        cpu_high=milliseconds * (1 + noise),
        cores=cores,
        turns=turns,
    )


def standing(now: Floor, then: Floor, at: Conditions = CALM, was: Conditions = CALM, threads: int = 2) -> str:
    return compare(now, then, at, was, threads=threads).standard(LIMIT).standing


def test_what_took_as_long_is_kept_and_what_took_longer_is_slower() -> None:
    assert standing(floor(5.0), floor(5.0)) == "kept"
    assert standing(floor(5.45), floor(5.0)) == "kept"
    assert standing(floor(5.75), floor(5.0)) == "slower"
    assert standing(floor(1.0), floor(5.0)) == "kept"


def test_noise_that_reaches_down_to_no_change_is_no_alarm() -> None:
    assert standing(floor(5.75, noise=0.2), floor(5.0), threads=1) == "unclear"
    assert standing(floor(5.75), floor(5.0, noise=0.2), threads=1) == "unclear"
    assert standing(floor(9.0, noise=0.2), floor(5.0, noise=0.2), threads=1) == "slower"


def test_cores_used_by_others_are_no_alarm_and_lost_parallelism_is_one() -> None:
    """Both look alike: twice as long on one core instead of two. Whether others were there tells them apart."""
    assert standing(floor(9.0, cores=1.0), floor(5.0), at=BUSY) == "unclear"
    assert standing(floor(9.0, cores=1.0), floor(5.0), at=CALM) == "slower"
    assert standing(floor(9.0, cores=1.0), floor(5.0), at=replace(BUSY, others=None)) == "unclear"


def test_busy_cores_do_not_explain_a_model_that_is_hundreds_of_times_slower() -> None:
    # It has few turns within the time of a bench.
    assert standing(floor(1495.0, cores=0.9, turns=6), floor(5.0), at=BUSY) == "slower"
    assert standing(floor(40.0, cores=0.9), floor(5.0), at=BUSY) == "unclear"


def test_a_baseline_that_never_had_its_cores_hides_no_slowdown_in_silence() -> None:
    found = compare(floor(5.75), floor(9.0, cores=1.0), CALM, BUSY, threads=2).standard(LIMIT)
    assert found.standing == "unclear"
    assert "never had all its cores" in found.said


def test_a_machine_that_is_slower_as_a_whole_slows_no_model() -> None:
    throttled = Conditions(pace=0.034 * 1.2, others=0.0)
    assert standing(floor(6.0), floor(5.0), at=throttled) == "kept"
    assert standing(floor(6.0), floor(5.0), was=throttled) == "slower"
    # Nobody knows whether a model follows the clock all the way: close to the limit is not sure any more.
    assert standing(floor(6.9), floor(5.0), at=throttled, threads=1) == "slower"
    wide = compare(floor(6.9), floor(5.0), throttled, CALM, threads=1)
    narrow = compare(floor(5.75), floor(5.0), CALM, CALM, threads=1)
    assert wide.high / wide.low > narrow.high / narrow.low


def test_a_ratio_above_the_limit_is_never_decided_early() -> None:
    def settled(milliseconds: float, turns: int, noise: float = 0.005) -> bool:
        now = floor(milliseconds, turns=turns, noise=noise)
        return compare(now, floor(5.0), CALM, CALM, threads=1).is_decided(LIMIT)

    assert not settled(5.0, 20)
    assert settled(5.0, 60)
    assert not settled(5.75, 1000)
    assert not settled(5.45, 120, noise=0.03)  # the interval holds the limit


RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("busy.json").read_text())


def recorded(what: str) -> list[tuple[Floor, Conditions]]:
    return [
        (
            floor_of([([t / 1e6 for t in times], [c / 1e6 for c in cpu]) for times, cpu in each["turns"]]),
            Conditions(each["pace"], each["others"]),
        )
        for each in RECORDED
        if each["what"] == what
    ]


def test_recorded_turns_of_an_unchanged_model_raise_no_alarm() -> None:
    pairs = [pair for pair in product(recorded("same"), repeat=2) if pair[0] is not pair[1]]
    assert len(pairs) == 12
    for (now, at), (then, was) in pairs:
        assert compare(now, then, at, was, threads=1).standard(LIMIT).standing == "kept"


def test_recorded_turns_of_a_slower_model_raise_an_alarm() -> None:
    for (now, at), (then, was) in product(recorded("slow"), recorded("same")):
        assert compare(now, then, at, was, threads=1).standard(LIMIT).standing == "slower"


SETTINGS = Settings(runtime="ort", provider="cpu", threads=1, level="all", batch=1)


def row(artifact: str, milliseconds: float = 5.0, **changes: Any) -> Row:
    return handmade.row(artifact, 14.0, milliseconds, settings=SETTINGS, floor=floor(milliseconds), **changes)


def saved(*rows: Row) -> Baseline:
    return Baseline(handmade.report(rows, pace_ms=0.034, others=0.0), Path("b.json"), LIMIT)


def test_rows_meet_by_path_and_by_name_where_that_is_one() -> None:
    one = saved(row("models/net.onnx"), row("other.onnx"))
    assert one.counterpart("./models//net.onnx", SETTINGS) is one.report.rows[0]
    assert one.counterpart("/elsewhere/net.onnx", SETTINGS) is one.report.rows[0]
    two = saved(row("a/net.onnx"), row("b/net.onnx"))
    assert two.counterpart("b/net.onnx", SETTINGS) is two.report.rows[1]
    assert two.counterpart("c/net.onnx", SETTINGS) is None
    assert two.counterpart("b/net.onnx", SETTINGS.model_copy(update={"threads": 2})) is None


def test_a_row_that_the_baseline_lacks_is_new_and_one_that_is_gone_is_named() -> None:
    old = saved(row("a.onnx"), handmade.missing("b.mlpackage", "not here", "no Core ML"))
    found = old.standard(row("c.onnx"), CALM)
    assert found is not None
    assert (found.standing, found.said) == ("new", "the baseline has no such row")
    assert list(old.missing([row("c.onnx")])) == [
        "a.onnx with runtime ort, provider cpu, threads 1, level all, batch 1 is in the baseline, "
        "but was not measured so now"
    ]
    assert list(old.missing([row("a.onnx")])) == []


def test_a_row_without_figures_then_is_new_and_one_without_them_now_has_its_own_reason() -> None:
    crashed = row("a.onnx").model_copy(update={"status": "crashed", "floor": None, "latency": None})
    found = saved(crashed).standard(row("a.onnx"), CALM)
    assert found is not None
    assert (found.standing, found.said) == ("new", "in the baseline it was crashed")
    assert saved(row("a.onnx")).standard(crashed, CALM) is None


def test_a_gate_that_would_compare_nothing_is_refused() -> None:
    old = saved(row("a.onnx"))
    old.check([("a.onnx", SETTINGS), ("b.onnx", SETTINGS)])
    with pytest.raises(UsageError, match="no row that this run measures") as caught:
        old.check([("b.onnx", SETTINGS)])
    assert "a.onnx" in caught.value.why


def test_cpu_time_counts_only_where_wall_times_disagree() -> None:
    """Under load they can be short by a third: with three turns that took the same, those are believed."""
    clocked = floor(5.0).model_copy(update={"cpu": 3.0, "cpu_low": 2.9, "cpu_high": 3.1})
    assert standing(floor(5.0), clocked, threads=1) == "kept"
    disturbed = floor(9.0, noise=0.4).model_copy(update={"cpu": 5.0, "cpu_low": 4.9, "cpu_high": 5.1})
    assert standing(disturbed, floor(5.0), at=BUSY, threads=1) == "kept"
