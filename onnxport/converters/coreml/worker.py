"""The child's side of a conversion (core/child_process.py), which imports coremltools."""

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
from onnxport.converters.coreml.package.calibration import Calibration
from onnxport.converters.coreml.package.classes import add_classifier
from onnxport.converters.coreml.package.compression import check_weights, compress
from onnxport.converters.coreml.package.writer import Metadata, write_package
from onnxport.converters.coreml.passes.pipeline import optimize
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.params import CoremlParams
from onnxport.converters.result import Compiled
from onnxport.core.errors import UsageError
from onnxport.formats.manifest import KEY, MAIN, Manifest, Port, note_key, pixels_key
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import quantization_key

_RESERVED = "com.github.apple."  # prefix of coremltools' own entries


class Worker:
    """The child's side; made once per child. `lower` runs for each function, then `write`."""

    def __init__(self) -> None:
        self._functions: dict[str, tuple[Lowered, Manifest]] = {}
        self._calibrations: dict[str, str] = {}  # key -> JSON

    def native_ops(self) -> frozenset[str]:
        """Return the ONNX operators that have a lowering; others may be decomposed."""
        return REGISTRY.ops

    def lower(
        self,
        model: Path,
        params: CoremlParams,
        manifest: Manifest,
        islands: Sequence[str] = (),
        function: str = MAIN,
    ) -> None:
        """Convert the prepared ONNX file `model` to a function, and keep it for `write`.

        Args:
            islands: values that a float16 program computes in float32.

        Raises:
            CannotConvertError: nodes without an equivalent.
            UsageError: sizes or states that Core ML does not support.
        """
        # Libraries' temporary files are removed with the run's own folder, however the run ends.
        tempfile.tempdir = str(model.parent)
        check_weights(params.weights, params.minimum_target)
        for key in params.metadata:
            if key.partition(".")[0] == KEY or key.startswith(_RESERVED):
                raise UsageError(
                    f"--metadata cannot set {key!r}",
                    why="onnxport and coremltools use that key themselves",
                    fix="give it another name",
                )
        source = Model.received(model)
        calibration = Calibration.of_model(source)
        lowered = optimize(lower_model(source, params, islands))
        if calibration is not None:
            self._calibrations[quantization_key(function)] = calibration.to_json(lowered.taps)
        compress(lowered.program, params.weights)
        lowered = add_classifier(lowered, params.labels)
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
        """Write the functions to the package `output`, and forget them.

        Raises:
            OSError: the package could not be written.
        """
        functions, self._functions = self._functions, {}
        programs = {name: lowered for name, (lowered, _) in functions.items()}
        calibrations, self._calibrations = self._calibrations, {}
        write_package(programs, output, _metadata(functions, params, calibrations))
        operators: Counter[str] = Counter()
        notes: list[str] = []
        for name, lowered in programs.items():
            for function in lowered.program.functions.values():
                operators.update(each.op_type for each in _walk(function) if each.op_type != "const")
            found = (*lowered.notes, *_renaming_notes((*lowered.inputs, *lowered.outputs)))
            notes += [each if name == MAIN else f"function {name}: {each}" for each in found]
        return Compiled(dict(operators.most_common()), tuple(notes))


def _metadata(
    functions: Mapping[str, tuple[Lowered, Manifest]], params: CoremlParams, calibrations: Mapping[str, str]
) -> Metadata:
    """Collect the user's entries, Core ML's own, and ours."""
    entries = {**params.metadata, **calibrations}
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
    return Metadata(entries, {name: text for name, text in others.items() if text})


def _renaming_notes(ports: Sequence[Port]) -> Iterator[str]:
    """Write notes on inputs and outputs that have other names in the package."""
    others = []
    for port in ports:
        if port.key == PROBABILITIES:
            yield f"{port.name!r} is given as {PREDICTED} and {PROBABILITIES}"
        elif port.name != port.key:
            others.append(f"{port.name!r} is {port.key}")
    if others:
        yield f"Core ML does not carry these names of inputs and outputs: {', '.join(others)} in the package"


def _walk(block: Any) -> Iterator[Any]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _walk(inner)
