"""The contract of a benchmark tool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onnxport.bench.report import Delegation, Settings
from onnxport.core.arrays import Array
from onnxport.formats.artifact import Format


@dataclass(frozen=True)
class Invocation:
    """One run of a tool: a model, with its inputs beside it, under one set of settings."""

    program: str  # paths on the device
    model: str
    inputs: Mapping[str, tuple[int, ...]]  # input files and shapes, in the model's order
    settings: Settings
    runs: int
    warmup: int
    seconds: float


@dataclass(frozen=True)
class Reading:
    """The figures that a tool printed, in milliseconds and bytes; None where it has none.

    Attributes:
        median: p50; the average where `is_average`.
        loaded, peak: resident memory that `bare` is not part of.
    """

    median: float
    least: float
    runs: int
    load: float | None = None
    first: float | None = None
    p90: float | None = None
    p99: float | None = None
    loaded: int | None = None
    peak: int | None = None
    is_average: bool = False
    delegations: tuple[Delegation, ...] = ()


class Tool(Protocol):
    """A benchmark program of a runtime."""

    name: str
    word: str  # part of the name of every build
    runtime: str  # as in Settings.runtime
    formats: tuple[Format, ...]
    providers: tuple[str, ...]  # the first is the default
    has_levels: bool

    def save(self, arrays: Mapping[str, Array], folder: Path) -> Sequence[str]:
        """Write the inputs as the tool reads them; return the relative names of the files, in order."""

    def command(self, invocation: Invocation) -> list[str]:
        """Return the words of its command."""

    def probe(self, invocation: Invocation) -> list[str] | None:
        """Return the command that only shows which delegate takes which nodes; None where `command` shows it."""

    def read(self, output: str) -> Reading | None:
        """Read the figures of `command`; None where the output has none."""

    def read_delegations(self, output: str) -> tuple[Delegation, ...]:
        """Read which delegate took how many nodes."""


def number(pattern: str, text: str) -> float | None:
    """Return the number that the group of a pattern matches at its first place."""
    found = re.search(pattern.replace("#", r"([-+0-9.eE]+)"), text)
    try:
        return float(found[1]) if found else None
    except ValueError:
        return None
