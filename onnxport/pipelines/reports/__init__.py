"""The views of a run's report: one module per format, and the table that a file's suffix is looked up in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from onnxport.artifact import Staging, writing
from onnxport.errors import UsageError
from onnxport.pipelines.report import RunReport


def _json(report: RunReport) -> str:
    return report.model_dump_json(indent=2) + "\n"


FORMATS: Mapping[str, Callable[[RunReport], str]] = {".json": _json}


@contextmanager
def saving(path: Path | None) -> Iterator[Callable[[RunReport], None]]:
    """Gives a function that writes a report to `path`, or does nothing without one.

    What can be wrong with `path` is found on entry, before the work.

    Raises:
        UsageError: no format has this suffix, or the folder does not exist.
        MachineError: the folder cannot be written to.
    """
    if path is None:
        yield lambda report: None
        return
    view = FORMATS.get(path.suffix.lower())
    if view is None:
        raise UsageError(
            f"no report can be written to {path}", fix=f"known suffixes are {', '.join(FORMATS)}"
        )
    with Staging(path) as staging:

        def save(report: RunReport) -> None:
            staged = staging.folder / path.name
            with writing(path):
                staged.write_text(view(report), encoding="utf-8")
            staging.commit({staged: path})

        yield save
