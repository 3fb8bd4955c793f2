"""Label files, each with the output that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxport.converters.app_metadata import Normalization
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.artifact import TensorSpec

# enum AssociatedFileType of the metadata schema
AXIS, VALUE = 2, 3


@dataclass(frozen=True)
class LabelFile:
    """One file for one output.

    Attributes:
        name: what it is called inside the artefact.
        kind: AXIS where the output has a position for each label, VALUE where its numbers name labels.
    """

    output: str
    name: str
    content: bytes
    kind: int


def label_files(outputs: Sequence[TensorSpec], labels: Mapping[str, Path]) -> tuple[LabelFile, ...]:
    """The label files of the user, read and matched with the outputs.

    Raises:
        InputError: a file that cannot be read.
        UsageError: no such output, none that fits, or two files of one name.
    """
    found = tuple(_label_file(outputs, output, file) for output, file in labels.items())
    contents = {file.name: file.content for file in found}
    if any(contents[file.name] != file.content for file in found):
        raise UsageError(
            "two label files have the same name", fix="rename one: the artefact holds them side by side"
        )
    return found


def check_normalization(inputs: Sequence[TensorSpec], given: Mapping[str, Normalization]) -> None:
    """Refuses inputs that the model does not have, and numbers that its channels are not (UsageError)."""
    known = {spec.name: spec for spec in inputs}
    for name, numbers in given.items():
        if name not in known:
            raise UsageError(f"the model has no input {name!r}", fix=f"its inputs are {_listed(inputs)}")
        for count in {len(part) for part in numbers} - {1}:
            if count not in known[name].shape and None not in known[name].shape:
                raise UsageError(
                    f"the normalization of {name!r} has {count} channels, which {known[name]} has not",
                    fix="give one number for all channels, or one for each",
                )


def _label_file(outputs: Sequence[TensorSpec], output: str, file: Path) -> LabelFile:
    try:
        content = file.read_bytes()
        lines = content.decode().splitlines()
    except OSError as error:
        raise InputError(f"the label file {file} cannot be read", why=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"the label file {file} is not UTF-8 text", fix="give one label a line") from error
    if not lines:
        raise UsageError(f"the label file {file} is empty", fix="give one label a line")
    known = {spec.name: spec for spec in outputs}
    if output and output not in known:
        raise UsageError(f"the model has no output {output!r}", fix=f"its outputs are {_listed(outputs)}")
    spec = known[output] if output else _of_length(outputs, len(lines), file)
    # Counts of an open dimension are known at run time only.
    kind = (
        AXIS if len(lines) in spec.shape or not all(isinstance(dim, int) for dim in spec.shape[1:]) else VALUE
    )
    return LabelFile(spec.name, file.name, content, kind)


def _of_length(outputs: Sequence[TensorSpec], count: int, file: Path) -> TensorSpec:
    fitting = [spec for spec in outputs if count in spec.shape]
    if not fitting and len(outputs) == 1 and _may_hold(outputs[0]):
        fitting = list(outputs)
    if len(fitting) != 1:
        raise UsageError(
            f"{file} holds {count} labels, and {len(fitting) or 'no'} outputs have {count} positions",
            fix=f"say which output they label, as OUTPUT=FILE; the outputs are {_listed(outputs)}",
        )
    return fitting[0]


def _may_hold(output: TensorSpec) -> bool:
    """Whether labels may be of an output none of whose known axes has as many positions."""
    is_open = not all(isinstance(dim, int) for dim in output.shape[1:])
    return is_open or not output.dtype.startswith("float")  # integers may be the classes themselves


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(repr(spec.name) for spec in specs) or "none"
