"""Quantizing by us and by the peers, side by side in one run: cost, memory, accuracy and speed.

    python -m benchmarks.quantize --peer onnxruntime=PYTHON --peer nncf=PYTHON ... --json figures.json --write
    python -m benchmarks.quantize --page figures.json       # the page of what was measured

A peer is an environment of its own (`python -m venv`, then pip): onnxruntime (with onnx, sympy), nncf (with torch),
neural-compressor (onnx-neural-compressor with prettytable, psutil, scipy), modelopt (nvidia-modelopt[onnx]) or quark
(amd-quark). One that is not given is left out of the tables. Every quantization is a fresh process on a copy of the
model and the same samples (fixtures/samples.py); processor seconds are without imports on both sides, ours are those
of the installed command with --no-validate. Tools take turns, round after round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.quantizing import cost, page, peers, scoring, speed
from benchmarks.quantizing.cost import Cost
from benchmarks.quantizing.figures import OURS, Figures
from benchmarks.quantizing.subjects import SUBJECTS, Subject
from fixtures import models, samples

# A folder of samples, the file to write and how many samples there are, to what it cost.
Quantize = Callable[[Path, Path, int], Cost]

# What we are asked for, by the name in the tables.
OUR_COMMANDS = {
    OURS: (),
    "ours, minmax": ("--method", "minmax", "--no-bias-correction"),
}
OUR_TEXT_COMMANDS = {OURS: (), "ours, dynamic": ("--dynamic",)}
_MEMORY_COUNTS = (16, 256)
_COSTED = (OURS, "ours, minmax", "ort-minmax", "ort-percentile")
_REMEMBERED = (OURS, "ort-minmax")
_TIMED = (OURS, "ort-minmax")
_LATENCIES = 60


@dataclass
class Bench:
    """One subject at work: its samples, its prepared copy for the peers, and the tools.

    Attributes:
        quantizers: by tool.
    """

    subject: Subject
    folder: Path
    tools: Mapping[str, peers.Peer]
    ours: bool
    quantizers: dict[str, Quantize] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = models.path(self.subject.key)
        if self.ours:
            for name, arguments in (OUR_TEXT_COMMANDS if self.subject.text else OUR_COMMANDS).items():
                self.quantizers[name] = self._our(arguments)
        if self.tools:
            python = next(iter(self.tools.values())).python
            prepared = peers.prepared(python, self.model, self.folder / "prepared.onnx")
            for name, peer in self.tools.items():
                if name != "ort-dynamic" or self.subject.text:
                    self.quantizers[name] = self._peer(peer, prepared)

    def _our(self, arguments: Sequence[str]) -> Quantize:
        return lambda calibration, out, count: cost.quantize(self.model, calibration, out, arguments)

    def _peer(self, peer: peers.Peer, prepared: Path) -> Quantize:
        return lambda calibration, out, count: peer.quantize(prepared, calibration, out, count)

    def calibration(self, count: int) -> Path:
        """A folder with so many samples and nothing else: the same for every tool."""
        folder = self.folder / f"calibration-{count}"
        if not folder.exists():
            samples.write(self.subject.key, folder, "calibration", count)
        return folder

    def quantized(self, tool: str, count: int) -> tuple[Cost, Path]:
        """What it cost to quantize on so many samples, and the file."""
        out = self.folder / tool.replace(", ", "-") / "model.onnx"
        out.parent.mkdir(exist_ok=True)
        found = self.quantizers[tool](self.calibration(count), out, count)
        said = f": {found.said}" if found.said else ""
        print(
            f"{self.subject.name}  {tool}  {count} samples  {found.cpu:.1f} s CPU  {found.peak:.0f} MB{said}",
            file=sys.stderr,
        )
        return found, out

    def measured(self, rounds: int, count: int, memory: Sequence[int]) -> Iterator[Figures]:
        """The figures of every tool on this subject."""
        name = self.subject.name
        found = {tool: Figures(name, tool, count) for tool in self.quantizers}
        files: dict[str, Path] = {}
        for turn in range(rounds if self.subject.cost else 1):
            for tool in self.quantizers:
                if turn == 0 or tool in _COSTED:
                    spent, file = self.quantized(tool, count)
                    found[tool].costs.append(spent)
                    if not spent.said:
                        files[tool] = file
        if self.subject.scored:
            tests = samples.write(self.subject.key, self.folder / "test", "test", self.subject.test)
            reference = scoring.answers(self.model, tests)
            for tool, file in files.items():
                found[tool].score = scoring.score(file, reference, tests)
                print(f"{name}  {tool}  {found[tool].score}", file=sys.stderr)
            timed = [tool for tool in _TIMED if tool in files and not found[tool].score.said]
            ratios = speed.speed_ups(tests[0], [self.model, *(files[tool] for tool in timed)], _LATENCIES)
            for tool, ratio in zip(timed, ratios, strict=True):
                found[tool].speed_up = ratio
        for number in memory if self.subject.cost else ():
            for tool in _REMEMBERED:
                if tool in found:
                    found[tool].peaks[str(number)] = self.quantized(tool, number)[0].peak
        yield from found.values()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the page, or only prints that of what was measured; 2 for what it does not know."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantize", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PYTHON", help=", ".join(peers.ENVIRONMENTS)
    )
    parser.add_argument("--models", nargs="+", choices=list(SUBJECTS), metavar="NAME", default=list(SUBJECTS))
    parser.add_argument("--tools", nargs="+", metavar="TOOL", help="only these, of ours and the peers'")
    parser.add_argument("--no-ours", action="store_true", help="the peers only")
    parser.add_argument("--rounds", type=int, default=5, help="of the costs that have a target")
    parser.add_argument("--count", type=int, default=64, help="samples to calibrate on")
    parser.add_argument("--no-memory", action="store_true", help="leave out what 16 and 256 samples take")
    parser.add_argument("--quick", action="store_true", help="one round, 16 samples, no memory")
    parser.add_argument("--json", type=Path, metavar="OUT", help="every figure, anew after each model")
    parser.add_argument("--page", type=Path, metavar="FIGURES", help="only the page of such a file")
    parser.add_argument("--write", action="store_true", help="the page to docs/benchmarks-quantize.md")
    options = parser.parse_args(arguments)
    if options.page:
        record = json.loads(options.page.read_text(encoding="utf-8"))
    else:
        given = {name: Path(python) for name, _, python in (each.partition("=") for each in options.peer)}
        if unknown := sorted(set(given) - set(peers.ENVIRONMENTS)):
            print(
                f"error: no peer {unknown[0]!r}; there are {', '.join(peers.ENVIRONMENTS)}", file=sys.stderr
            )
            return 2
        record = measure(options, given)
    text = page.page(record)
    if options.write:
        page.DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
    return 0


def measure(options: argparse.Namespace, given: Mapping[str, Path]) -> dict[str, Any]:
    """The record of a run: figures, versions and how busy the machine was."""
    tools = {
        tool: peer for tool, peer in peers.peers(given).items() if not options.tools or tool in options.tools
    }
    record: dict[str, Any] = {
        "versions": peers.versions(given),
        "missing": [name for name in peers.ENVIRONMENTS if name not in given],
        "cores": os.cpu_count(),
        "load": [os.getloadavg()],
        "figures": [],
    }
    rounds, count = (1, 16) if options.quick else (options.rounds, options.count)
    memory = () if options.quick or options.no_memory else _MEMORY_COUNTS
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="quantize-") as folder:
            bench = Bench(SUBJECTS[name], Path(folder), tools, not options.no_ours)
            record["figures"] += [asdict(each) for each in bench.measured(rounds, count, memory)]
        record["load"].append(os.getloadavg())
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


if __name__ == "__main__":
    sys.exit(main())
