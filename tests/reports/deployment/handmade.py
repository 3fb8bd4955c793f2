"""Deployments made by hand, with everything that a form has to handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxport.deployment.report import Change, DeploymentReport, Fallback, Placement
from tests.reports.handmade import NASTY


def placement(runtime: str, title: str, extent: str, **changes: Any) -> Placement:
    fields: dict[str, Any] = {
        "runtime": runtime,
        "title": title,
        "how": "estimated",
        "extent": extent,
        "version": "1.24",
        "source": "https://example.org/runtime/operators.md",
        "dated": "2026-05-01",
        "nodes": 106,
        "taken": 106 if extent == "all" else 0,
    }
    return Placement(**fields | changes)


def asked(runtime: str, title: str, extent: str, **changes: Any) -> Placement:
    return placement(runtime, title, extent, **{"how": "asked", "source": "", "dated": "", **changes})


def fallbacks(op: str, why: str, count: int) -> tuple[Fallback, ...]:
    return tuple(Fallback(op=op, node=f"/neck/{op}_{number}", why=why) for number in range(count))


def report(placements: Sequence[Placement], **changes: Any) -> DeploymentReport:
    fields: dict[str, Any] = {
        "command": "inspect",
        "model": "models/face_detection.onnx",
        "format": "onnx",
        "strict": False,
        "placements": tuple(placements),
    }
    return DeploymentReport(**fields | changes)


def whole() -> DeploymentReport:
    """Every extent there is."""
    resize = fallbacks("Resize", "mode is nearest, it takes linear", 2)
    return report(
        [
            asked("ort-cpu", "ONNX Runtime, CPU provider", "all", version="1.27.0"),
            placement(
                "xnnpack",
                "ONNX Runtime, XNNPACK provider",
                "part",
                taken=72,
                partitions=3,
                fallbacks=(
                    *fallbacks("Transpose", "the runtime has no operator Transpose", 26),
                    *resize,
                    *fallbacks("Add", "the runtime has no operator Add", 6),
                ),
                change=Change(
                    said="fix the input's sizes",
                    command="onnxport optimize models/face_detection.onnx --shape input=1,3,640,640",
                    mends=26,
                ),
            ),
            placement(
                "nnapi",
                "ONNX Runtime, NNAPI provider",
                "all",
                partitions=1,
                notes=("it runs on a phone alone",),
            ),
            asked(
                "tract",
                "tract",
                "none",
                version="0.23.9",
                fallbacks=fallbacks("Resize", "the output's size is 40, it computes 39", 1),
            ),
            asked("rten", "RTen", "none", version="0.22", nodes=0, why="opset 26, at most 21"),
            asked("mnn", "MNN", "unknown", version="3.6.1", why="it did not answer within 60 s"),
        ],
        notes=("constant nodes are not counted",),
    )


def strict() -> DeploymentReport:
    return whole().model_copy(update={"strict": True})


def fitting() -> DeploymentReport:
    """A runtime that takes all, as it has to."""
    return report([asked("ort-cpu", "ONNX Runtime, CPU provider", "all")], strict=True)


def crowd() -> DeploymentReport:
    """Eighteen runtimes, each with hundreds of fallbacks of many kinds."""
    names = [f"runtime-{number}" for number in range(18)]
    return report(
        [
            placement(
                name,
                f"A runtime of a long name, no. {number}",
                "part",
                nodes=2000,
                taken=1000 + number,
                partitions=40 + number,
                fallbacks=tuple(
                    Fallback(
                        op=f"Operator{at * (number + 1) % 60}",
                        node=f"/model/encoder/layer.{at}/attention/self/query/op_{at}",
                        why=f"rank {at % 7}, at most {number % 5}",
                    )
                    for at in range(200)
                ),
            )
            for number, name in enumerate(names)
        ]
    )


def hostile() -> DeploymentReport:
    """Names out of files that nobody vouches for."""
    bad = Fallback(op=NASTY, node=NASTY, why=NASTY)
    change = Change(said=NASTY, command=f"onnxport optimize '{NASTY}'", mends=1)
    one = placement(
        "xnnpack", NASTY, "part", fallbacks=(bad,), change=change, source=f"javascript:{NASTY}", why=NASTY
    )
    return report([one], model=f"{NASTY}.onnx", notes=(NASTY,))


REPORTS = {"whole": whole, "strict": strict, "fitting": fitting, "crowd": crowd, "hostile": hostile}
