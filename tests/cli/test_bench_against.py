"""`onnxport bench --against`: exit codes and words, whatever this machine is worth (benchmarks.bench_gate has that)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.sandbox import DIGITS, Sandbox

QUICK = ("--runs", "2", "--warmup", "1", "--threads", "1", "--patience", "0")
TIMES = ("wall", "wall_next", "cpu", "cpu_low", "cpu_high")


@pytest.fixture
def saved(sandbox: Sandbox) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    """Has a baseline in `b.json`, changed as a test wants it."""
    outcome = sandbox.run("bench", "model.onnx", *QUICK, "--json")
    assert outcome.code == 0, outcome.stderr

    def save(change: Callable[[dict[str, Any]], None]) -> None:
        document = json.loads(outcome.stdout)
        change(document)
        (sandbox.folder / "b.json").write_text(json.dumps(document), encoding="utf-8")

    return save


def scaled(factor: float) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        (row,) = document["rows"]
        row["floor"] |= {name: factor * row["floor"][name] for name in TIMES}

    return change


def test_a_row_far_slower_than_then_ends_with_1_and_one_that_is_faster_with_0(
    sandbox: Sandbox, saved: Callable[..., None]
) -> None:
    saved(scaled(0.001))
    outcome = sandbox.run("bench", "model.onnx", *QUICK, "--against", "b.json")
    assert outcome.code == 1
    assert "slower" in outcome.stdout
    assert "note: model.onnx was slower than the limit and was measured again" in outcome.stderr
    assert "error: model.onnx" in outcome.stderr
    assert "times as long as before" in outcome.stderr
    saved(scaled(1000))
    outcome = sandbox.run("bench", "model.onnx", *QUICK, "--against", "b.json", "--json")
    assert outcome.code == 0, outcome.stderr
    assert not [note for note in outcome.document["notes"] if "measured again" in note]
    (row,) = outcome.document["rows"]
    assert (row["against"]["standing"], row["against"]["limit"]) == ("kept", 1.1)


def test_another_machine_is_refused_unless_forced(sandbox: Sandbox, saved: Callable[..., None]) -> None:
    def moved(document: dict[str, Any]) -> None:
        scaled(1000)(document)
        document["machine"]["cores"] += 1000
        document["versions"]["onnxruntime"] = "1.0.0"

    saved(moved)
    command = ("bench", "model.onnx", *QUICK, "--against", "b.json")
    outcome = sandbox.run(*command)
    assert outcome.code == 2
    assert "another machine: the number of cores: " in outcome.stderr
    outcome = sandbox.run(*command, "--force")
    assert outcome.code == 0, outcome.stderr
    assert "note: compared with figures of another machine: the number of cores" in outcome.stderr
    assert "note: onnxruntime was 1.0.0 in the baseline and is" in outcome.stderr


def test_an_earlier_model_runs_beside_the_new_one(sandbox: Sandbox) -> None:
    (sandbox.folder / "old.onnx").write_bytes(DIGITS.read_bytes())
    command = ("bench", "model.onnx", *QUICK, "--against", "old.onnx", "--max-slowdown", "1000", "--json")
    outcome = sandbox.run(*command)
    assert outcome.code == 0, outcome.stderr
    new, old = outcome.document["rows"]
    assert new["against"]["standing"] == "kept"
    assert (old["artifact"], old["against"]) == ("old.onnx", None)


def test_what_cannot_be_compared_is_refused_before_anything_runs(sandbox: Sandbox) -> None:
    (sandbox.folder / "bad.json").write_text("Traceback (most recent call last):\n", encoding="utf-8")
    outcome = sandbox.run("bench", "model.onnx", "--against", "bad.json")
    assert outcome.code == 4
    assert "bad.json is not a report of onnxport bench: it is not JSON" in outcome.stderr
    assert "measure" not in outcome.stderr
