"""What all forms show of a bench: what its rows are called, the columns of its table, and which row leads in what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from onnxport.bench.report import BenchReport, Row, Settings
from onnxport.core.errors import PROVEN
from onnxport.reports import wording
from onnxport.reports.wording import text

# How each setting is said; in the order of the words.
_SAID: Mapping[str, Callable[[object], str]] = {
    "runtime": lambda value: text(value),
    "provider": lambda value: text(value),
    "threads": lambda value: wording.count(int(str(value)), "thread"),
    "level": lambda value: f"level {text(value)}",
    "batch": lambda value: f"batch {value}",
}


@dataclass(frozen=True)
class Lead:
    """The row that is first in something."""

    what: str
    label: str
    figure: str
    beside: str


class Bench:
    """A report and how its rows are told apart."""

    def __init__(self, report: BenchReport) -> None:
        self.report = report
        self.rows = report.rows
        self.measured = [row for row in self.rows if row.status == "measured"]
        self.missing = [row for row in self.rows if row.status != "measured"]
        self.gated = any(row.against is not None for row in self.rows)
        paths = list(dict.fromkeys(row.artifact for row in self.rows))
        names = Counter(PurePath(path).name for path in paths)
        self._names = {path: PurePath(path).name for path in paths if names[PurePath(path).name] == 1}

    @cached_property
    def _telling(self) -> tuple[str, ...]:
        """The settings of which some artefact has several, and so rows are told apart by."""
        return tuple(name for name in _SAID if any(len(values) > 1 for values in self._values(name)))

    @cached_property
    def _differing(self) -> tuple[str, ...]:
        """Those that are not the same for all; the file's suffix says which runtime it is for."""
        each = {name: set().union(*self._values(name)) - {None} for name in _SAID}
        return tuple(
            name
            for name, found in each.items()
            if name in self._telling or (name != "runtime" and len(found) > 1)
        )

    def _values(self, name: str) -> list[set[object]]:
        """What a setting is, artefact by artefact."""
        seen: dict[str, set[object]] = {}
        for row in self.rows:
            seen.setdefault(row.artifact, set()).add(getattr(row.settings, name))
        return list(seen.values())

    @cached_property
    def shared(self) -> str:
        """The settings that all rows have in common: "1 thread, batch 1"."""
        rest = [name for name in _SAID if name not in self._differing and name != "runtime"]
        found = [set().union(*self._values(name)) - {None} for name in rest]
        return ", ".join(_SAID[name](*values) for name, values in zip(rest, found, strict=True) if values)

    def name(self, row: Row) -> str:
        """The artefact's, as short as it can be told from the others."""
        return text(self._names.get(row.artifact, row.artifact))

    def settings(self, row: Row) -> str:
        """All that are not the same for every row: "xnnpack, 2 threads, batch 8"."""
        return ", ".join(settings_of(row.settings, self._differing))

    def label(self, row: Row) -> str:
        """What tells it from other rows: "model.tflite, 2 threads"."""
        return ", ".join((self.name(row), *settings_of(row.settings, self._telling)))

    @cached_property
    def by_sample(self) -> bool:
        """Whether rows differ in their batch, so that only times of a sample compare."""
        return len({row.settings.batch or 1 for row in self.measured}) > 1

    def time(self, row: Row) -> float:
        """Milliseconds by which rows compare: of a run, or of a sample of it."""
        assert row.latency is not None, "asked of measured rows"
        return row.latency.median / self.samples(row)

    def samples(self, row: Row) -> int:
        """By which times of a run are divided where rows differ in it."""
        return (row.settings.batch or 1) if self.by_sample else 1

    @cached_property
    def leads(self) -> tuple[Lead, ...]:
        """Which row is first in what, where there is a choice."""
        return tuple(self._leads()) if len(self.measured) > 1 else ()

    def _leads(self) -> Iterator[Lead]:
        timed = [row for row in self.measured if row.latency is not None]
        if len(timed) > 1:
            ranked = sorted(timed, key=self.time)
            first, last = ranked[0], ranked[-1]
            unit = " a sample" if self.by_sample else ""
            beside = f"{self.time(last) / self.time(first):.3g}x as fast as the slowest, {self.label(last)}"
            yield Lead("fastest", self.label(first), f"{wording.duration(self.time(first))}{unit}", beside)
        ready = [(row.load_ms + row.first_ms, row) for row in self.measured if row.load_ms and row.first_ms]
        if len(ready) > 1:
            ms, soonest = min(ready, key=lambda each: each[0])
            said = "from the file to the first answer"
            yield Lead("soonest ready", self.label(soonest), wording.duration(ms), said)
        small, large = (each(self.measured, key=lambda row: row.size) for each in (min, max))
        if small.size != large.size:
            beside = f"{small.size / large.size:.2g} of the largest, {self.name(large)}"
            yield Lead("smallest", self.name(small), wording.human_size(small.size), beside)
        held = [(row.memory.added, row) for row in self.measured if row.memory is not None]
        if len(held) > 1:
            added, least = min(held, key=lambda each: each[0])
            beside = "at the peak, beyond the bare process"
            yield Lead("least memory", self.label(least), wording.human_size(added), beside)

    @property
    def rivals(self) -> str:
        """Whom the interval of the fastest row's time does not tell from it: "b.onnx is", "3 others are"."""
        timed = sorted((row for row in self.measured if row.latency is not None), key=self.time)
        first, *others = [(row, row.latency) for row in timed if row.latency is not None]
        most = first[1].high / self.samples(first[0])
        near = [row for row, latency in others if latency.low / self.samples(row) <= most]
        return f"{self.label(near[0])} is" if len(near) == 1 else f"{len(near)} others are" if near else ""

    @property
    def kind(self) -> str:
        """What the page is about in a word: of the rows that failed, else of those beside a baseline."""
        standings = {row.against.standing for row in self.rows if row.against is not None}
        failed = [row.status for row in self.missing if row.exit_code != PROVEN]
        if "slower" in standings:
            return "slower"
        if failed:
            return failed[0]
        return next((each for each in ("unclear", "kept", "new") if each in standings), "measured")

    @property
    def totals(self) -> str:
        """ "3 artefacts, 7 rows: 6 measured, 1 not here; 1 slower"."""
        artefacts = len({row.artifact for row in self.rows})
        stati = Counter(row.status for row in self.rows)
        standings = Counter(row.against.standing for row in self.rows if row.against is not None)
        counted = f"{wording.count(artefacts, 'artefact')}, {wording.count(len(self.rows), 'row')}"
        said = f"{counted}: {', '.join(f'{count} {status}' for status, count in stati.items())}"
        beside = ", ".join(f"{count} {standing}" for standing, count in standings.items())
        return f"{said}; beside the baseline: {beside}" if beside else said

    @property
    def summary(self) -> str:
        """The answer in a sentence."""
        slower = [self.label(row) for row in self.rows if row.against and row.against.standing == "slower"]
        if slower:
            shown, rest = wording.cut(slower, 3)
            more = f" and {rest} more" if rest else ""
            are = "is" if len(slower) == 1 else "are"
            return f"{', '.join(shown)}{more} {are} slower than the baseline allows"
        if not self.measured:
            return "nothing could be measured"
        fastest = next((lead for lead in self.leads if lead.what == "fastest"), None)
        if fastest is not None:
            doubt = f"; {self.rivals} as fast within the noise" if self.rivals else ""
            return f"{fastest.label} is fastest: {fastest.figure}{doubt}"
        row = self.measured[0]
        time = wording.duration(row.latency.median) if row.latency is not None else "not timed"
        return f"{self.label(row)}: {time}"


def settings_of(settings: Settings, names: Sequence[str] = tuple(_SAID)) -> Iterator[str]:
    """A row's settings in words, those that it has."""
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            yield _SAID[name](value)


def accuracy(row: Row) -> str:
    """ "SQNR 31.2 dB"; empty where nobody asked."""
    if row.accuracy is None:
        return ""
    sqnr = row.accuracy.sqnr
    return "without error" if sqnr == math.inf else f"SQNR {wording.number(sqnr)} dB"


def interval(row: Row) -> str:
    """ "1.21–1.26 ms" of the median."""
    if row.latency is None:
        return ""
    low, high = wording.duration(row.latency.low), wording.duration(row.latency.high)
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(f' {unit}')}–{high}"


def standing(row: Row) -> str:
    """ "slower: 1.17 times as long as then (1.13-1.22) where 1.1 is the most"."""
    found = row.against
    if found is None:
        return ""
    return f"{found.standing}: {text(found.said) or ratio(row)}".removesuffix(": ")


def ratio(row: Row) -> str:
    """ "1.08x (1.05–1.11)"; empty where there is nothing to compare with."""
    found = row.against
    if found is None or found.ratio is None:
        return ""
    spread = "" if found.low is None or found.high is None else f" ({found.low:.2f}–{found.high:.2f})"
    return f"{found.ratio:.2f}x{spread}"


def size(row: Row) -> str:
    return wording.human_size(row.size) if row.size else ""


def _of(row: Row, name: str) -> str:
    return "" if row.latency is None else wording.duration(getattr(row.latency, name))


def _rate(row: Row) -> str:
    if row.throughput is None:
        return ""
    return f"{row.throughput:,.0f}/s" if row.throughput >= 1000 else f"{wording.number(row.throughput)}/s"


# Figures of a row, each empty where it has none.
COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "size": size,
    "accuracy": accuracy,
    "p50": lambda row: _of(row, "median"),
    "interval": interval,
    "p90": lambda row: _of(row, "p90"),
    "p99": lambda row: _of(row, "p99"),
    "CPU time": lambda row: "" if row.floor is None else wording.duration(row.floor.cpu),
    "samples": _rate,
    "first run": lambda row: wording.duration(row.first_ms),
    "load": lambda row: wording.duration(row.load_ms),
    "peak memory": lambda row: wording.human_size(row.memory.peak) if row.memory else "",
    "added": lambda row: wording.human_size(row.memory.added) if row.memory else "",
    "energy": lambda row: "" if row.joules is None else f"{wording.number(1000 * row.joules)} mJ",
    "zipped": lambda row: wording.human_size(row.compressed) if row.compressed else "",
}


def columns(rows: Sequence[Row]) -> list[str]:
    """The names of those columns that some row has anything in."""
    return [name for name, told in COLUMNS.items() if any(map(told, rows))]


def measuring(report: BenchReport) -> str:
    """ "100 runs after 10 to warm up, of generated inputs"."""
    runs = wording.count(report.runs, "run")
    return f"{runs} after {report.warmup:,} to warm up; inputs: {text(report.inputs)}"


def machine(report: BenchReport) -> Iterator[tuple[str, str]]:
    """On which it was measured, as pairs of a label and its text."""
    found = report.machine
    yield "processor", text(found.processor)
    yield "instruction sets", text(found.instruction_sets)
    yield "cores", f"{found.cores:,}"
    yield "memory", wording.human_size(found.memory)
    yield "system", text(found.system)
    yield "busy before", f"{wording.number(found.load)} programs a core"
    if report.others is not None:
        yield "others had", f"{wording.percent(report.others)} of the cores' time meanwhile"
    yield "measured", text(report.created)


def fails(row: Row) -> bool:
    """Whether it alone would end the command with another exit code than 0."""
    slower = row.against is not None and row.against.standing == "slower"
    return slower or row.exit_code != PROVEN
