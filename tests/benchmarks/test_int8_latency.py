"""The benchmark of int8 beside float: a real network through all targets, and what its page counts."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import int8_latency
from fixtures import samples


def test_a_network_has_a_figure_for_each_target_and_number_of_threads(tmp_path: Path) -> None:
    rows = list(int8_latency.measure(samples.GLYPHS, tmp_path, seconds=0.1))
    assert [(row["target"], row["threads"]) for row in rows] == [
        ("ort", 1),
        ("ort", 2),
        ("tflite", 1),
        ("tflite", 2),
    ]
    for row in rows:
        assert 0 < row["low"] <= row["speed"] <= row["high"]
        assert row["float_ms"] > 0
    made = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.is_file()}
    int8_latency.make(samples.GLYPHS, tmp_path)  # what is there is kept
    assert made == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.is_file()}


def test_a_network_counts_as_slower_where_its_interval_ends_below_1(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    figures = {"a": (0.7, 0.6, 0.8), "b": (0.9, 0.8, 1.1), "c": (2.0, 1.9, 2.1)}
    with file.open("w") as stream:
        stream.write(json.dumps({"machine": "this", "versions": {}}) + "\n")
        for net, (speed, low, high) in figures.items():
            row = {"net": net, "target": "ort", "threads": 1, "speed": speed, "low": low, "high": high}
            stream.write(json.dumps(row) + "\n")
    first, *_, last = int8_latency.page(file)
    assert (
        first
        == "- ort, 1 thread: 0.90 times the float file's speed (median of 3 networks), slower than it on 1"
    )
    assert last == "| c | 2.00 [1.90, 2.10] |  |  |  |"
