"""The converter's side of a conversion, run in a child process (see isolation.Child), which imports coremltools."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxport.converters.coreml.lower import Lowered, lower_model
from onnxport.converters.coreml.names import PREDICTED, PROBABILITIES
from onnxport.converters.coreml.package.classes import classified
from onnxport.converters.coreml.package.compression import check_weights, compress
from onnxport.converters.coreml.package.writer import Said, write_package
from onnxport.converters.coreml.passes.pipeline import optimize
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.params import CoremlParams
from onnxport.converters.tflite.result import Compiled
from onnxport.core.errors import UsageError
from onnxport.formats.manifest import KEY, MAIN, Manifest, Port, note_key, pixels_key
from onnxport.formats.model import Model

_APPLES = "com.github.apple."  # coremltools' own entries


class Worker:
    """Answers `native_ops`, and `lower` for each function before `write`; made once per child."""

    def __init__(self) -> None:
        self._functions: dict[str, tuple[Lowered, Manifest]] = {}

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that have a lowering; others may be decomposed."""
        return REGISTRY.ops

    def lower(
        self,
        model: Path,
        params: CoremlParams,
        manifest: Manifest,
        islands: Sequence[str] = (),
        function: str = MAIN,
    ) -> None:
        """Converts the prepared ONNX file `model` to a function, and keeps it for `write`.

        Args:
            islands: values that a float16 program computes in float32.

        Raises:
            CannotConvertError: nodes without an equivalent.
            UsageError: sizes or states that Core ML does not have so.
        """
        # What a library leaves in the temp folder goes with the run's own folder, however the run ends.
        tempfile.tempdir = str(model.parent)
        check_weights(params.weights, params.minimum_target)
        _check_metadata(params.metadata)
        lowered = optimize(lower_model(Model.received(model), params, islands))
        compress(lowered.program, params.weights)
        lowered = classified(lowered, params.labels)
        complete = replace(
            manifest,
            inputs=lowered.inputs,
            outputs=lowered.outputs,
            taps=lowered.taps,
            islands=tuple(islands),
            states=dict(lowered.states),
        )
        self._functions[function] = lowered, complete

    def write(self, output: Path, params: CoremlParams) -> Compiled:
        """Writes the functions to the package `output`, and forgets them.

        Raises:
            OSError: the package could not be written.
        """
        functions, self._functions = self._functions, {}
        write_package(
            {name: lowered for name, (lowered, _) in functions.items()}, output, _said(functions, params)
        )
        operators: Counter[str] = Counter()
        notes: list[str] = []
        for name, (lowered, _) in functions.items():
            operators += _operators(lowered.program)
            found = (*lowered.notes, *_renamed((*lowered.inputs, *lowered.outputs)))
            notes += [each if name == MAIN else f"function {name}: {each}" for each in found]
        return Compiled(dict(operators.most_common()), tuple(notes))


def _check_metadata(entries: Mapping[str, str]) -> None:
    """Refuses the keys that are not the user's: what stands under them would be lost, or taken for a note of ours."""
    for key in entries:
        if key.partition(".")[0] == KEY or key.startswith(_APPLES):
            raise UsageError(
                f"--metadata cannot set {key!r}",
                why="that is for what the tools note in a package",
                fix="give it another name",
            )


def _said(functions: Mapping[str, tuple[Lowered, Manifest]], params: CoremlParams) -> Said:
    """The metadata: the user's, Core ML's own, and ours."""
    entries = dict(params.metadata)
    if params.compute_units:
        entries[f"{KEY}.compute-units"] = params.compute_units
    for name, (lowered, manifest) in functions.items():
        entries[note_key(name)] = manifest.to_json()
        if lowered.images:
            pictures = {key: image._asdict() for key, image in lowered.images.items()}
            entries[pixels_key(name)] = json.dumps(pictures)
    others = {
        "author": params.author,
        "license": params.license,
        "versionString": params.model_version,
        "shortDescription": params.description,
    }
    return Said(entries, {name: text for name, text in others.items() if text})


def _renamed(ports: Sequence[Port]) -> Iterator[str]:
    """What an app has to say for names that are no identifiers of Core ML."""
    others = [
        f"{port.name!r} is {port.key}"
        for port in ports
        if port.name != port.key and port.key != PROBABILITIES
    ]
    yield from (
        f"{port.name!r} is given as {PREDICTED} and {PROBABILITIES}"
        for port in ports
        if port.key == PROBABILITIES
    )
    if others:
        yield f"Core ML does not carry these names of inputs and outputs: {', '.join(others)} in the package"


def _operators(program: Any) -> Counter[str]:
    """How often each MIL operator occurs, constants left out."""
    return Counter(
        operation.op_type
        for function in program.functions.values()
        for operation in _all(function)
        if operation.op_type != "const"
    )


def _all(block: Any) -> Iterator[Any]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _all(inner)
