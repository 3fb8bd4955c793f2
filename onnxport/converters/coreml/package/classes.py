"""Classifiers: scores become the label of the largest one, and the score of each label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path

from onnxport.converters.coreml.library import mb, mil_list
from onnxport.converters.coreml.lower import Lowered
from onnxport.converters.coreml.names import PREDICTED, PROBABILITIES
from onnxport.converters.labels import find_port, list_names, read_labels
from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.manifest import Port


def add_classifier(lowered: Lowered, labels: Mapping[str, Path]) -> Lowered:
    """Turn an output into the labels of a file and their scores; do nothing without labels.

    Raises:
        InputError: the file cannot be read.
        UsageError: the labels fit no output.
    """
    if not labels:
        return lowered
    if len(labels) > 1:
        raise UsageError("labels are given for two outputs", why="a Core ML classifier has one")
    ((name, file),) = labels.items()
    names = _read_classes(file)
    port = _find_scores(lowered, name, len(names), file)
    function = lowered.program.functions["main"]
    scores = next(var for var in function.outputs if var.name == port.key)
    rest = [var for var in function.outputs if var is not scores]
    with function:
        label, probabilities = mb.classify(probabilities=scores, classes=mb.const(val=mil_list(names)))
        label.name, probabilities.name = PREDICTED, PROBABILITIES
        function.set_outputs([label, probabilities, *rest])
    ports = tuple(replace(each, key=PROBABILITIES) if each is port else each for each in lowered.outputs)
    return replace(lowered, outputs=ports, labels=len(names))


def _read_classes(file: Path) -> list[str]:
    _, names = read_labels(file)
    while names and not names[-1].strip():
        names.pop()
    known: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise UsageError(
                f"{file.name} has no label in line {number}",
                fix="give each class a label in a line of its own",
            )
        if name in known:
            raise UsageError(
                f"{file.name} has the label {name!r} twice", why="Core ML gives each label one score"
            )
        known.add(name)
    return names


def _find_scores(lowered: Lowered, name: str, count: int, file: Path) -> Port:
    outputs = lowered.outputs
    floats = [port for port in outputs if port.dtype.startswith("float")]
    if name:
        chosen = [find_port(outputs, name, "output")]
    else:
        chosen = [port for port in floats if _size(port) == count] or floats[:1]
    if len(chosen) > 1:
        raise UsageError(
            f"{count} labels fit several outputs: {list_names(chosen)}",
            fix=f"choose one: {quote_option('--labels', f'{chosen[0].name}={file.name}')}",
        )
    if not chosen or chosen[0] not in floats:
        raise UsageError("no output of the model holds scores", why="labels are for floats")
    (port,) = chosen
    if _size(port) is None:
        raise UsageError(
            f"output {port.name!r} has open dimensions",
            why="a classifier takes one input at a time",
            fix=f"fix them with {' '.join(_shape_option(each) for each in lowered.inputs if None in each.shape)}",
        )
    if _size(port) != count:
        raise UsageError(
            f"{file.name} has {count} labels, and output {port.name!r} has {_size(port)} numbers"
        )
    return port


def _shape_option(port: Port) -> str:
    """Write the option that fixes an input's sizes: a batch of 1, and names of the others to fill in."""
    dims = [size or ("1" if axis == 0 else f"DIM{axis}") for axis, size in enumerate(port.shape)]
    return quote_option("--shape", f"{port.name}={','.join(map(str, dims))}")


def _size(port: Port) -> int | None:
    return None if None in port.shape else prod(size or 0 for size in port.shape)
