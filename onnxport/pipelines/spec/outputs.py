"""Where the artefacts of a pipeline go, and that none of them takes the place of anything else."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from onnxport.errors import UsageError
from onnxport.pipelines.spec.document import Place
from onnxport.pipelines.spec.faults import Faults
from onnxport.pipelines.spec.pipeline import Cell
from onnxport.pipelines.spec.scalars import written
from onnxport.pipelines.stages import nearest

# In a value of the matrix that becomes part of a file's name.
_IN_NAMES = str.maketrans(dict.fromkeys('/\\:*?"<>| ', "_"))


def label(value: Any) -> str:
    """A value of the matrix as it is called in names of artefacts."""
    if value is None:
        return "default"
    if isinstance(value, Mapping):
        text = ",".join(f"{key}={label(each)}" for key, each in value.items())
    elif isinstance(value, list):
        text = ",".join(map(label, value))
    else:
        text = written(value)
    return "".join(c if c.isprintable() else "_" for c in text.translate(_IN_NAMES)) or "empty"


def check_below(given: str) -> None:
    """Refuses a path to write to that could lie outside of the pipeline's folder (UsageError): a file that somebody
    proposes for a CI is not to reach beyond its checkout."""
    parts = PurePath(given).parts
    if not given or PurePath(given).is_absolute() or ".." in parts or given.startswith("~"):
        raise UsageError(
            f"{given!r} lies outside of the pipeline's folder",
            why="a run writes below it alone",
            fix="give a relative path without ..",
        )


def filled(template: str, values: Mapping[str, str], suffix: str) -> str:
    """`template` with {model}, {target} and the matrix' keys filled in.

    Raises:
        UsageError: another placeholder, a path outside of the folder, or a name that does not tell its format.
    """
    text = ""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"{template!r} cannot be filled in", why=str(error).lower(), fix="write {model}") from None
    for literal, name, form, conversion in parts:
        text += literal
        if name is None:
            continue
        if form or conversion or name not in values:
            raise UsageError(
                f"{template!r} has a placeholder {name!r}",
                fix=nearest(name, values) if name not in values else f"write {{{name}}}",
            )
        text += values[name]
    check_below(text)
    if PurePath(text).suffix.lower() != suffix:
        raise UsageError(f"{text!r} does not end in {suffix}", fix="its name has to tell its format")
    return text


@dataclass(frozen=True)
class Claim:
    """A place in the file system that somebody needs: `what`, as messages say it, and where the file says so."""

    path: Path
    what: str
    place: Place


def check_apart(cells: Sequence[tuple[Cell, Place]], others: Sequence[Claim], faults: Faults) -> None:
    """Takes down two artefacts of one place, and those that would lie over or in what a run reads or writes.

    Args:
        cells: with the place that says where each goes.
        others: models, samples, reports, the file, the cache.
    """
    claims: dict[str, Claim] = {}
    for cell, place in cells:
        own = Claim(cell.output, f"the artefact {cell.name}", place)
        real = os.path.realpath(cell.output)
        taken = claims.get(real) or next(_over(real, claims), None)
        taken = taken or next((each for each in others if _touch(real, os.path.realpath(each.path))), None)
        if taken is not None:
            whose = f" ({faults.where(*taken.place)})" if taken.place else ""
            faults.add(
                UsageError(
                    f"{cell.name} would be written to {cell.output}, which is taken by {taken.what}{whose}",
                    fix="give another output"
                    + (", with {model} or a key of the matrix" if real in claims else ""),
                ),
                *place,
            )
        claims.setdefault(real, own)


def _over(real: str, claims: Mapping[str, Claim]) -> Iterator[Claim]:
    """What holds `real`: a package is a folder."""
    for parent in Path(real).parents:
        if found := claims.get(str(parent)):
            yield found


def _touch(output: str, other: str) -> bool:
    """Whether an artefact at `output` would replace what is at `other`, lie in it or hold it."""
    return output == other or output.startswith(other + os.sep) or other.startswith(output + os.sep)
