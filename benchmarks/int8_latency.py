"""The latency of int8 files beside that of the float ones, for every target that runs here.

    python -m benchmarks.int8_latency --json figures.jsonl       # all networks of benchmarks.int8_accuracy, 12 minutes
    python -m benchmarks.int8_latency --page figures.jsonl       # the table of docs/internals/benchmarks-int8.md

Files are made at the defaults on 16 samples, TFLite's for the size of the samples. The float and the int8 file of a
target run in turns, as in our command (bench/session.py); a ratio is one round's, so what slows the machine down slows
both. Core ML runs on macOS alone, so it has no figures here. A network that the file has already is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxport
from benchmarks.int8_accuracy import record
from benchmarks.quantizing.nets import NETS
from onnxport.bench.report import Settings
from onnxport.bench.session import Session, Subject
from onnxport.bench.statistics import median_interval
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.pipelines.environment import instruction_sets, processor, versions

_SAMPLES = 16
_SECONDS = 2.0  # of rounds for a figure,
_ROUNDS, _MOST_ROUNDS = 15, 100  # of which there are so many at least, and at most
_WARM_UP = 3
_RUNTIMES = {"ort": "ort", "tflite": "litert"}
_THREADS = (1, 2)
Row = Mapping[str, Any]
Files = Mapping[str, tuple[Path, Path]]  # the float and the int8 file of a target


def make(key: str, folder: Path) -> tuple[Files, Feeds]:
    """Make the float and int8 files of a network below `folder`, unless they are there; with an input."""
    net = NETS[key]
    samples = folder / "calibration"
    first = net.write(samples, "calibration", _SAMPLES)[0]
    with np.load(first) as arrays:
        feeds = dict(arrays)
    files = {name: folder / name for name in ("int8.onnx", "float.tflite", "int8.tflite")}
    if not all(path.exists() for path in files.values()):
        graph = onnx.load(net.path, load_external_data=False).graph
        shape = {value.name: feeds[value.name].shape for value in graph.input if value.name in feeds}
        onnxport.quantize_model(
            net.path, "int8", files["int8.onnx"], calib=samples, validate=False, latency=False
        )
        for source, made in ((net.path, "float.tflite"), (files["int8.onnx"], "int8.tflite")):
            onnxport.convert_model(source, "tflite", files[made], validate=False, latency=False, shape=shape)
    return {
        "ort": (net.path, files["int8.onnx"]),
        "tflite": (files["float.tflite"], files["int8.tflite"]),
    }, feeds


def measure(key: str, folder: Path, seconds: float = _SECONDS) -> Iterator[Row]:
    """Yield a row for each target and number of threads."""
    files, feeds = make(key, folder)
    for target, pair in files.items():
        for threads in _THREADS:
            yield {
                "net": key,
                "target": target,
                "threads": threads,
                **_times(pair, _RUNTIMES[target], threads, feeds, seconds),
            }


def _times(pair: Sequence[Path], runtime: str, threads: int, feeds: Feeds, seconds: float) -> Row:
    """Return the milliseconds of both files, and the speed of the second over the first with its interval."""

    def feeding(specs: Sequence[TensorSpec]) -> Feeds:
        return {spec.name: feeds[spec.name] for spec in specs}

    settings = Settings(runtime=runtime, threads=threads)
    with Session([Subject(path, settings, feeding) for path in pair]) as session:
        session.load()
        session.feed()
        session.warm_up(_WARM_UP)
        ends = time.monotonic() + seconds
        session.run(lambda each: each.rounds >= (_ROUNDS if time.monotonic() >= ends else _MOST_ROUNDS))
        for trial in session.trials:
            if trial.failure is not None:
                raise trial.failure.error
        before, after = ([statistics.median(turn.times) for turn in trial.turns] for trial in session.trials)
    ratios = [slow / fast for slow, fast in zip(before, after, strict=True)]
    interval = median_interval(ratios)
    return {
        "float_ms": 1000 * statistics.median(before),
        "int8_ms": 1000 * statistics.median(after),
        "speed": statistics.median(ratios),
        "low": interval.low,
        "high": interval.high,
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
    }


def machine() -> Row:
    """Return the facts of this machine and its runtimes that the figures depend on."""
    made_by = versions(("onnxruntime", "ai-edge-litert"))
    return {"machine": f"{processor()}, {instruction_sets()}", "versions": dict(made_by)}


def read(path: Path) -> dict[str, dict[tuple[str, int], Row]]:
    """Return the rows of a file by network, then target and threads; the last one counts."""
    found: dict[str, dict[tuple[str, int], Row]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = json.loads(line)
        if "net" in row:
            found.setdefault(row["net"], {})[row["target"], row["threads"]] = row
    return found


def page(path: Path) -> Iterator[str]:
    """Yield the lines of the section of a file's rows: a summary, then a row for each network."""
    found = read(path)
    columns = [(target, threads) for target in _RUNTIMES for threads in _THREADS]
    for column in columns:
        rows = [each[column] for each in found.values() if column in each]
        if rows:
            slower = sum(row["high"] < 1 for row in rows)
            middle = statistics.median(row["speed"] for row in rows)
            yield (
                f"- {_title(column)}: {middle:.2f} times the float file's speed (median of {len(rows)} networks), "
                f"slower than it on {slower}"
            )
    yield ""
    yield f"| network | {' | '.join(map(_title, columns))} |"
    yield "|---" * (len(columns) + 1) + "|"
    for net, rows_of in found.items():
        yield f"| {net} | {' | '.join(_cell(rows_of.get(column)) for column in columns)} |"


def _title(column: tuple[str, int]) -> str:
    target, threads = column
    return f"{target}, {threads} thread{'s' if threads > 1 else ''}"


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{row['speed']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the section, or only print that of what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int8_latency", description=__doc__)
    parser.add_argument("--nets", nargs="+", choices=list(NETS), metavar="KEY", default=list(NETS))
    parser.add_argument("--seconds", type=float, default=_SECONDS, metavar="S", help="of each figure")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the files here, or take those that are"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="a line for each figure, added")
    parser.add_argument("--page", type=Path, metavar="FILE", help="only the section of such a file")
    options = parser.parse_args(arguments)
    file = options.page or options.json
    if file is None:
        parser.error("--json FILE or --page FILE is needed")
    if not options.page:
        record([machine()], file)
        done = read(file)
        for key in options.nets:
            if key in done:
                continue
            try:
                with tempfile.TemporaryDirectory(prefix="latency-") as temp:
                    folder = Path(temp) if options.keep is None else options.keep / key.replace("/", "-")
                    record(list(measure(key, folder, options.seconds)), file)
            except Exception as error:  # of a net that cannot be fetched or converted; the others follow
                print(f"{key}: {error}", file=sys.stderr, flush=True)
    print("\n".join(page(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
