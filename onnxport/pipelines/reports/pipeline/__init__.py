"""The views of a pipeline's run, one module per form as for single commands, and where `--report` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from onnxport.artifact import writing
from onnxport.errors import UsageError
from onnxport.pipelines.reports import FORMATS, Save, saving

# What a folder is filled with.
NAMES = ("index.html", "report.json", "junit.xml", "report.sarif", "summary.md")


@contextmanager
def saving_run(paths: Sequence[Path]) -> Iterator[Save]:
    """As `reports.saving`, for the report of a pipeline; a path that is a folder, or has no suffix, gets every form.

    The same file is written once, whoever names it; a folder that is made for the reports goes if none is written.

    Raises:
        UsageError: no form has this suffix, or the folder of a file does not exist.
        MachineError: the folder cannot be written to.
    """
    with ExitStack() as stack:
        files: dict[Path, Path] = {}
        for path in paths:
            for file in _files(path, stack):
                files.setdefault(file.resolve(), file)
        yield stack.enter_context(saving(tuple(files.values()), "run", __name__))


def _files(path: Path, stack: ExitStack) -> tuple[Path, ...]:
    if path.suffix.lower() in FORMATS and not path.is_dir():
        return (path,)
    if path.suffix and not path.is_dir():
        raise UsageError(
            f"no report can be written to {path}",
            fix=f"known suffixes are {', '.join(FORMATS)}; a folder gets all of them, and has none or exists",
        )
    stack.enter_context(_folder(path))
    return tuple(path / name for name in NAMES)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """`path` as a folder, which goes again where nothing was put into it."""
    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{path} is a file and no folder", fix="give --report a folder, or a file with a suffix"
        )
    made = [each for each in (path, *path.parents) if not each.exists()]
    with writing(path, "--report"):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in made:
            with suppress(OSError):  # it holds reports
                folder.rmdir()
