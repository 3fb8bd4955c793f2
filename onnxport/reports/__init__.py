"""The views of a command's report: one module per format, and the table that a file's suffix is looked up in.

Those of a pipeline's run are in `pipeline/`, in modules of the same names; those of a bench, a profile and a
deployment are in folders called so, each with a table of its own: not every form says something of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from onnxport.core.errors import USAGE, OnnxportError, UsageError
from onnxport.formats.artifact import Staging, writing

# Takes the report that the package's views are of: a RunReport, or a PipelineReport where they are those of pipeline/.
Save = Callable[[Any], None]


class View(Protocol):
    """A module of this package or one below. One whose readers ask for it also has `failure(error, command)`."""

    def view(self, report: Any) -> str: ...


_OPTION = "--report"

# Suffix to the module whose `view` makes the file, imported when it is asked for.
FORMATS: Mapping[str, str] = {
    ".html": "html",
    ".json": "document",
    ".md": "markdown",
    ".sarif": "sarif",
    ".xml": "junit",
}


@contextmanager
def saving(paths: Sequence[Path], command: str = "", package: str = __name__) -> Iterator[Save]:
    """Gives a function that takes down a report, which is at all of `paths` when the block ends without an error.

    After an error in the block there is a file only in the forms that can tell of it (JUnit XML and Markdown), and
    not after a UsageError: then nothing ran. What can be wrong with a path is found on entry, before the work, and a
    full disk when the report is taken down: the runner does that before an artefact takes its place.

    Args:
        package: where the views are, with a table FORMATS.

    Raises:
        UsageError: no format has this suffix, a path is given twice, or the folder does not exist.
        MachineError: the folder cannot be written to.
    """
    with ExitStack() as stack:
        saves = [stack.enter_context(_saving(path, _view(path, package), command)) for path in paths]
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError(f"{_OPTION} names one file twice", fix="give each form a file of its own")

        def save(report: Any) -> None:
            for each in saves:
                each(report)

        yield save


def _view(path: Path, package: str) -> View:
    formats: Mapping[str, str] = import_module(package).FORMATS
    name = formats.get(path.suffix.lower())
    if name is None:
        raise UsageError(
            f"no report can be written to {path}", fix=f"known suffixes are {', '.join(formats)}"
        )
    view: View = import_module(f"{package}.{name}")
    return view


@contextmanager
def _saving(path: Path, view: View, command: str) -> Iterator[Save]:
    with Staging(path, _OPTION) as staging:
        staged = staging.folder / path.name

        def save(report: Any) -> None:
            _write(staged, path, view.view(report))

        _write(staged, path, " ")  # a full disk gives a folder, but no room in it
        staged.unlink()
        try:
            yield save
        except OnnxportError as error:
            failure = getattr(view, "failure", None)
            if failure is not None and error.exit_code != USAGE:
                with suppress(OnnxportError):  # the first error is the one to tell
                    _write(staged, path, failure(error, command))
                    staging.commit({staged: path})
            raise
        if staged.exists():
            staging.commit({staged: path})


def _write(staged: Path, path: Path, text: str) -> None:
    with writing(path, _OPTION), staged.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
