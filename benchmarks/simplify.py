"""Compare simplification by onnxport, onnxsim and OnnxSlim: nodes, bytes, time, and whether the result is proven.

    python -m benchmarks.simplify --peer onnxsim=PYTHON --peer onnxslim=PYTHON --json figures.json --write
    python -m benchmarks.simplify --page figures.json       # the page of what was measured

A peer is a separate environment (`python -m venv`, then `pip install onnxsim onnxslim onnxruntime`; one may have
both), at its defaults. Every command is a fresh process on a copy of the model in its own folder; ours is the
installed one with --no-validate, since the peers prove nothing. Tools take turns, round after round. Each result is
then judged by `onnxport validate`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import onnx

from benchmarks.commands import run_command
from fixtures import models

DOCUMENT = Path(__file__).parents[1] / "docs" / "internals" / "benchmarks-simplify.md"
OURS = "onnxport"
PEERS = ("onnxsim", "onnxslim")
# The real models of the fixtures but for sources of other formats and what is made of weights.
_OTHERS = ("light/", "mobilenetv2/", "efficientnet_lite0/", "minilm/")
_ALL = models.keys()
KEYS = tuple(key for key in _ALL if key.endswith(".onnx") and not key.startswith(_OTHERS))

# What a tool does once it is imported: processor seconds of each model, from the file to the graph in memory.
_PREPARED = {
    OURS: """
from pathlib import Path
from onnxport.core.lazy_imports import defer
defer()
from onnxport.formats.model import Model
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.simplification import simplify
def call(path):
    simplify(Model.load(path), OptimizeParams(), Path.cwd(), equivalence=None)
""",
    "onnxsim": "import onnxsim; call = onnxsim.simplify",
    "onnxslim": "import onnxslim; call = onnxslim.slim",
}
_TIMED = """
import json, sys, time
for path in sys.argv[1:]:
    start = time.process_time()
    try:
        call(path)
        found = time.process_time() - start
    except Exception:
        found = None
    print("timed", json.dumps(found), flush=True)
"""


@dataclass
class Figures:
    """A tool's result for a model.

    Attributes:
        nodes: of all graphs, without Constant; `constants` are those.
        bytes: of the file.
        cpu: processor seconds of the whole command, round by round; `inside` those of the call alone.
        verdict: of the judge; empty where nothing was written, and `said` says why.
    """

    model: str
    tool: str
    nodes: int = 0
    constants: int = 0
    bytes: int = 0
    cpu: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    verdict: str = ""
    said: str = ""


def nodes_of(path: Path) -> tuple[int, int]:
    """Count the nodes of a file's graphs without Constant, and the Constant nodes."""
    found = constants = 0
    graphs = [onnx.load(path, load_external_data=False).graph]
    while graphs:
        for node in graphs.pop().node:
            constants += node.op_type == "Constant"
            found += node.op_type != "Constant"
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
    return found, constants


def _environment(folder: Path, tool: str) -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if tool == OURS or not k.startswith("PYTHON")}
    return ours | {"TMPDIR": str(folder)}


def _command(tool: str, python: Path, source: Path, out: Path) -> list[str]:
    beside = str(python.absolute().with_name(tool))
    if tool == OURS:
        return [beside, "optimize", str(source), "-o", str(out), "--no-validate"]
    return [beside, str(source), str(out)]


def inside(keys: Sequence[str], pythons: Mapping[str, Path]) -> dict[tuple[str, str], float]:
    """By model and tool, the processor seconds of the call alone: a tool's process takes all models in a row."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="simplify-") as temp:
        copies = [shutil.copyfile(models.path(key), Path(temp, f"{n}.onnx")) for n, key in enumerate(keys)]
        for tool, python in pythons.items():
            done = subprocess.run(
                [python, "-c", _PREPARED[tool] + _TIMED, *copies],
                cwd=temp,
                env=_environment(Path(temp), tool),
                capture_output=True,
                text=True,
            )
            said = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("timed ")]
            for key, seconds in zip(keys, said, strict=False):
                if seconds != "null":
                    found[key, tool] = float(seconds)
    return found


def measured(key: str, pythons: Mapping[str, Path], rounds: int, *, judge: bool) -> Iterator[Figures]:
    """The figures of a model: as it is, then of every tool."""
    source = models.path(key)
    nodes, constants = nodes_of(source)
    yield Figures(key, "", nodes, constants, source.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="simplify-") as temp:
        found = {tool: Figures(key, tool) for tool in pythons}
        for _ in range(rounds):
            for tool, python in pythons.items():
                _round(found[tool], python, source, Path(temp, tool))
        for tool, figures in found.items():
            out = Path(temp, tool, "out.onnx")
            if out.exists():
                figures.nodes, figures.constants = nodes_of(out)
                figures.bytes = out.stat().st_size
                figures.verdict = _verdict(source, out) if judge else ""
            print(key, tool, figures.nodes, figures.verdict, figures.said, file=sys.stderr, flush=True)
            yield figures


def _round(figures: Figures, python: Path, source: Path, folder: Path) -> None:
    """One run of the whole command on a copy."""
    tool = figures.tool
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy, out = folder / "in.onnx", folder / "out.onnx"
    shutil.copyfile(source, copy)
    environment = _environment(folder, tool)
    run = run_command(_command(tool, python, copy, out), cwd=folder, environment=environment)
    if not run.made or not out.exists():
        figures.said = run.said or "exit 0, but no file"
        return
    figures.cpu.append(run.cpu_seconds)


def _verdict(source: Path, made: Path) -> str:
    """Return the verdict of `onnxport validate`."""
    report = made.with_suffix(".json")
    command = [sys.executable, "-m", "onnxport", "validate", source, made, "--report", report]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True)
    if report.exists():
        return str(json.loads(report.read_text(encoding="utf-8"))["artifacts"][0]["report"]["verdict"])
    return (done.stderr.strip().splitlines() or ["no verdict"])[0][:160]


# ---- the page


def page(record: Mapping[str, Any]) -> str:
    """The whole page in Markdown."""
    rows = [Figures(**each) for each in record["figures"]]
    found: dict[str, dict[str, Figures]] = {}
    for row in rows:
        found.setdefault(row.model, {})[row.tool] = row
    tools = [tool for tool in (OURS, *PEERS) if any(tool in each for each in found.values())]
    return "\n".join([*_head(record, found, tools), *_table(found, tools), *_times(found, tools)]) + "\n"


def _best(figures: Mapping[str, Figures]) -> int | None:
    """The fewest nodes of a peer that is right."""
    return min(
        (figures[tool].nodes for tool in PEERS if tool in figures and figures[tool].nodes), default=None
    )


def _head(
    record: Mapping[str, Any], found: Mapping[str, Mapping[str, Figures]], tools: Sequence[str]
) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    loads = [load[0] for load in record["load"]]
    yield from (
        "# Simplification compared with other tools",
        "",
        "`python -m benchmarks.simplify --write` writes this page; its docstring says how to install the other tools.",
        f"{versions}. {record['cores']} cores, load {min(loads):.1f} to {max(loads):.1f}.",
        "",
    )
    held = [key for key, each in found.items() if (best := _best(each)) is None or each[OURS].nodes <= best]
    yield f"- At most as many nodes as the better of the others: {len(held)} of {len(found)} models."
    for key in found:
        if key not in held:
            each = found[key]
            sizes = ", ".join(
                f"{tool} {each[tool].bytes / each[''].bytes:.2f} times" for tool in tools if tool in each
            )
            yield f"  Not on {key}: {each[OURS].nodes} to {_best(each)}; bytes to the source's: {sizes}."
    for tool in tools:
        of_tool = [each[tool] for each in found.values() if tool in each]
        proven = sum(figures.verdict == "proven" for figures in of_tool)
        failed = [f"{figures.model} ({figures.said[:100]})" for figures in of_tool if figures.said]
        wrong = [f"{f.model} ({f.verdict})" for f in of_tool if f.verdict not in ("", "proven")]
        more = f" Failed: {'; '.join(failed)}." if failed else ""
        more += f" Not proven: {'; '.join(wrong)}." if wrong else ""
        yield f"- {tool}: {proven} of {len(of_tool)} proven.{more}"


def _table(found: Mapping[str, Mapping[str, Figures]], tools: Sequence[str]) -> Iterator[str]:
    yield from (
        "",
        "## Nodes and bytes",
        "",
        "Nodes of all graphs without Constant, with the number of Constant nodes in parentheses; bytes over the",
        "source's.",
        "",
        f"| model | source | {' | '.join(tools)} |",
        f"|---|---|{'---|' * len(tools)}",
    )
    for key, figures in found.items():
        cells = [_nodes(figures.get(tool), figures[""]) for tool in tools]
        yield f"| {key} | {_count(figures[''])} | {' | '.join(cells)} |"


def _count(figures: Figures) -> str:
    return f"{figures.nodes} ({figures.constants})" if figures.constants else str(figures.nodes)


def _nodes(figures: Figures | None, source: Figures) -> str:
    if figures is None or not figures.nodes:
        return "failed"
    wrong = f", {figures.verdict}" if figures.verdict not in ("", "proven") else ""
    return f"{_count(figures)}, {figures.bytes / source.bytes:.2f}{wrong}"


def _times(found: Mapping[str, Mapping[str, Figures]], tools: Sequence[str]) -> Iterator[str]:
    yield from (
        "",
        "## Time",
        "",
        "Processor seconds, medians of rounds: the whole command in a fresh process / the call alone after all",
        "imports. The last columns have our time over the other tool's.",
        "",
        f"| model | {' | '.join(tools)} | {' | '.join(f'to {tool}' for tool in tools[1:])} |",
        f"|---|{'---|' * (2 * len(tools) - 1)}",
    )
    totals: dict[str, list[tuple[float, float]]] = {}
    for key, figures in found.items():
        costs = {tool: _cost(figures.get(tool)) for tool in tools}
        ratios = [_ratio(costs[OURS], costs[tool]) for tool in tools[1:]]
        for tool in tools[1:]:
            ours, theirs = costs[OURS], costs[tool]
            if ours is not None and theirs is not None:
                totals.setdefault(tool, []).append((ours[0] / theirs[0], ours[1] / theirs[1]))
        cells = ["failed" if cost is None else f"{cost[0]:.2f} / {cost[1]:.2f}" for cost in costs.values()]
        yield f"| {key} | {' | '.join(cells)} | {' | '.join(ratios)} |"
    for tool, ratios_of in totals.items():
        whole, inside = (sorted(each) for each in zip(*ratios_of, strict=True))
        fast, fast_inside = (sum(ratio <= 1 for ratio in each) for each in (whole, inside))
        yield from (
            "",
            f"To {tool}: the whole command takes {median(whole):.2f} of its time (median of models; "
            f"{whole[0]:.2f} to {whole[-1]:.2f}), no more on {fast} of {len(whole)}; the call alone "
            f"{median(inside):.2f} ({inside[0]:.2f} to {inside[-1]:.2f}), no more on {fast_inside}.",
        )


def _cost(figures: Figures | None) -> tuple[float, float] | None:
    if figures is None or not figures.cpu or not figures.inside:
        return None
    return median(figures.cpu), median(figures.inside)


def _ratio(ours: tuple[float, float] | None, theirs: tuple[float, float] | None) -> str:
    return "" if ours is None or theirs is None else f"{ours[0] / theirs[0]:.2f} / {ours[1] / theirs[1]:.2f}"


def _versions(pythons: Mapping[str, Path]) -> dict[str, str]:
    ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    found = {}
    for tool, python in pythons.items():
        if tool == OURS:
            continue  # its version does not move between commits
        answer = subprocess.run([python, "-c", ask, tool], capture_output=True, text=True, check=True)
        found[tool] = answer.stdout.strip()
    return found


def measure(options: argparse.Namespace, pythons: Mapping[str, Path]) -> dict[str, Any]:
    """The record of a run: figures, versions and how busy the machine was."""
    record: dict[str, Any] = {
        "versions": _versions(pythons),
        "cores": os.cpu_count(),
        "load": [os.getloadavg()],
        "figures": [],
    }
    alone = [inside(options.models, pythons) for _ in range(options.rounds)]
    for key in options.models:
        found = measured(key, pythons, options.rounds, judge=not options.no_judge)
        for each in found:
            each.inside = [turn[key, each.tool] for turn in alone if (key, each.tool) in turn]
            record["figures"].append(asdict(each))
        record["load"].append(os.getloadavg())
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the page, or only prints that of what was measured; 2 for a peer that it does not know."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simplify", description=__doc__.split("\n")[0])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=", ".join(PEERS))
    parser.add_argument("--models", nargs="+", choices=KEYS, metavar="KEY", default=list(KEYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-judge", action="store_true", help="leave the proofs out")
    parser.add_argument("--json", type=Path, metavar="OUT", help="every figure, anew after each model")
    parser.add_argument("--page", type=Path, metavar="FIGURES", help="only the page of such a file")
    parser.add_argument(
        "--write", action="store_true", help="the page to docs/internals/benchmarks-simplify.md"
    )
    options = parser.parse_args(arguments)
    if options.page:
        record = json.loads(options.page.read_text(encoding="utf-8"))
    else:
        given = {name: Path(python) for name, _, python in (each.partition("=") for each in options.peer)}
        if unknown := sorted(set(given) - set(PEERS)):
            print(f"error: no peer {unknown[0]!r}; there are {', '.join(PEERS)}", file=sys.stderr)
            return 2
        record = measure(options, {OURS: Path(sys.executable), **given})
    text = page(record)
    if options.write:
        DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
