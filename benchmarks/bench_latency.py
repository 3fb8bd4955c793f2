"""Compare the warm latency of `onnxport bench` with that of plain loops under the same settings.

    python -m benchmarks.bench_latency [--threads 2] [--tools]

Each of eight real models, as `.onnx` and as our `.tflite`, is measured by the installed command and by a plain loop of
`session.run` or `invoke`, in fresh processes that take turns. The ratio of a turn is ours over the loop's; a model's
ratio is the median of its turns. Target: each within 5 %. `--tools` adds the tools in the runtimes' wheels:
`litert-benchmark`, and `onnxruntime_test`, which uses all cores and prints the mean.

The target is for a quiet machine. On a busy one, compare the fastest runs of all turns instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.benching.cases import MODELS, Case, cases

_TARGET = 0.05
WARMUP = 20


@dataclass(frozen=True)
class Turn:
    """Milliseconds by the command, by the loop and by the tool: of the run in the middle, and of the fastest."""

    ours: float
    loop: float
    our_least: float
    loop_least: float
    tool: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--formats", nargs="+", default=[".onnx", ".tflite"], choices=[".onnx", ".tflite"])
    parser.add_argument("--tools", action="store_true", help="the runtimes' own tools beside the loops")
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="KEY")
    given = parser.parse_args()
    table = Table(title=f"milliseconds, {given.threads} threads, median of {given.turns} turns")
    for heading in ("model", "bench", "loop", "ratio", "lowest", "highest", "of fastest", "tool", "ratio"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    outside = []
    with cases(given.models, given.formats) as found:
        for case in found:
            tool = _tool(case) if given.tools else None
            turns = [_turn(case, given.threads, given.runs, tool, bool(n % 2)) for n in range(given.turns)]
            ratios = [turn.ours / turn.loop for turn in turns]
            outside += [case.name] if abs(median(ratios) - 1) > _TARGET else []
            row = [
                *(
                    f"{median([turn.ours for turn in turns]):.4g}",
                    f"{median([turn.loop for turn in turns]):.4g}",
                ),
                *(f"{each:.3f}" for each in (median(ratios), min(ratios), max(ratios))),
                f"{min(turn.our_least for turn in turns) / min(turn.loop_least for turn in turns):.3f}",
            ]
            if all(turn.tool for turn in turns):
                row.append(f"{median([turn.tool for turn in turns]):.4g}")
                row.append(f"{median([turn.ours / turn.tool for turn in turns]):.3f}")
            table.add_row(case.name, *row)
            print(case.name, *row, file=sys.stderr)
    console = Console(width=140)
    console.print(table)
    said = f", outside: {', '.join(outside)}" if outside else ""
    console.print(
        f"{len(found) - len(outside)} of {len(found)} within {_TARGET:.0%}{said}; {os.cpu_count()} cores"
    )


def _turn(
    case: Case, threads: int, runs: int, tool: Callable[[int, int], float] | None, reverse: bool
) -> Turn:
    """One process of each, one after the other."""
    by: dict[str, Callable[[], Any]] = {
        "ours": lambda: json.loads(_said(case.ours(threads, runs, WARMUP)))["rows"][0]["latency"],
        "loop": lambda: tuple(map(float, _said(case.loop(threads, runs, WARMUP)).split())),
        "tool": lambda: tool(threads, runs) if tool else 0.0,
    }
    found = {name: by[name]() for name in (reversed(by) if reverse else by)}
    ours, loop = found["ours"], found["loop"]
    return Turn(ours["median"], loop[0], ours["least"], loop[1], found["tool"])


def _tool(case: Case) -> Callable[[int, int], float]:
    return (
        (lambda t, n: _by_litert(case, t, n))
        if case.path.suffix == ".tflite"
        else (lambda t, n: _by_ort(case, t, n))
    )


def _by_litert(case: Case, threads: int, runs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = [f"--num_threads={threads}", f"--num_runs={runs}", f"--warmup_runs={WARMUP}"]
        _said([_script("litert-benchmark"), f"--model={case.path}", *options, f"--result_json={report}"])
        return float(json.loads(report.read_text())["latency"]["median_ms"])


def _by_ort(case: Case, threads: int, runs: int) -> float:
    if case.shape:
        return 0.0  # it makes every open size 1
    if threads != os.cpu_count():
        return 0.0  # it takes all
    said = _said([_script("onnxruntime_test"), str(case.path), str(runs)])
    return float(said.partition("avg latency:")[2].split()[0])


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


if __name__ == "__main__":
    main()
