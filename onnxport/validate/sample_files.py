"""Write the inputs that a validation would generate, as files that `--inputs` reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel

from onnxport.core.arrays import Array
from onnxport.core.errors import UsageError
from onnxport.core.npz_writer import write_npz
from onnxport.samples.domain import Domain
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.reference import Reference

EDGE_CASES = "edge-cases"


class SampleFile(BaseModel):
    """One input set on disk.

    Attributes:
        path: of the `.npz` file, relative to the folder.
        label: the set's name in reports.
        shapes: input name -> sizes.
        purpose: what the set is for.
    """

    path: str
    label: str
    shapes: dict[str, tuple[int, ...]]
    purpose: str


class SampleFiles(BaseModel):
    """The input sets of one model.

    Attributes:
        model: its file.
        folder: the folder with the files and a README.md.
        inputs: input name -> what it may hold, in words.
    """

    model: str
    folder: str
    inputs: dict[str, str]
    files: tuple[SampleFile, ...]


_PURPOSES = {
    "image": "images of 0..255 or smooth signals",
    "normal": "normal noise",
    "uniform": "uniform noise in 0..1",
    "soft": "images of -1..1",
    "few": "few values, repeated rows",
    "scaled": "noise of another magnitude",
    "zeros": "an edge case: the least value everywhere",
    "sparse": "an edge case: few large values among zeros",
    "constant": "an edge case: one value everywhere",
    "large": "an edge case: large values",
}


def write_sample_files(reference: Reference, folder: Path) -> SampleFiles:
    """Write every set that the reference was run on, and a README.md that describes them.

    Args:
        folder: exists, and is empty.

    Raises:
        UsageError: an input's type has no place in `.npz` files.
    """
    files = tuple(_write(answered, number, folder) for number, answered in enumerate(reference.sets, 1))
    domains = reference.input_domains(reference.sets[0].shapes)
    inputs = {spec.name: f"{spec}: {_describe(domains[spec.name])}" for spec in reference.inputs}
    found = SampleFiles(model=str(reference.artifact.path), folder=str(folder), inputs=inputs, files=files)
    (folder / "README.md").write_text(_readme(found), encoding="utf-8")
    return found


def _write(answered: AnsweredSet, number: int, folder: Path) -> SampleFile:
    kind = answered.label.partition("(")[2].rstrip(")")
    name = f"{number:02}-{kind}.npz" if kind else f"{number:02}.npz"
    path = folder / EDGE_CASES / name if answered.adversarial else folder / name
    path.parent.mkdir(exist_ok=True)
    arrays = {name: _storable(name, array) for name, array in answered.load().feeds.items()}
    write_npz(path, arrays)
    return SampleFile(
        path=path.relative_to(folder).as_posix(),
        label=answered.label,
        shapes=answered.shapes,
        purpose=_PURPOSES.get(kind, "values that the graph allows"),
    )


def _storable(name: str, array: Array) -> Array:
    if array.dtype.kind == "V":
        raise UsageError(f"input {name!r} cannot be written", why=f".npz files hold no {array.dtype.name}")
    return array.astype(np.str_) if array.dtype.kind == "O" else array


def _describe(domain: Domain) -> str:
    """Return the values of a domain in words."""
    if domain.kind == "setting":
        return "a setting of an operator (axes, sizes, ...), chosen so that the model runs"
    if domain.kind in ("integer", "length"):
        return f"{domain.kind}s from {domain.low} to {domain.high}"
    if domain.kind == "choice":
        return f"one of {', '.join(map(str, domain.values))}"
    if domain.bounds is not None:
        return f"numbers from {domain.bounds[0]:g} to {domain.bounds[1]:g}"
    return "positive numbers" if domain.positive else _WORDS[domain.kind]


_WORDS = {
    "real": "numbers",
    "boolean": "true or false",
    "mask": "a mask",
    "position": "positions 0, 1, 2, ...",
    "one-hot": "rows with a single 1",
    "state": "a state, zeros at first",
    "table": "columns of a table",
}


def _readme(found: SampleFiles) -> str:
    rows = [f"| `{file.path}` | {file.purpose} | {_sizes(file)} |" for file in found.files]
    inputs = [f"- {text}" for text in found.inputs.values()]
    return "\n".join(
        [
            f"# Inputs of {Path(found.model).name}",
            "",
            "Written by `onnxport samples`. Edit or replace the files; an array has the name, type and number of",
            "dimensions of its input. Feed them with `--inputs` and this folder, or calibrate with `--calib`.",
            f"The sets in `{EDGE_CASES}/` look for rare faults; they are no typical inputs.",
            "",
            *inputs,
            "",
            "| file | content | shapes |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _sizes(file: SampleFile) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in file.shapes.items())
