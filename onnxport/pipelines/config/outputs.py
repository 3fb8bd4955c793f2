"""The output paths of a pipeline, and the check that they overlap with nothing."""

from __future__ import annotations

import os
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from onnxport.core.errors import UsageError
from onnxport.core.urls import is_url
from onnxport.pipelines.config.document import Faults, Place
from onnxport.pipelines.config.scalars import source_text
from onnxport.pipelines.params import suggest

# Characters of matrix values that no file name may have.
_IN_NAMES = str.maketrans(dict.fromkeys('/\\:*?"<>| ', "_"))


def label(value: Any) -> str:
    """Return a matrix value as it appears in names of artefacts."""
    if value is None:
        return "default"
    if isinstance(value, Mapping):
        text = ",".join(f"{key}={label(each)}" for key, each in value.items())
    elif isinstance(value, list):
        text = ",".join(map(label, value))
    else:
        text = source_text(value)
    return "".join(c if c.isprintable() else "_" for c in text.translate(_IN_NAMES)) or "empty"


def check_below(given: str) -> None:
    """Refuse an output path outside of the pipeline's folder (UsageError): a CI must not write beyond its checkout.

    A URL is meant as it is written.
    """
    if is_url(given):
        return
    parts = PurePath(given).parts
    if not given or PurePath(given).is_absolute() or ".." in parts or given.startswith("~"):
        what, fix = f"{given!r} lies outside of the pipeline's folder", "give a relative path without .."
        raise UsageError(what, why="a run writes only below it", fix=fix)


def fill_template(template: str, values: Mapping[str, str], suffix: str) -> str:
    """Fill {model}, {target} and the matrix keys into `template`; UsageError for a path that no artefact may have."""
    text = ""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        what = f"{template!r} is not a valid template"
        raise UsageError(what, why=str(error).lower(), fix="write {model}") from None
    for literal, name, form, conversion in parts:
        text += literal
        if name is None:
            continue
        if form or conversion or name not in values:
            fix = suggest(name, values) if name not in values else f"write {{{name}}}"
            raise UsageError(f"{template!r} has a placeholder {name!r}", fix=fix)
        text += values[name]
    check_below(text)
    if PurePath(text).suffix.lower() != suffix:
        raise UsageError(f"{text!r} does not end in {suffix}", fix=f"give a name that ends in {suffix}")
    return text


@dataclass(frozen=True)
class Claim:
    """A path in use: `what` for messages, and its place in the file."""

    path: Path
    what: str
    place: Place = ()


def check_no_overlap(written: Sequence[Claim], kept: Sequence[Claim], faults: Faults) -> None:
    """Add a fault for each of `written` that lies at, in or around another one, or something of `kept`."""
    taken: dict[Path, Claim] = {}
    holding: dict[Path, Claim] = {}  # every folder that one of `taken` lies in
    for claim in (*kept, *written):
        real = Path(os.path.realpath(claim.path))
        places = [taken.get(each) for each in (real, *real.parents)]
        rival = next((each for each in places if each), holding.get(real))
        if rival is not None and claim in written:
            said = f" ({faults.where(*rival.place)})" if rival.place else ""
            fix = "give another output"
            if rival in written:
                fix += ", with {model} or a key of the matrix"
            what = f"{claim.what} would be written to {claim.path}, which is taken by {rival.what}{said}"
            faults.add(what, *claim.place, fix=fix)
        taken.setdefault(real, claim)
        for parent in real.parents:
            holding.setdefault(parent, claim)
