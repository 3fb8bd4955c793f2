"""The forms of a pipeline's run, and the folder that holds all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import writing
from onnxport.reports import FORMATS, Save, saving
from onnxport.reports.trackers import tracker_of

# The files in a folder of reports.
NAMES = ("index.html", "report.json", "junit.xml", "report.sarif", "summary.md")


@contextmanager
def saving_run(paths: Sequence[Path], besides: Sequence[Path] = ()) -> Iterator[Save]:
    """Do as `reports.saving` for a pipeline's report; a path that is a folder, or has no suffix, gets every form.

    A folder that is made for the reports is removed if none is written. Another block writes `besides`, and the files
    that both name.
    """
    excluded = {file.resolve() for path in besides for file in files_of(path)}
    with ExitStack() as stack:
        files: dict[Path, Path] = {}
        for path in paths:
            own = {file.resolve(): file for file in files_of(path) if file.resolve() not in excluded}
            if own and _is_folder(path):
                stack.enter_context(_folder(path))
            files |= own
        yield stack.enter_context(saving(tuple(files.values()), "run", "pipeline"))


def _is_folder(path: Path) -> bool:
    return tracker_of(path) is None and (path.is_dir() or path.suffix.lower() not in FORMATS)


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that a report to `path` consists of; UsageError for a wrong suffix or no possible folder."""
    if not _is_folder(path):
        return (path,)
    if path.suffix and not path.is_dir():
        raise UsageError(
            f"no report can be written to {path}",
            fix=f"known suffixes are {', '.join(FORMATS)}; a folder, which exists or has no suffix, gets all forms",
        )
    nearest = next(each for each in (path, *path.parents) if each.exists())
    if not nearest.is_dir():
        what = f"no report can be written to {path}: {nearest} is a file, not a folder"
        raise UsageError(what, fix="choose another path")
    return tuple(path / name for name in NAMES)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make `path` a folder for the block; remove the folders made for it that are empty afterwards."""
    made = [each for each in (path, *path.parents) if not each.exists()]
    with writing(path, "--report"):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in made:
            with suppress(OSError):  # it holds reports
                folder.rmdir()
