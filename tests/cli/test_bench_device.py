"""`onnxport bench --device`: a phone behind adb, a board behind ssh, and results that were measured elsewhere."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.devices.machines import SERIAL, SSHD, adb, script, sshd, tool
from tests.cli.sandbox import Sandbox
from tests.validate.tflite_files import CHAIN, write

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")
PHONE = ("--device", f"adb:{SERIAL}")


@pytest.fixture
def phone(sandbox: Sandbox) -> Path:
    """The folder of a phone that `sandbox` reaches."""
    sandbox.environment["PATH"], root = adb(sandbox.folder.parent)
    write(sandbox.folder / "m.tflite", CHAIN, "xn", "ym")
    return root


def test_a_phone_measures_tflite_and_onnx(sandbox: Sandbox, phone: Path) -> None:
    litert = tool(sandbox.folder / "benchmark_model", "android_xnnpack")
    ort = tool(sandbox.folder / "onnxruntime_perf_test", "ort_arm")
    outcome = sandbox.run(
        *("bench", "m.tflite", "model.onnx", *PHONE, "--runs", "60", "--threads", "1,4"),
        *("--device-binary", "benchmark_model", "--device-binary", "onnxruntime_perf_test", "--json"),
    )
    assert outcome.code == 0, outcome.stderr
    document = outcome.document
    assert document["machine"]["device"] == f"adb:{SERIAL}, Google Pixel 8"
    assert document["machine"]["processor"] == "Google Tensor G3"
    assert document["machine"]["system"].endswith(", Android 16")
    rows = document["rows"]
    assert [(row["settings"]["runtime"], row["settings"]["threads"]) for row in rows] == [
        ("litert", 1),
        ("litert", 4),
        ("ort", 1),
        ("ort", 4),
    ]
    assert rows[0]["latency"] == {
        "median": 141.25,
        "p90": None,
        "p99": None,
        "least": 140.07,
        "low": 141.25,
        "high": 141.25,
        "confidence": 0.96875,
        "runs": 150,
        "rounds": [141.25] * 6,
    }
    assert rows[0]["memory"] == {"bare": 0, "imported": 0, "loaded": 56922157, "peak": 76976173}
    assert rows[0]["delegations"][0] | {"extent": None, "kernels": None} == {
        "delegate": "TfLiteXNNPackDelegate",
        "nodes": 539,
        "of": 548,
        "partitions": 19,
        "extent": None,
        "kernels": None,
    }
    assert rows[0]["size"] == (sandbox.folder / "m.tflite").stat().st_size
    assert (rows[2]["load_ms"], rows[2]["first_ms"], rows[2]["latency"]["p99"]) == (217.93, 196.0, 101.52)
    assert rows[2]["settings"]["batch"] == 1
    first, *_ = Path(f"{litert}.log").read_text().splitlines()
    assert "--num_runs=10 " in first
    assert len(Path(f"{ort}.log").read_text().splitlines()) == 12
    assert list(phone.iterdir()) == []  # what was pushed is gone


def test_the_table_names_the_device_and_what_its_delegate_took(sandbox: Sandbox, phone: Path) -> None:
    tool(sandbox.folder / "benchmark_model", "android_gpu")
    outcome = sandbox.run(
        *("bench", "m.tflite", *PHONE, "--device-binary", "benchmark_model", "--providers", "gpu,cpu"),
        *(
            "--device-arguments",
            "--gpu_precision_loss_allowed=false",
            "--report",
            "b.html",
            "--report",
            "b.md",
        ),
    )
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.startswith(f"adb:{SERIAL}, Google Pixel 8; ")
    assert "GPU the whole graph" in outcome.stdout
    assert "p50 is the median of the averages" in outcome.stderr
    called = (sandbox.folder / "benchmark_model.log").read_text().splitlines()
    assert len(called) == 12
    assert all(line.endswith("--gpu_precision_loss_allowed=false") for line in called)
    assert sum("--use_gpu=true" in line for line in called) == 6
    for name in ("b.html", "b.md"):
        assert "GPU the whole graph" in (sandbox.folder / name).read_text(encoding="utf-8")


def test_a_limit_of_what_the_tool_does_not_print_is_not_kept(sandbox: Sandbox, phone: Path) -> None:
    tool(sandbox.folder / "benchmark_model", "android_gpu")
    same = ("bench", "m.tflite", *PHONE, "--device-binary", "benchmark_model")
    assert sandbox.run(*same, "--max-latency", "200ms", "--max-load", "1s").code == 0
    outcome = sandbox.run(*same, "--max-memory", "50MB")
    assert outcome.code == 1
    assert "runtime and model was not measured; --max-memory allows 50MB" in outcome.stderr


def test_what_fails_there_has_its_row_and_the_others_go_on(sandbox: Sandbox, phone: Path) -> None:
    fails = 'case "$*" in *m.tflite*) echo "ERROR: Op 117 is unknown" >&2; exit 1;; *slow*) sleep 60;; esac'
    tool(sandbox.folder / "benchmark_model", "board_cpu", fails)
    for name in ("good.tflite", "slow.tflite"):
        write(sandbox.folder / name, CHAIN, "xn", "ym")
    (sandbox.folder / "broken.tflite").write_bytes(b"no model")
    models = ("m.tflite", "slow.tflite", "broken.tflite", "good.tflite")
    outcome = sandbox.run(
        "bench", *models, *PHONE, "--device-binary", "benchmark_model", "--timeout", "2", "--json"
    )
    rows = {row["artifact"]: row for row in outcome.document["rows"]}
    assert {name: (row["status"], row["exit_code"]) for name, row in rows.items()} == {
        "m.tflite": ("refused", 4),
        "slow.tflite": ("hung", 6),
        "broken.tflite": ("refused", 4),
        "good.tflite": ("measured", 0),
    }
    assert "Op 117 is unknown" in rows["m.tflite"]["why"]
    assert "no answer within 2 s" in rows["slow.tflite"]["why"]
    assert outcome.code == 6


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--device", "adb:OTHER", "--device-binary", "benchmark_model"), 5, "device 'OTHER' not found"),
        (("--device", "usb:1", "--device-binary", "benchmark_model"), 2, "give adb:SERIAL or ssh:HOST"),
        (("--device", "ssh:-oProxyCommand=x", "--device-binary", "benchmark_model"), 2, "ssh:HOST"),
        (PHONE, 2, "give a build of benchmark_model"),
        (("--device-binary", "benchmark_model"), 2, "--device-binary needs --device"),
        (
            (*PHONE, "--device-binary", "benchmark_model", "--providers", "cuda"),
            2,
            "they have coreml, cpu, gpu",
        ),
        ((*PHONE, "--device-binary", "benchmark_model", "--runtimes", "litert"), 2, "no effect on a device"),
    ],
)
def test_a_wrong_device_or_tool_is_said(
    sandbox: Sandbox, phone: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    tool(sandbox.folder / "benchmark_model", "board_cpu")
    outcome = sandbox.run("bench", "m.tflite", *options)
    assert outcome.code == code, outcome.stderr
    assert said in outcome.stderr


def test_no_adb_is_said(sandbox: Sandbox) -> None:
    write(sandbox.folder / "m.tflite", CHAIN, "xn", "ym")
    sandbox.environment["PATH"] = str(Path(sys.executable).parent)
    outcome = sandbox.run("bench", "m.tflite", *PHONE, "--device-binary", "x")
    assert outcome.code == 5
    assert "platform-tools" in outcome.stderr


def test_a_device_against_its_own_earlier_bench_and_against_an_earlier_model(
    sandbox: Sandbox, phone: Path
) -> None:
    """The later tool is slower: 141 ms instead of 119 ms."""
    tool(sandbox.folder / "benchmark_model", "android_gpu")
    same = ("bench", "m.tflite", *PHONE, "--device-binary", "benchmark_model")
    assert sandbox.run(*same, "--report", "b.json").code == 0
    outcome = sandbox.run(*same, "--against", "b.json", "--json")
    assert (outcome.code, outcome.document["rows"][0]["against"]["standing"]) == (0, "kept")
    tool(sandbox.folder / "benchmark_model", "android_xnnpack")
    outcome = sandbox.run(*same, "--against", "b.json")
    assert outcome.code == 1
    assert "1.18 times as long as before" in outcome.stderr
    assert "note: m.tflite was slower than the limit and was measured again" in outcome.stderr
    assert "benchmark_model was" in outcome.stderr  # another build of the tool
    write(sandbox.folder / "old.tflite", CHAIN, "xn", "ym")
    outcome = sandbox.run(*same, "--against", "old.tflite", "--json")
    assert outcome.code == 0, outcome.stderr
    assert [row["against"] is None for row in outcome.document["rows"]] == [False, True]


def results(**row: Any) -> str:
    return json.dumps(
        {"results_version": 1, "machine": "Google Pixel 8", "rows": [{"artifact": "m.tflite"} | row]}
    )


def test_results_measured_elsewhere_are_a_baseline(sandbox: Sandbox, phone: Path) -> None:
    tool(sandbox.folder / "benchmark_model", "android_xnnpack")
    same = ("bench", "m.tflite", *PHONE, "--device-binary", "benchmark_model", "--against", "r.json")
    place = sandbox.folder / "r.json"
    place.write_text(results(provider="xnnpack", p50_ms=140.0))
    outcome = sandbox.run(*same, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.document["rows"][0]["against"]["ratio"] == 1.009
    place.write_text(results(times_ms=[99, 100, 101] * 7))
    outcome = sandbox.run(*same)
    assert outcome.code == 1
    assert "1.41 times as long as before" in outcome.stderr
    place.write_text(results(provider="gpu", p50_ms=1.0))
    outcome = sandbox.run(*same)
    assert outcome.code == 2
    assert "has no row that this run measures" in outcome.stderr
    place.write_text(results(p50_ms=140.0).replace("Pixel 8", "Pixel 9"))
    outcome = sandbox.run(*same)
    assert outcome.code == 2
    assert "it was Google Pixel 9, this is adb:" in outcome.stderr
    assert sandbox.run(*same, "--force").code == 0
    place.write_text(results(p50_ms=140.0).replace("Google Pixel 8", ""))
    assert "does not say on which machine" in sandbox.run(*same).stderr
    place.write_text(results())
    outcome = sandbox.run(*same)
    assert outcome.code == 4
    assert "give p50_ms, or times_ms" in outcome.stderr


@pytest.mark.skipif(
    SSHD is None and not os.environ.get("CI"), reason="no sshd: apt-get install openssh-server (.ci/sshd)"
)
def test_a_board_behind_ssh(sandbox: Sandbox) -> None:
    with sshd(sandbox.folder.parent / "sshd") as path:
        sandbox.environment["PATH"] = path
        tools = sandbox.folder / "ort"
        tool(tools / "onnxruntime_perf_test", "ort_arm", 'cat "$LD_LIBRARY_PATH/libonnxruntime.so" >&2')
        script(tools / "libonnxruntime.so", "a library beside it\n")
        outcome = sandbox.run(
            *("bench", "model.onnx", "--device", "ssh:board", "--device-binary", "ort", "--runs", "30"),
            *("--providers", "xnnpack", "--batch", "4", "--json"),
        )
        assert outcome.code == 0, outcome.stderr
        (row,) = outcome.document["rows"]
        assert outcome.document["machine"]["device"] == "ssh:board"
        assert (row["settings"]["batch"], row["latency"]["median"]) == (4, 99.509)
        assert row["throughput"] == pytest.approx(4000 / 99.509, rel=1e-4)
        probe, *timed = Path(f"{tools / 'onnxruntime_perf_test'}.log").read_text().splitlines()
        assert " -v -n " in probe
        assert len(timed) == 6
        folder = Path(timed[0].split()[-2]).parents[1]
        assert folder.name.startswith("onnxport-")
        assert not folder.exists()
        outcome = sandbox.run("bench", "model.onnx", "--device", "ssh:127.0.0.1:1", "--device-binary", "ort")
        assert outcome.code == 5
        assert "ssh:127.0.0.1:1 does not answer" in outcome.stderr
