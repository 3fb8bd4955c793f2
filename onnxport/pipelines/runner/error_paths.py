"""Renames private files of a run in error messages: they are gone when the user reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnxport.core.errors import CannotConvertError, OnnxportError
from onnxport.formats.artifact import SUFFIXES
from onnxport.pipelines.runner.jobs import Job

# Folders that have folders of steps: the run's own, that of a second attempt, that of the model in float, and that of
# the model with the user's definitions.
_SUBS = ("", "/checked", "/latency/float", "/defined")
# A file in a step's folder; the group is the step's number.
_BELOW = rf"(?:{'|'.join(_SUBS)})/(\d+)/[^\s'\",;:]+"


@contextmanager
def name_the_source(job: Job, staging: Path) -> Iterator[None]:
    """Name files below the private folder `staging` in an error by the model and the step that wrote them."""
    try:
        yield
    except OnnxportError as error:
        names = _Names(job, staging)
        error.what, error.why, error.fix = map(names.rename, (error.what, error.why, error.fix))
        if isinstance(error, CannotConvertError):
            error.refusals = tuple(replace(each, why=names.rename(each.why)) for each in error.refusals)
        raise


class _Names:
    """The names of a run's private files for the user."""

    def __init__(self, job: Job, staging: Path) -> None:
        self._job = job
        self._folders = [str(folder) for folder in (staging.resolve(), staging)]
        self._made: dict[str, str] = {}
        for number, step in enumerate(job.steps):
            file = job.output.with_suffix(SUFFIXES[step.stage.gives]).name
            name = self._after(number) if number < len(job.steps) - 1 else str(job.output)
            self._made |= {
                f"{folder}{sub}/{number}/{file}": name for folder in self._folders for sub in _SUBS
            }
            if step.made is not None:
                self._made |= {str(path): name for path in (step.made.path.resolve(), step.made.path)}

    def rename(self, text: str) -> str:
        for path, name in self._made.items():
            text = text.replace(path, name)
        for folder in self._folders:
            # Another file of a step is a copy of its input.
            text = re.sub(re.escape(folder) + _BELOW, lambda file: self._after(int(file[1]) - 1), text)
        return text

    def _after(self, number: int) -> str:
        source = str(self._job.source.path)
        return source if number < 0 else f"{source} after step {self._job.steps[number].stage.name!r}"
