"""The results of the conversion benchmark: figures, their medians over models, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.artefacts import Examination, Latency
from benchmarks.figures import Interval
from benchmarks.onnx2tf import BACKENDS

OURS = "onnxport"


@dataclass(frozen=True)
class Conversion:
    """One model converted by one tool, once per round.

    Attributes:
        tool: OURS, or a backend of onnx2tf.
        seconds, cpu_seconds: wall and processor time per round.
        artefact: what the last round made.
        failure: what the tool said where it made nothing.
    """

    key: str
    tool: str
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    artefact: Examination | None = None
    failure: str = ""

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def right(self) -> bool:
        return self.artefact is not None and self.artefact.right


@dataclass(frozen=True)
class Comparison:
    """The latency of our artefact of a model against that of a backend of onnx2tf."""

    key: str
    tool: str
    ours: Examination | None = None
    theirs: Examination | None = None
    latency: Latency | None = None
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours divided by theirs; None unless both are right: the speed of a wrong answer is no figure to beat."""
        if self.latency is None or not (self.ours and self.ours.right and self.theirs and self.theirs.right):
            return None
        return self.latency.ratio.median


@dataclass
class Report:
    """All that a run measured, where, and how busy the machine was (load averages over 1, 5 and 15 minutes)."""

    platform: str
    cores: int | None
    versions: Mapping[str, Mapping[str, str]]
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float] | None = None
    conversions: list[Conversion] = field(default_factory=list)
    latencies: list[Comparison] = field(default_factory=list)

    @property
    def ours_failed(self) -> list[str]:
        """The models of which we made nothing, or something wrong."""
        converted = [entry.key for entry in self.conversions if entry.tool == OURS and not entry.right]
        timed = [entry.key for entry in self.latencies if not (entry.ours and entry.ours.right)]
        return list(dict.fromkeys(converted + timed))

    def summary(self) -> dict[str, dict[str, Any]]:
        """Medians over the models, per tool."""
        parts = (summarize_conversions(self.conversions), summarize_latencies(self.latencies))
        return {
            f"{name}, {kind}": part
            for kind, found in zip(("conversion", "latency"), parts, strict=True)
            for name, part in found.items()
        }

    def write(self, path: Path) -> None:
        """Writes everything as JSON; what is infinite there is null."""
        figures = _finite({"summary": self.summary()} | asdict(self))
        path.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def summarize_conversions(found: Sequence[Conversion]) -> dict[str, dict[str, Any]]:
    """Count right artefacts; per backend, take medians over the models that both tools convert."""
    ours = {entry.key: entry for entry in found if entry.tool == OURS}
    summary: dict[str, dict[str, Any]] = {}
    for tool in (OURS, *BACKENDS):
        entries = [entry for entry in found if entry.tool == tool]
        if entries:
            summary[tool] = {"models": len(entries), "right": sum(entry.right for entry in entries)}
        pairs = [
            (ours[entry.key].median, entry.median)
            for entry in entries
            if tool != OURS and entry.artefact and ours[entry.key].artefact
        ]
        if pairs:
            summary[tool] |= {
                "compared on": len(pairs),
                "its median seconds": median(its for _, its in pairs),
                "our median seconds": median(mine for mine, _ in pairs),
                "median of ours / its": median(mine / its for mine, its in pairs),
            }
    return summary


def summarize_latencies(found: Sequence[Comparison]) -> dict[str, dict[str, Any]]:
    """The median ratio over the models of which both artefacts are right."""
    summary = {}
    for backend in BACKENDS:
        ratios = [entry.ratio for entry in found if entry.tool == backend and entry.ratio is not None]
        if ratios:
            summary[backend] = {
                "compared on": len(ratios),
                "median of ours / its": asdict(Interval.of(ratios)),
            }
    return summary


def summary_lines(report: Report) -> Iterator[str]:
    """The summary as text, a line per tool."""
    for name, figures in report.summary().items():
        yield f"{name}: " + ", ".join(f"{key} {_shown(figure)}" for key, figure in figures.items())


def conversion_table(found: Sequence[Conversion]) -> Table:
    """A row per model and tool."""
    table = _table(
        "Conversion: seconds of the whole command, wall median (all) and processor median",
        ("model", "tool"),
        ("seconds", "CPU", "ours / its", "ops", "transposes", "MB", "error / scale"),
    )
    ours = {entry.key: entry.median for entry in found if entry.tool == OURS}
    for entry in found:
        mine = entry.tool == OURS
        table.add_row(
            entry.key if mine else "",
            entry.tool,
            f"{entry.median:.2f} ({' '.join(f'{seconds:.2f}' for seconds in entry.seconds)})",
            f"{median(entry.cpu_seconds):.2f}",
            "" if mine else f"{ours[entry.key] / entry.median:.2f}",
            *_contents(entry.artefact),
            entry.failure or verdict_on(entry.artefact),
        )
    return table


def latency_table(found: Sequence[Comparison]) -> Table:
    """A row per model and backend."""
    table = _table(
        "Latency: channels-last artefacts, XNNPACK; ms of one run, ratio with its 95 % interval",
        ("model", "against"),
        ("ours", "its", "ours / its", "our ops", "tr.", "its ops", "tr."),
    )
    for entry in found:
        figures = ("", "", "")
        if entry.latency:
            figures = (f"{entry.latency.ours:.2f}", f"{entry.latency.theirs:.2f}", str(entry.latency.ratio))
        table.add_row(
            entry.key,
            entry.tool,
            *figures,
            *_contents(entry.ours)[:2],
            *_contents(entry.theirs)[:2],
            entry.failure or f"ours {verdict_on(entry.ours)}, its {verdict_on(entry.theirs)}",
        )
    return table


def verdict_on(artefact: Examination | None) -> str:
    """Describe an artefact."""
    if artefact is None:
        return "not made"
    if artefact.worst is None:
        return f"DOES NOT RUN: {artefact.refused}"
    if artefact.right:
        return "right"
    if artefact.worst.tensor is None:
        return f"WRONG: nothing has the shape of {artefact.worst.output}"
    return f"WRONG at {artefact.worst.output}"


def _contents(artefact: Examination | None) -> tuple[str, str, str, str]:
    if artefact is None:
        return "", "", "", ""
    error = f"{artefact.worst.relative:.1e}" if artefact.worst else ""
    return str(artefact.operators), str(artefact.transposes), f"{artefact.megabytes:.2f}", error


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title)
    for column in words:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right")
    table.add_column("verdict", overflow="fold", max_width=60)
    return table


def _finite(figures: Any) -> Any:
    """The same, with None for numbers that JSON has not."""
    if isinstance(figures, Mapping):
        return {name: _finite(figure) for name, figure in figures.items()}
    if isinstance(figures, list | tuple):
        return [_finite(figure) for figure in figures]
    return None if isinstance(figures, float) and not math.isfinite(figures) else figures


def _shown(figure: Any) -> str:
    if isinstance(figure, Mapping):
        return str(Interval(**figure))
    return f"{figure:.2f}" if isinstance(figure, float) else str(figure)
