"""The accuracy of int8 files by us and by peers on many trained networks, each judged on samples that none saw.

    python -m benchmarks.int8_accuracy --peer onnxruntime=PYTHON --peer nncf=PYTHON --json figures.jsonl
    python -m benchmarks.int8_accuracy --page figures.jsonl      # the page of what was measured

A peer is an environment of its own, see benchmarks.quantize; tools run at their defaults on the same 16 samples, peers
on a copy that ONNX Runtime's preprocessing made. The scores are on 48 others: classifiers of few classes need many.
`--draws 3` calibrates on three sets of 16 samples, since another set moves some networks by several dB: the page has
medians of what was drawn. A draw of a net and tool that the file has already is left out; its last line counts.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quantizing import cost, peers, scoring
from benchmarks.quantizing.nets import NETS

OURS = "ours"
_SAMPLES, _TESTS = 16, 48  # to calibrate on, and others to score on
_OPTIONS = {OURS: (), "ours-auto": ("--method", "auto")}
_TOOLS = (
    *_OPTIONS,
    *("ort-minmax", "ort-percentile", "ort-entropy"),
    *("nncf", "neural-compressor", "modelopt", "quark"),
)
_SLACK = 0.3  # dB
Row = Mapping[str, Any]
Found = dict[str, dict[str, Row]]  # rows by net and tool


def measure(key: str, tools: Sequence[str], given: Mapping[str, Path], draw: int = 0) -> Iterator[Row]:
    """Quantize a net by each tool, on one draw of samples, and yield what it cost and how accurate it is."""
    net, known = NETS[key], peers.peers(given)
    with tempfile.TemporaryDirectory(prefix="int8-") as temp:
        folder = Path(temp)
        net.write(folder / "calibration", "calibration", _SAMPLES, draw * _SAMPLES)
        tests = net.write(folder / "test", "test", _TESTS)
        reference = scoring.answers(net.path, tests)
        prepared = net.path
        if any(tool in known for tool in tools):
            prepared = peers.prepared(given["onnxruntime"], net.path, folder / "prepared.onnx")
        for tool in tools:
            out = folder / f"{tool}.onnx"
            if tool in _OPTIONS:
                arguments = ("--no-latency", *_OPTIONS[tool])
                spent = cost.quantize(net.path, folder / "calibration", out, arguments)
            else:
                spent = known[tool].quantize(prepared, folder / "calibration", out, _SAMPLES)
            score = scoring.Score(said=spent.said) if spent.said else scoring.score(out, reference, tests)
            yield {
                "net": key,
                "tool": tool,
                "draw": draw,
                "sqnr": score.sqnr,
                "agreement": score.agreement,
                "cpu": spent.cpu,
                "peak": spent.peak,
                "said": score.said,
            }


def read(path: Path) -> dict[str, dict[str, dict[int, Row]]]:
    """Return the rows of a file by net, tool and draw; the last one of a draw counts."""
    found: dict[str, dict[str, dict[int, Row]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = json.loads(line)
        found.setdefault(row["net"], {}).setdefault(row["tool"], {})[row.get("draw", 0)] = row
    return found


def typical(draws: Mapping[int, Row]) -> Row:
    """Return the medians of the draws; a tool that failed on one counts as failing."""
    rows = list(draws.values())
    failed = next((row for row in rows if row["said"]), None)
    figures = ("sqnr", "agreement", "cpu", "peak")
    return failed or rows[0] | {of: statistics.median(row[of] for row in rows) for of in figures}


def page(path: Path) -> Iterator[str]:
    """Yield the lines of the page of a file's rows."""
    found: Found = {
        net: {tool: typical(draws) for tool, draws in rows.items()} for net, rows in read(path).items()
    }
    tools = [tool for tool in _TOOLS if any(tool in rows for rows in found.values())]
    theirs = [tool for tool in tools if tool not in _OPTIONS]
    compared = {
        net: (rows[OURS]["sqnr"], best)
        for net, rows in found.items()
        if OURS in rows and (best := _best(rows, theirs)) is not None and not rows[OURS]["said"]
    }
    leads = [ours - best for ours, best in compared.values()]
    if not leads:
        return
    above = sum(lead > 0 for lead in leads)
    near = sum(-_SLACK <= lead <= 0 for lead in leads)
    yield f"Of {len(leads)} networks, ours is above the best of the others on {above}, within {_SLACK} dB"
    yield f"below it on {near}, and further below on {len(leads) - above - near}. Ours:"
    yield ""
    for tool in tools[1:]:
        pairs = [
            (rows[OURS], rows[tool])
            for rows in found.values()
            if OURS in rows and tool in rows and not (rows[OURS]["said"] or rows[tool]["said"])
        ]
        lead = statistics.median(ours["sqnr"] - its["sqnr"] for ours, its in pairs)
        cpu, peak = (statistics.median(ours[of] / its[of] for ours, its in pairs) for of in ("cpu", "peak"))
        failed = sum(bool(rows[tool]["said"]) for rows in found.values() if tool in rows)
        yield (
            f"- beside {tool}: {lead:+.1f} dB, {cpu:.2f} of its CPU time, {peak:.2f} of its memory (medians of "
            f"{len(pairs)}); it failed on {failed}"
        )
    yield ""
    yield f"| network | {' | '.join(tools)} | ours - best |"
    yield "|---" * (len(tools) + 2) + "|"
    for net, rows in found.items():
        lead = f"{compared[net][0] - compared[net][1]:+.1f}" if net in compared else ""
        yield f"| {net} | {' | '.join(_cell(rows.get(tool)) for tool in tools)} | {lead} |"


def _best(rows: Mapping[str, Row], tools: Sequence[str]) -> float | None:
    values = [rows[tool]["sqnr"] for tool in tools if tool in rows and math.isfinite(rows[tool]["sqnr"])]
    return max(values, default=None)


def _cell(row: Row | None) -> str:
    return "" if row is None else "fails" if row["said"] else f"{row['sqnr']:.1f}"


def record(rows: Iterable[Row], file: Path) -> None:
    """Print rows as they come, and add each to the file as a line of JSON."""
    for row in rows:
        print(*row.values(), file=sys.stderr, flush=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the page, or only print that of what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int8_accuracy", description=__doc__)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), metavar="KEY", default=list(NETS))
    parser.add_argument("--tools", nargs="+", choices=_TOOLS, metavar="TOOL", default=list(_TOOLS))
    parser.add_argument("--draws", type=int, default=1, metavar="N", help="sets of samples to calibrate on")
    parser.add_argument("--again", action="store_true", help="also what the file has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="a line for each net and tool, added")
    parser.add_argument("--page", type=Path, metavar="FILE", help="only the page of such a file")
    options = parser.parse_args(arguments)
    file = options.page or options.json
    if file is None:
        parser.error("--json FILE or --page FILE is needed")
    if not options.page:
        given = {name: Path(python) for name, _, python in (each.partition("=") for each in options.peer)}
        can = {*_OPTIONS, *peers.peers(given)}
        for key in options.nets:
            done = {} if options.again else read(file).get(key, {})
            try:
                for draw in range(options.draws):
                    tools = [each for each in options.tools if each in can and draw not in done.get(each, {})]
                    record(measure(key, tools, given, draw) if tools else (), file)
            except Exception as error:  # a net that cannot be fetched or prepared is told; the others follow
                print(f"{key}: {error}", file=sys.stderr, flush=True)
    print("\n".join(page(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
