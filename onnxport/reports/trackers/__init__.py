"""Experiment trackers that reports go to: `--report mlflow:EXPERIMENT`, `--report wandb:PROJECT`.

Each artefact is a run of the tracker, with its figures as metrics, what it was made from as parameters, and the whole
report beside them. Where the tracker's server is, and who may use it, the tracker's own variables say.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from onnxport.core.errors import MachineError, MissingDependencyError, UsageError, printable
from onnxport.core.urls import shown

if TYPE_CHECKING:
    from onnxport.reports.trackers.entries import Entry

_TARGET = re.compile(r"(mlflow|wandb):(?!//)(.*)")
_TITLES = {"mlflow": "MLflow", "wandb": "Weights & Biases"}


@dataclass(frozen=True)
class Tracker:
    """A tracker, and the name of its experiment or project."""

    kind: str
    project: str


class Log(Protocol):
    """The modules of this package that speak to a tracker."""

    def require(self) -> None:
        """Import the tracker's library (ImportError)."""

    def log(self, project: str, entry: Entry, document: str) -> None:
        """Make a run of the tracker."""


def tracker_of(path: Path) -> Tracker | None:
    """Return the tracker that a path of `--report` means; None for a file or folder."""
    found = _TARGET.fullmatch(str(path))
    return None if found is None else Tracker(found[1], found[2])


@contextmanager
def tracking(tracker: Tracker, subject: str) -> Iterator[Any]:
    """Yield a function that takes the report; it is logged when the block ends without an error.

    Raises:
        UsageError: the tracker has no name, or takes no report of `subject`; before the work.
        MissingDependencyError: its library is not installed; before the work.
        MachineError: it could not be reached, or refuses the runs; the work is done.
    """
    from onnxport.reports.trackers.entries import SUBJECTS, entries_of

    if not tracker.project:
        kind = tracker.kind
        raise UsageError(f"--report {kind}: has no name", fix=f"give one, as {kind}:digits")
    if subject not in SUBJECTS:
        what = f"{_TITLES[tracker.kind]} takes no report of {subject}"
        raise UsageError(what, fix="give a file, as report.json")
    module: Log = importlib.import_module(f"{__name__}.{tracker.kind}_log")
    try:
        module.require()
    except ImportError as error:
        fix = f"run: {sys.executable} -m pip install 'onnxport[{tracker.kind}]'"
        raise MissingDependencyError(
            f"{_TITLES[tracker.kind]} cannot be imported", why=printable(error), fix=fix
        ) from error
    reports: list[Any] = []
    yield reports.append
    try:
        for report in reports:
            document = shown(report.model_dump_json(indent=2))
            for entry in entries_of(subject, report):
                module.log(tracker.project, entry, document)
    except Exception as error:
        raise MachineError(
            f"{_TITLES[tracker.kind]} did not take the report; everything else is done",
            why=printable(str(error).partition("\n")[0]),
            fix="see its variables, as MLFLOW_TRACKING_URI, WANDB_BASE_URL or WANDB_MODE=offline",
        ) from error
