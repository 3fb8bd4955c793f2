"""The content that all forms of a bench show: names of rows, columns of the table, and the best row of each figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from onnxport.bench.report import BenchReport, Delegation, Row, Settings
from onnxport.core.errors import PROVEN
from onnxport.reports import phrases
from onnxport.reports.phrases import text

# Settings in words, in the order of a row's name.
_SETTINGS: Mapping[str, Callable[[object], str]] = {
    "runtime": text,
    "provider": text,
    "threads": lambda value: phrases.count(int(str(value)), "thread"),
    "level": lambda value: f"level {text(value)}",
    "batch": lambda value: f"batch {value}",
}


@dataclass(frozen=True)
class Best:
    """The best row of a figure, such as the fastest."""

    title: str
    label: str
    figure: str
    remark: str


class Bench:
    """A report with names for its rows that tell them apart."""

    def __init__(self, report: BenchReport) -> None:
        self.report = report
        self.rows = report.rows
        self.measured = [row for row in self.rows if row.status == "measured"]
        self.unmeasured = [row for row in self.rows if row.status != "measured"]
        self.has_baseline = any(row.against is not None for row in self.rows)
        paths = list(dict.fromkeys(row.artifact for row in self.rows))
        names = Counter(PurePath(path).name for path in paths)
        self._names = {path: PurePath(path).name for path in paths if names[PurePath(path).name] == 1}

    @cached_property
    def _distinguishing(self) -> tuple[str, ...]:
        """The settings of which some artefact has several values."""
        return tuple(name for name in _SETTINGS if any(len(values) > 1 for values in self._values(name)))

    @cached_property
    def _differing(self) -> tuple[str, ...]:
        """The settings that differ between rows; the artefact's suffix says the runtime."""
        values = {name: set().union(*self._values(name)) - {None} for name in _SETTINGS}
        return tuple(
            name
            for name, found in values.items()
            if name in self._distinguishing or (name != "runtime" and len(found) > 1)
        )

    def _values(self, name: str) -> list[set[object]]:
        found: dict[str, set[object]] = {}
        for row in self.rows:
            found.setdefault(row.artifact, set()).add(getattr(row.settings, name))
        return list(found.values())

    @cached_property
    def shared(self) -> str:
        """The settings that all rows have in common: "1 thread, batch 1"."""
        rest = [name for name in _SETTINGS if name not in self._differing and name != "runtime"]
        found = [set().union(*self._values(name)) - {None} for name in rest]
        return ", ".join(_SETTINGS[name](*values) for name, values in zip(rest, found, strict=True) if values)

    def name(self, row: Row) -> str:
        """Return the artefact's file name; its path where several have this name."""
        return text(self._names.get(row.artifact, row.artifact))

    def settings(self, row: Row) -> str:
        """Return the settings that differ between rows: "xnnpack, 2 threads, batch 8"."""
        return ", ".join(setting_texts(row.settings, self._differing))

    def label(self, row: Row) -> str:
        """Return a name that no other row has: "model.tflite, 2 threads"."""
        return ", ".join((self.name(row), *setting_texts(row.settings, self._distinguishing)))

    @cached_property
    def by_sample(self) -> bool:
        """Return whether rows differ in their batch, so that only times of a sample compare."""
        return len({row.settings.batch or 1 for row in self.measured}) > 1

    def time(self, row: Row) -> float:
        """Return milliseconds of a run, or of a sample where rows differ in their batch."""
        assert row.latency is not None, "only measured rows have a time"
        return row.latency.median / self.samples(row)

    def time_text(self, row: Row) -> str:
        """Return "4.52 ms", or "0.6 ms a sample" where rows differ in their batch."""
        return phrases.duration(self.time(row)) + (" a sample" if self.by_sample else "")

    def samples(self, row: Row) -> int:
        """Return the divisor of a run's time: the batch where rows differ in it."""
        return (row.settings.batch or 1) if self.by_sample else 1

    @cached_property
    def bests(self) -> tuple[Best, ...]:
        """The best row of each figure, where there are several rows."""
        return tuple(self._bests()) if len(self.measured) > 1 else ()

    def _bests(self) -> Iterator[Best]:
        timed = [row for row in self.measured if row.latency is not None]
        if len(timed) > 1:
            ranked = sorted(timed, key=self.time)
            first, last = ranked[0], ranked[-1]
            remark = f"{self.time(last) / self.time(first):.3g}x as fast as the slowest, {self.label(last)}"
            yield Best("fastest", self.label(first), self.time_text(first), remark)
        ready = [(row.load_ms + row.first_ms, row) for row in self.measured if row.load_ms and row.first_ms]
        if len(ready) > 1:
            ms, row = min(ready, key=lambda each: each[0])
            yield Best("fastest start", self.label(row), phrases.duration(ms), "load and first run")
        small, large = (each(self.measured, key=lambda row: row.size) for each in (min, max))
        if small.size != large.size:
            remark = f"{small.size / large.size:.2g} of the largest, {self.name(large)}"
            yield Best("smallest", self.name(small), phrases.human_size(small.size), remark)
        memory = [(row.memory.added, row) for row in self.measured if row.memory is not None]
        if len(memory) > 1:
            added, row = min(memory, key=lambda each: each[0])
            remark = "at the peak, added to the bare process"
            yield Best("least memory", self.label(row), phrases.human_size(added), remark)

    @property
    def _ties(self) -> str:
        """The rows that may be as fast as the fastest: "b.onnx is", "3 others are"; empty where there are none."""
        timed = sorted((row for row in self.measured if row.latency is not None), key=self.time)
        first, *others = [(row, row.latency) for row in timed if row.latency is not None]
        most = first[1].high / self.samples(first[0])
        near = [row for row, latency in others if latency.low / self.samples(row) <= most]
        return f"{self.label(near[0])} is" if len(near) == 1 else f"{len(near)} others are" if near else ""

    @property
    def kind(self) -> str:
        """The page's verdict: of a slower row, one beyond a limit, a failed one, or of rows against the baseline."""
        standings = {row.against.standing for row in self.rows if row.against is not None}
        failed = [row.status for row in self.unmeasured if row.exit_code != PROVEN]
        if "slower" in standings:
            return "slower"
        if any(row.over for row in self.rows):
            return "over budget"
        if failed:
            return failed[0]
        return next((each for each in ("unclear", "kept", "new") if each in standings), "measured")

    @property
    def totals(self) -> str:
        """ "3 artefacts in 7 rows: 6 measured, 1 not here; against the baseline: 1 slower"."""
        artefacts, rows = len({row.artifact for row in self.rows}), len(self.rows)
        statuses = _counts(row.status for row in self.rows)
        standings = _counts(row.against.standing for row in self.rows if row.against is not None)
        in_rows = f" in {phrases.count(rows, 'row')}" if rows != artefacts else ""
        measured = f"{phrases.count(artefacts, 'artefact')}{in_rows}: {statuses}"
        return f"{measured}; against the baseline: {standings}" if standings else measured

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        slower = [self.label(row) for row in self.rows if row.against and row.against.standing == "slower"]
        if slower:
            are = "is" if len(slower) == 1 else "are"
            return f"{phrases.name_list(slower)} {are} slower than the baseline allows"
        if over := [f"{self.label(row)}: {text(said)}" for row in self.rows for said in row.over]:
            return "; ".join(over)
        if not self.measured:
            return "nothing could be measured"
        fastest = next((best for best in self.bests if best.title == "fastest"), None)
        if fastest is not None:
            ties = f"; {self._ties} as fast within the noise" if self._ties else ""
            return f"{fastest.label} is fastest: {fastest.figure}{ties}"
        row = self.measured[0]
        time = phrases.duration(row.latency.median) if row.latency is not None else "not timed"
        return f"{self.label(row)}: {time}"


def _counts(names: Iterator[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).items())


def setting_texts(settings: Settings, names: Sequence[str] = tuple(_SETTINGS)) -> Iterator[str]:
    """Yield a row's settings in words, without those that its runtime does not have."""
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            yield _SETTINGS[name](value)


def accuracy(row: Row) -> str:
    """Return "SQNR 31.2 dB"; empty where it was not measured."""
    if row.accuracy is None:
        return ""
    sqnr = row.accuracy.sqnr
    return "without error" if sqnr == math.inf else f"SQNR {phrases.number(sqnr)} dB"


def interval(row: Row) -> str:
    """Return the interval of the median: "1.21–1.26 ms"."""
    if row.latency is None:
        return ""
    low, high = phrases.duration(row.latency.low), phrases.duration(row.latency.high)
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(f' {unit}')}–{high}"


def time_title(row: Row) -> str:
    """Return all quantiles of a row's times."""
    found = row.latency
    if found is None:
        return ""
    tail = "".join(
        f", {name} {phrases.duration(ms)}" for name in ("p90", "p99") if (ms := getattr(found, name))
    )
    return (
        f"p50 {phrases.duration(found.median)} ({100 * found.confidence:.0f} % confidence: {interval(row)})"
        f"{tail}; {phrases.count(found.runs, 'run')}"
    )


def standing(row: Row) -> str:
    """Return the comparison with the baseline: "slower: 1.17 times the baseline's time (1.13-1.22), limit 1.1"."""
    found = row.against
    if found is None:
        return ""
    return f"{found.standing}: {text(found.said) or ratio(row)}".removesuffix(": ")


def slowness(row: Row) -> str:
    """Return how a row is slower than its baseline allows; empty where it is not."""
    return standing(row) if row.against is not None and row.against.standing == "slower" else ""


def ratio(row: Row) -> str:
    """Return "1.08x (1.05–1.11)"; empty where there is nothing to compare with."""
    found = row.against
    if found is None or found.ratio is None:
        return ""
    spread = "" if found.low is None or found.high is None else f" ({found.low:.2f}–{found.high:.2f})"
    return f"{found.ratio:.2f}x{spread}"


def throughput(row: Row) -> str:
    if row.throughput is None:
        return ""
    return f"{row.throughput:,.0f}/s" if row.throughput >= 1000 else f"{phrases.number(row.throughput)}/s"


def size(row: Row) -> str:
    return phrases.human_size(row.size) if row.size else ""


def peak_memory(row: Row) -> str:
    return phrases.human_size(row.memory.peak) if row.memory else ""


def delegated(row: Row) -> str:
    """Return what delegates took: "TfLiteXNNPackDelegate 539 of 548 nodes, 19 parts"; empty where nothing says it."""
    return "; ".join(map(_delegation, row.delegations))


def _delegation(found: Delegation) -> str:
    name = text(found.delegate)
    if found.nodes is None:
        extent = {"all": "the whole graph", "none": "nothing"}.get(found.extent or "", "a part of the graph")
        return f"{name} {extent}" + (f", {phrases.count(found.kernels, 'part')}" if found.kernels else "")
    parts = "" if found.partitions is None else f", {phrases.count(found.partitions, 'part')}"
    return f"{name} {found.nodes} of {found.of} nodes{parts}"


def _latency(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row.latency is None else phrases.duration(getattr(row.latency, name))


# Column to the text of a row's figure, empty where it has none.
COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "size": size,
    "accuracy": accuracy,
    "p50": _latency("median"),
    "interval": interval,
    "p90": _latency("p90"),
    "p99": _latency("p99"),
    "CPU time": lambda row: "" if row.floor is None else phrases.duration(row.floor.cpu),
    "samples": throughput,
    "first run": lambda row: phrases.duration(row.first_ms),
    "second run": lambda row: phrases.duration(row.second_ms),
    "load": lambda row: phrases.duration(row.load_ms),
    "peak memory": peak_memory,
    "added": lambda row: phrases.human_size(row.memory.added) if row.memory else "",
    "energy": lambda row: "" if row.joules is None else f"{phrases.number(1000 * row.joules)} mJ",
    "delegated": delegated,
    "zipped": lambda row: phrases.human_size(row.compressed) if row.compressed else "",
}


def columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns that are not empty."""
    return [name for name, figure in COLUMNS.items() if any(map(figure, rows))]


def method(report: BenchReport) -> str:
    """Return "100 runs after 10 warm-up runs; inputs: generated; SQNR over 3 sets"."""
    warmup = phrases.count(report.warmup, "warm-up run")
    said = f"{phrases.count(report.runs, 'run')} after {warmup}; inputs: {text(report.inputs)}"
    sets = {row.accuracy.sets for row in report.rows if row.accuracy is not None}
    return f"{said}; SQNR over {phrases.count(max(sets), 'set')}" if sets else said


def machine(report: BenchReport) -> Iterator[tuple[str, str]]:
    """Yield the machine's properties as pairs of a label and its text."""
    found = report.machine
    if found.device:
        yield "device", text(found.device)
    yield "processor", text(found.processor)
    yield "instruction sets", text(found.instruction_sets)
    yield "cores", f"{found.cores:,}"
    yield "memory", phrases.human_size(found.memory)
    yield "system", text(found.system)
    yield "load before", f"{phrases.number(found.load)} programs a core"
    if report.others is not None:
        yield "other programs", f"{phrases.percent(report.others)} of the cores' time meanwhile"
    yield "measured", text(report.created)


def fails(row: Row) -> bool:
    """Return whether the row alone would end the command with another exit code than 0."""
    is_slower = row.against is not None and row.against.standing == "slower"
    return is_slower or bool(row.over) or row.exit_code != PROVEN
