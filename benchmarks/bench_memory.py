"""Compare the peak memory of `onnxport bench` with that of GNU time: python -m benchmarks.bench_memory

Each of eight real models, as `.onnx` and as our `.tflite`, is measured by the installed command, and by `/usr/bin/time`
around a plain loop in its own process (`%M`, the kernel's maximum resident set). Target: each within 5 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.benching.cases import MODELS, Case, cases

_TARGET = 0.05
_TIME = Path("/usr/bin/time")
RUNS, WARMUP = 20, 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="KEY")
    given = parser.parse_args()
    if not _TIME.exists():
        raise SystemExit(f"{_TIME} is not here: apt-get install time")
    table = Table(title=f"peak resident memory in MB, {given.threads} threads, median of {given.turns} turns")
    for heading in ("model", "onnxport bench", "GNU time", "ratio"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    outside = []
    with cases(given.models, [".onnx", ".tflite"]) as found:
        for case in found:
            ours = statistics.median(_ours(case, given.threads) for _ in range(given.turns))
            theirs = statistics.median(_theirs(case, given.threads) for _ in range(given.turns))
            outside += [case.name] if abs(ours / theirs - 1) > _TARGET else []
            row = [f"{ours / 1e6:.1f}", f"{theirs / 1e6:.1f}", f"{ours / theirs:.3f}"]
            table.add_row(case.name, *row)
            print(case.name, *row, file=sys.stderr)
    console = Console(width=140)
    console.print(table)
    said = f", outside: {', '.join(outside)}" if outside else ""
    console.print(f"{len(found) - len(outside)} of {len(found)} within {_TARGET:.0%}{said}")


def _ours(case: Case, threads: int) -> int:
    done = subprocess.run(case.ours(threads, RUNS, WARMUP), capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["rows"][0]["memory"]["peak"])


def _theirs(case: Case, threads: int) -> int:
    command = [str(_TIME), "-f", "%M", *case.loop(threads, RUNS, WARMUP)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return 1024 * int(done.stderr.split()[-1])


if __name__ == "__main__":
    main()
