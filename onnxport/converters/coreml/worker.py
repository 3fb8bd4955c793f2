"""The converter's side of a conversion, run in a child process (see isolation.Child), which imports coremltools."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxport.converters.coreml.compiled import Compiled
from onnxport.converters.coreml.lower import Lowered, lower_model
from onnxport.converters.coreml.package.classes import PREDICTED, PROBABILITIES, classified
from onnxport.converters.coreml.package.compression import check_weights, compress
from onnxport.converters.coreml.package.writing import Said, write_package
from onnxport.converters.coreml.passes.pipeline import optimize
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.params import CoremlParams
from onnxport.manifest import KEY, PIXELS, Manifest, Port
from onnxport.model import Model


class Worker:
    """Answers `native_ops` and `compile`; made once per child."""

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that have a lowering; others may be decomposed."""
        return REGISTRY.ops

    def compile(
        self, model: Path, output: Path, params: CoremlParams, manifest: Manifest, islands: Sequence[str] = ()
    ) -> Compiled:
        """Converts the prepared ONNX file `model` to the package `output`.

        Args:
            islands: values that a float16 program computes in float32.

        Raises:
            CannotConvertError: nodes without an equivalent.
            UsageError: sizes or states that Core ML does not have so.
            OSError: the package could not be written.
        """
        # What a library leaves in the temp folder goes with the run's own folder, however the run ends.
        tempfile.tempdir = str(output.parent)
        check_weights(params.weights, params.minimum_target)
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
        write_package(lowered, output, _said(lowered, params, complete))
        renamed = _renamed((*lowered.inputs, *lowered.outputs))
        return Compiled(dict(_operators(lowered.program).most_common()), (*lowered.notes, *renamed))


def _said(lowered: Lowered, params: CoremlParams, manifest: Manifest) -> Said:
    """The metadata: the user's, Core ML's own, and ours."""
    entries = dict(params.metadata)
    if params.compute_units:
        entries[f"{KEY}.compute-units"] = params.compute_units
    if lowered.images:
        entries[PIXELS] = json.dumps({key: image._asdict() for key, image in lowered.images.items()})
    others = {
        "author": params.author,
        "license": params.license,
        "versionString": params.model_version,
        "shortDescription": params.description,
    }
    return Said(entries | {KEY: manifest.to_json()}, {name: text for name, text in others.items() if text})


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
