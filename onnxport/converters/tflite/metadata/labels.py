"""Label files, each with the output that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.converters.labels import find_port, list_names, read_labels
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec

if TYPE_CHECKING:
    from onnxport.converters.app_metadata import Normalization

# enum AssociatedFileType of the metadata schema
AXIS, VALUE = 2, 3


@dataclass(frozen=True)
class LabelFile:
    """One file for one output."""

    output: str
    name: str  # inside the artefact
    content: bytes
    kind: int  # AXIS if the output has a position for each label, VALUE if its numbers are indices of labels


def read_label_files(outputs: Sequence[TensorSpec], labels: Mapping[str, Path]) -> tuple[LabelFile, ...]:
    """Read the user's label files and match them with the outputs.

    Raises:
        InputError: a file that cannot be read.
        UsageError: no such output, none that fits, or two files of one name.
    """
    found = tuple(_label_file(outputs, output, file) for output, file in labels.items())
    contents = {file.name: file.content for file in found}
    if any(contents[file.name] != file.content for file in found):
        fix = "rename one: the artefact stores both under their names"
        raise UsageError("two label files have the same name", fix=fix)
    return found


def check_normalization(inputs: Sequence[TensorSpec], given: Mapping[str, Normalization]) -> None:
    """Refuse unknown inputs, and counts of numbers that are not the channels' (UsageError)."""
    for name, numbers in given.items():
        spec = find_port(inputs, name, "input")
        for count in {len(part) for part in numbers} - {1}:
            if count not in spec.shape and None not in spec.shape:
                raise UsageError(
                    f"the normalization of {name!r} has {count} channels, which {spec} does not have",
                    fix="give one number for all channels, or one for each",
                )


def _label_file(outputs: Sequence[TensorSpec], output: str, file: Path) -> LabelFile:
    content, lines = read_labels(file)
    if not lines:
        raise UsageError(f"the label file {file} is empty", fix="give one label a line")
    spec = find_port(outputs, output, "output") if output else _find_output(outputs, len(lines), file)
    kind = AXIS if len(lines) in spec.shape or _has_open_axis(spec) else VALUE
    return LabelFile(spec.name, file.name, content, kind)


def _has_open_axis(spec: TensorSpec) -> bool:
    """Return whether an axis other than the batch has a size that is known at run time only."""
    return not all(isinstance(dim, int) for dim in spec.shape[1:])


def _find_output(outputs: Sequence[TensorSpec], count: int, file: Path) -> TensorSpec:
    fitting = [spec for spec in outputs if count in spec.shape]
    # Integers may be indices of labels.
    if not fitting and len(outputs) == 1 and (_has_open_axis(outputs[0]) or outputs[0].dtype[:5] != "float"):
        fitting = list(outputs)
    if len(fitting) != 1:
        raise UsageError(
            f"{file} holds {count} labels, and {len(fitting) or 'no'} outputs have {count} positions",
            fix=f"name the output, as OUTPUT=FILE; the outputs are {list_names(outputs)}",
        )
    return fitting[0]
