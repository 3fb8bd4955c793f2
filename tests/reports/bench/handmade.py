"""Benches made by hand, with figures as MobileNetV2 has on two cores, and everything that a form has to handle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxport.bench.report import (
    Accuracy,
    BenchReport,
    Delegation,
    Machine,
    Memory,
    Row,
    Settings,
    Spread,
    Standard,
)
from onnxport.core.errors import CANNOT_CONVERT, MACHINE_FAILED
from tests.reports.handmade import NASTY

MB = 1_000_000


def spread(median: float, tail: float = 1.25) -> Spread:
    return Spread(
        median=median,
        p90=median * (1 + (tail - 1) / 2),
        p99=median * tail,
        least=median * 0.96,
        low=median * 0.99,
        high=median * 1.02,
        confidence=0.97,
        runs=100,
        rounds=(median * 1.01, median, median * 0.99),
    )


def row(artifact: str, size: float, median: float, sqnr: float | None = None, **changes: Any) -> Row:
    tflite = artifact.endswith(".tflite")
    fields: dict[str, Any] = {
        "artifact": artifact,
        "format": artifact.rpartition(".")[2],
        "status": "measured",
        "settings": Settings(
            runtime="tflite" if tflite else "ort",
            provider="xnnpack" if tflite else "cpu",
            threads=1,
            level=None if tflite else "all",
            batch=1,
        ),
        "ran_on": "LiteRT 2.1.6" if tflite else "ONNX Runtime 1.27.0",
        "size": int(size * MB),
        "compressed": int(size * 0.92 * MB),
        "load_ms": median * 2.4,
        "first_ms": median * 1.8,
        "latency": spread(median),
        "throughput": 1000 / median,
        "memory": memory(size, 14 if tflite else 31),
        "accuracy": None
        if sqnr is None
        else Accuracy(reference="mobilenetv2.onnx", sqnr=sqnr, output="logits"),
    }
    return Row(**fields | changes)


def memory(size: float, runtime: float) -> Memory:
    return Memory(
        bare=int(28.4 * MB),
        imported=int((28.4 + runtime) * MB),
        loaded=int((28.4 + runtime + 2.1 * size) * MB),
        peak=int((33.1 + runtime + 2.3 * size) * MB),
    )


def missing(artifact: str, status: str, why: str, exit_code: int = 0) -> Row:
    return Row(
        artifact=artifact,
        format=artifact.rpartition(".")[2],
        status=status,  # type: ignore[arg-type]
        settings=Settings(runtime="coreml", provider="cpu", batch=1),
        size=7 * MB,
        why=why,
        exit_code=exit_code,
    )


def report(rows: Sequence[Row], **changes: Any) -> BenchReport:
    fields: dict[str, Any] = {
        "command": "onnxport bench mobilenetv2.onnx 'out/mobilenetv2 int8.onnx' --report bench.html",
        "created": "2026-11-22T15:40:00+00:00",
        "machine": Machine(
            processor="AMD EPYC 7R13",
            instruction_sets="x86_64 avx2 avx512f avx512_vnni",
            cores=2,
            memory=8_200 * MB,
            system="Linux-6.1.0-x86_64-with-glibc2.36",
            load=0.34,
        ),
        "versions": {"onnxport": "0.1.0", "onnxruntime": "1.27.0", "ai-edge-litert": "2.1.6"},
        "runs": 100,
        "warmup": 10,
        "inputs": "generated, seed 0",
        "rows": tuple(rows),
    }
    return BenchReport(**fields | changes)


def whole() -> BenchReport:
    """Five artefacts that could be measured, and one that could not."""
    return report(
        [
            row("mobilenetv2.onnx", 13.96, 9.41, math.inf),
            row("out/mobilenetv2.ort", 14.1, 9.52, math.inf),
            row("out/mobilenetv2_fp16.onnx", 7.02, 14.8, 58.1),
            row("out/mobilenetv2_int8.onnx", 3.66, 4.52, 24.3),
            row("out/mobilenetv2.tflite", 14.03, 11.2, 128.9),
            row("out/mobilenetv2_int8.tflite", 3.81, 6.1, 23.1),
            missing(
                "out/mobilenetv2.mlpackage",
                "not here",
                "Core ML runs on macOS only: run this command there",
            ),
        ],
        notes=("the machine was busy before: 0.34 programs wanted each core",),
    )


def settings() -> BenchReport:
    """Two artefacts under eight settings each."""

    def each(artifact: str, size: float, median: float, sqnr: float) -> list[Row]:
        made = []
        for threads in (1, 2):
            for level in ("basic", "all"):
                for batch in (1, 8):
                    time = median * batch**0.9 / threads**0.8 * (1.3 if level == "basic" else 1)
                    first = row(artifact, size, round(time, 3), sqnr)
                    under = first.settings.model_copy(
                        update={"threads": threads, "level": level, "batch": batch}
                    )
                    made.append(first.model_copy(update={"settings": under}))
        return made

    return report(
        [*each("mobilenetv2.onnx", 13.96, 9.41, math.inf), *each("mobilenetv2_int8.onnx", 3.66, 4.52, 24.3)]
    )


def gated() -> BenchReport:
    """Beside a baseline: kept, slower, unclear, new."""

    def held(
        standing: str, ratio: float | None, low: float = 0.0, high: float = 0.0, said: str = ""
    ) -> Standard:
        found = {"ratio": ratio, "low": low, "high": high} if ratio is not None else {}
        return Standard(standing=standing, limit=1.1, said=said, **found)  # type: ignore[arg-type]

    return report(
        [
            row(
                "a.onnx",
                14,
                9.4,
                against=held("kept", 1.01, 0.98, 1.04, "1.01 times as long as before (0.98-1.04)"),
            ),
            row(
                "b.onnx",
                7,
                10.9,
                against=held(
                    "slower", 1.17, 1.13, 1.22, "1.17 times as long as before (1.13-1.22), the limit is 1.1"
                ),
            ),
            row(
                "c.onnx",
                5,
                7.1,
                against=held(
                    "unclear",
                    1.08,
                    0.95,
                    1.21,
                    "1.08 times as long as before (0.95-1.21), which may be noise",
                ),
            ),
            row("d.onnx", 3.6, 4.4, against=held("new", None, said="the baseline has no such row")),
        ]
    )


def crowd() -> BenchReport:
    """Forty artefacts."""
    return report(
        [
            row(
                f"build/model_{count}/target-{count % 7}/some_model_int8.onnx",
                1 + count**1.7 / 9,
                2 + (count * 37 % 40) * 1.3,
                None if count % 9 == 0 else 8 + (count * 13 % 55),
            )
            for count in range(40)
        ]
    )


def hostile() -> BenchReport:
    """Names and texts out of files that nobody vouches for; nothing that could be measured."""
    return report(
        [
            row(f"{NASTY}.onnx", 4, 3.0, math.nan, precision=NASTY),
            missing(
                f"x/{NASTY}.tflite", "crashed", f"{NASTY}\nthe process ended by signal 11", MACHINE_FAILED
            ),
            missing(f"y/{NASTY}.tflite", "refused", NASTY, CANNOT_CONVERT),
        ],
        notes=(NASTY,),
        inputs=NASTY,
        command=f"onnxport bench '{NASTY}'",
    )


def device() -> BenchReport:
    """A phone: no floors, no tail of LiteRT's times, and what delegates took."""
    phone = Machine(
        processor="Google Tensor G3",
        instruction_sets="aarch64 asimd asimddp i8mm",
        cores=9,
        memory=7_700 * MB,
        system="Linux-5.15.148-android14-aarch64, Android 16",
        load=0.2,
        device=f"adb:31071FDH2008FK, {NASTY}",
    )
    no_tail = spread(4.1).model_copy(update={"p90": None, "p99": None})
    grown = Memory(bare=0, imported=0, loaded=None, peak=19 * MB)
    took = (
        Delegation(delegate=NASTY, nodes=539, of=548, partitions=19),
        Delegation(delegate="NNAPI", extent="part", kernels=44),
        Delegation(delegate="GPU", extent="none"),
    )
    return report(
        [
            row("m.tflite", 14, 4.1, latency=no_tail, memory=grown, delegations=took),
            row("m.onnx", 14, 9.1, delegations=(Delegation(delegate="QNN", nodes=1, of=3),)),
        ],
        machine=phone,
    )


def nothing() -> BenchReport:
    return report(
        [
            missing(
                "m.mlpackage",
                "hung",
                "it did not answer within 60 s; --timeout allows it more",
                MACHINE_FAILED,
            )
        ]
    )


REPORTS = {
    "whole": whole,
    "settings": settings,
    "gated": gated,
    "device": device,
    "crowd": crowd,
    "hostile": hostile,
    "nothing": nothing,
}
