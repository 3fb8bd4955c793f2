"""`onnxport bench`: a row for everything that was asked for, with figures or with the reason why there are none."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from tests.cli.sandbox import DIGITS, Sandbox
from tests.cli.test_disturbances import children, is_alive, until
from tests.validate.tflite_files import CHAIN, write

# A runtime that dies at one model and never comes back from another.
BROKEN = """
import sys
if any("bench.worker" in word for word in sys.orig_argv):
    import os, signal, time
    from onnxport.bench import worker
    load = worker.Runner.load
    def broken(self, path, settings):
        if path == "crash.onnx":
            os.kill(os.getpid(), signal.SIGSEGV)
        if path == "hang.onnx":
            time.sleep(600)
        return load(self, path, settings)
    worker.Runner.load = broken
"""
QUICK = ("--runs", "2", "--warmup", "1")


@pytest.mark.skipif(sys.platform == "darwin", reason="there Core ML is here")
def test_what_fails_has_its_row_and_the_others_go_on(sandbox: Sandbox) -> None:
    sandbox.patch(BROKEN)
    for name in ("crash.onnx", "hang.onnx"):
        (sandbox.folder / name).write_bytes(DIGITS.read_bytes())
    (sandbox.folder / "no.onnx").write_text("no model")
    (sandbox.folder / "m.mlpackage").mkdir()
    (sandbox.folder / "m.mlpackage" / "Manifest.json").write_text("{}")
    before = sandbox.contents()
    models = ("crash.onnx", "hang.onnx", "no.onnx", "m.mlpackage", "model.onnx")
    outcome = sandbox.run("bench", *models, *QUICK, "--timeout", "10", "--json")
    rows = {row["artifact"]: row for row in outcome.document["rows"]}
    assert {name: (row["status"], row["exit_code"]) for name, row in rows.items()} == {
        "crash.onnx": ("crashed", 6),
        "hang.onnx": ("hung", 6),
        "no.onnx": ("refused", 4),
        "m.mlpackage": ("not here", 0),
        "model.onnx": ("measured", 0),
    }
    assert outcome.code == 6
    assert "signal SIGSEGV" in rows["crash.onnx"]["why"]
    assert "no answer within 10 s" in rows["hang.onnx"]["why"]
    assert "Protobuf parsing failed" in rows["no.onnx"]["why"]
    assert "run this command on macOS" in rows["m.mlpackage"]["why"]
    assert rows["model.onnx"]["latency"]["runs"] >= 2
    assert outcome.stderr.splitlines()[-1] == "exit 6"
    assert sandbox.contents() == before


def test_a_table_of_one_line_a_row_says_what_all_have_in_common(sandbox: Sandbox) -> None:
    write(sandbox.folder / "chain.tflite", CHAIN, "xn", "ym")
    outcome = sandbox.run("bench", "model.onnx", "chain.tflite", *QUICK, "--batch", "1,8", "--threads", "1")
    assert outcome.code == 0, outcome.stderr
    head, columns, *rows = outcome.stdout.splitlines()
    assert (
        head == "1 thread, level all; 2 runs after 1 warm-up run; inputs: generated, seed 0; SQNR over 2 sets"
    )
    assert columns.split()[:2] == ["batch", "size"]
    assert [row.split()[:2] for row in rows] == [
        ["model.onnx", "1"],
        ["model.onnx", "8"],
        ["chain.tflite", "1"],
        ["chain.tflite", "8"],
    ]
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    assert "exact" in rows[0]
    assert outcome.stderr.splitlines()[0] == "read ..."


def test_a_provider_of_another_build_is_named_with_the_line_that_mends_it(sandbox: Sandbox) -> None:
    outcome = sandbox.run("bench", "model.onnx", *QUICK, "--providers", "cpu,tensorrt", "--json")
    here, missing = outcome.document["rows"]
    assert outcome.code == 5
    assert (here["status"], missing["status"]) == ("measured", "not here")
    assert "pip install onnxruntime-gpu" in missing["why"]
    assert here["settings"]["batch"] == 1
    assert here["accuracy"]["sqnr"] == "Infinity"
    assert outcome.stderr.count("error: ") == 1
    assert "error: model.onnx, tensorrt: this ONNX Runtime has no execution provider" in outcome.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="there Core ML is here")
def test_nothing_that_could_be_measured_here_is_what_is_missing(sandbox: Sandbox) -> None:
    (sandbox.folder / "m.mlpackage").mkdir()
    (sandbox.folder / "m.mlpackage" / "Manifest.json").write_text("{}")
    outcome = sandbox.run("bench", "m.mlpackage")
    assert outcome.code == 5
    assert "run this command on macOS" in outcome.stdout
    assert outcome.stderr.splitlines()[-1] == "exit 5"


def test_interrupted_command_ends_all_processes_and_leaves_nothing(sandbox: Sandbox) -> None:
    before = sandbox.contents()
    running = subprocess.Popen(
        sandbox.command("bench", "model.onnx", "--levels", "disable,all", "--runs", "1000000"),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    assert any(line == "measure ...\n" for line in iter(running.stderr.readline, ""))
    born = children(running.pid)
    assert len(born) == 2
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert until(lambda: not any(map(is_alive, born)), 10)
    assert sandbox.contents() == before


def test_inputs_of_the_users_and_a_reference_beside_the_rows(sandbox: Sandbox) -> None:
    np.savez(sandbox.folder / "own.npz", image=np.ones((3, 1, 8, 8), np.float32))
    other = Path("other.onnx")
    (sandbox.folder / other).write_bytes(DIGITS.read_bytes())
    outcome = sandbox.run(
        "bench", "model.onnx", *QUICK, "--inputs", "own.npz", "--reference", str(other), "--json"
    )
    (row,) = outcome.document["rows"]
    assert outcome.document["inputs"] == "the first of own.npz"
    assert row["accuracy"]["reference"] == "other.onnx"
    assert row["accuracy"]["sqnr"] == "Infinity"
    assert row["accuracy"]["sets"] == 2  # of three: no more than timed runs


def test_the_sqnr_is_of_all_sets_and_not_of_the_first(sandbox: Sandbox) -> None:
    """Only the last of three rows is beyond the bound: signal 32, noise 1.5^2 + 2.5^2."""
    header = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 2] x) => (float[n, 2] y)'
    for name, body in (
        ("ref.onnx", "y = Identity(x)"),
        ("cut.onnx", "m = Constant<value = float {1.5}>() y = Min(x, m)"),
    ):
        onnx.save(onnx.parser.parse_model(f"{header} {{ {body} }}"), sandbox.folder / name)
    np.savez(sandbox.folder / "rows.npz", x=np.array([[-1, -2], [1, 1], [3, 4]], np.float32))
    options = ("--runs", "10", "--warmup", "1", "--inputs", "rows.npz", "--reference", "ref.onnx", "--json")
    (row,) = sandbox.run("bench", "cut.onnx", *options).document["rows"]
    assert row["accuracy"]["sets"] == 3
    assert row["accuracy"]["sqnr"] == pytest.approx(10 * np.log10(32 / 8.5))


def test_a_reference_that_answers_something_else_is_said(sandbox: Sandbox) -> None:
    write(sandbox.folder / "other.tflite", CHAIN, "xn", "ym")
    outcome = sandbox.run("bench", "model.onnx", *QUICK, "--reference", "other.tflite", "--json")
    assert outcome.code == 0
    (row,) = outcome.document["rows"]
    assert row["accuracy"] is None
    assert any("no accuracy for model.onnx" in note for note in outcome.document["notes"])


def test_a_row_beyond_a_limit_is_named_with_both_figures(sandbox: Sandbox) -> None:
    outcome = sandbox.run(
        "bench", "model.onnx", *QUICK, "--max-size", "1kB", "--max-latency", "0.001us", "--json"
    )
    assert outcome.code == 1
    (row,) = outcome.document["rows"]
    size, latency = row["size"], row["latency"]["median"]
    assert row["over"] == [
        f"p50 {latency:.4g} ms; --max-latency allows 0.001us",
        f"size {size / 1e6:.4g} MB; --max-size allows 1kB",
    ]
    assert f"error: model.onnx: {row['over'][0]}" in outcome.stderr
    kept = ("--max-size", "1GB", "--max-latency", "60s", "--max-load", "60s", "--max-memory", "100GB")
    assert sandbox.run("bench", "model.onnx", *QUICK, *kept).code == 0


def test_a_limit_without_a_unit_is_wrong_usage(sandbox: Sandbox) -> None:
    outcome = sandbox.run("bench", "model.onnx", "--max-latency", "20")
    assert outcome.code == 2
    assert "give a time such as 20ms" in outcome.stderr
