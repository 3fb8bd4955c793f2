"""Reports: each subject has a folder, each of its forms a module there; the modules beside the folders are shared.

`FORMS` is the registry. Forms other than the terminal's are files that `--report` writes, chosen by their suffix.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from onnxport.core.errors import USAGE, OnnxportError, UsageError
from onnxport.core.urls import shown
from onnxport.formats.artifact import Staging, writing

# Takes the report of the subject, such as a RunReport or a PipelineReport.
Save = Callable[[Any], None]

# Suffix of a report's file to its form.
FORMATS: Mapping[str, str] = {
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".sarif": "sarif",
    ".xml": "junit",
}

# Subject to its forms. A bench finds nothing that SARIF could locate; a profile and a comparison judge nothing.
FORMS: Mapping[str, frozenset[str]] = {
    "run": frozenset({"terminal", "html", "json", "markdown", "sarif", "junit"}),
    "pipeline": frozenset({"terminal", "html", "json", "markdown", "sarif", "junit"}),
    "bench": frozenset({"terminal", "html", "json", "markdown", "junit"}),
    "profile": frozenset({"terminal", "html", "json", "markdown"}),
    "deployment": frozenset({"terminal", "html", "json", "markdown", "sarif", "junit"}),
    "comparison": frozenset({"terminal", "html", "json"}),
}

_OPTION = "--report"


# The forms with `failure(error, command)`, for a run that failed.
_TELL_OF_FAILURES = ("junit", "markdown")


class View(Protocol):
    """A form that becomes a file."""

    def view(self, report: Any) -> str: ...


def form_module(subject: str, form: str) -> View:
    """Import the module of a form; JSON looks the same for every subject."""
    module: View = import_module(f"{__name__}.{'document' if form == 'json' else f'{subject}.{form}'}")
    return module


@contextmanager
def saving(paths: Sequence[Path], command: str = "", subject: str = "run") -> Iterator[Save]:
    """Yield a function that stages a report of `subject`; the files appear when the block ends without an error.

    After an error in the block only JUnit XML and Markdown are written, which can tell of it, and none after a
    UsageError, since nothing ran. Wrong paths are found on entry, before the work. A full disk is found when the
    report is staged, which the runner does before an artefact takes its place.

    Raises:
        UsageError: the subject has no form of this suffix, a path is given twice, or the folder does not exist.
        MissingDependencyError: a path means an experiment tracker that is not installed.
        MachineError: the folder cannot be written to, or a tracker does not take the report.
    """
    from onnxport.reports.trackers import tracker_of, tracking

    with ExitStack() as stack:
        # Trackers first: they are told last, when the files are in their places.
        trackers = [found for path in paths if (found := tracker_of(path)) is not None]
        saves: list[Save] = [stack.enter_context(tracking(each, subject)) for each in trackers]
        files = [path for path in paths if tracker_of(path) is None]
        saves += [
            stack.enter_context(_saving(path, _form(path, subject), subject, command)) for path in files
        ]
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError(f"{_OPTION} names one file twice", fix="give each form a file of its own")

        def save(report: Any) -> None:
            for each in saves:
                each(report)

        yield save


def _form(path: Path, subject: str) -> str:
    form = FORMATS.get(path.suffix.lower())
    if form not in FORMS[subject] or form is None:
        known = ", ".join(suffix for suffix, each in FORMATS.items() if each in FORMS[subject])
        raise UsageError(f"no report can be written to {path}", fix=f"known suffixes are {known}")
    return form


@contextmanager
def _saving(path: Path, form: str, subject: str, command: str) -> Iterator[Save]:
    view = form_module(subject, form)
    with Staging(path, _OPTION) as staging:
        staged = staging.folder / path.name

        def save(report: Any) -> None:
            from onnxport.reports.with_urls import with_urls

            _write(staged, path, view.view(with_urls(report)))

        _write(staged, path, " ")  # on a full disk a folder can be made, but nothing be written
        staged.unlink()
        try:
            yield save
        except OnnxportError as error:
            if form in _TELL_OF_FAILURES and error.exit_code != USAGE:
                with suppress(OnnxportError):  # the user needs to see the first error
                    _write(staged, path, import_module(f"{__name__}.{form}").failure(error, command))
                    staging.commit({staged: path})
            raise
        if staged.exists():
            staging.commit({staged: path})


def _write(staged: Path, path: Path, text: str) -> None:
    with writing(path, _OPTION), staged.open("w", encoding="utf-8") as file:
        file.write(shown(text))
        file.flush()
        os.fsync(file.fileno())
