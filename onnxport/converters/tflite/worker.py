"""The compiler's side of a conversion, run in a child process (see isolation.Child).

Lowers, compiles, and checks what came out by loading and running it once, all of which can take a process down.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx_ir
from litert_converter import converter_api_ext
from litert_converter.mlir import ir, passmanager

from onnxport.converters.params import Layout
from onnxport.converters.tflite.check import check_runs, operators
from onnxport.converters.tflite.lower import Lowered, lower_model
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.errors import CannotConvertError
from onnxport.manifest import KEY, Manifest, Tap
from onnxport.model import Model

# Larger models are serialized straight into the file, to have their weights in memory once less.
_IN_MEMORY = 256 * 2**20


class Worker:
    """Answers `native_ops` and `compile`; made once per child."""

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that have a lowering; others may be decomposed."""
        return REGISTRY.ops

    def compile(self, model: Path, output: Path, layout: Layout, manifest: Manifest) -> dict[str, int]:
        """Converts the prepared ONNX file `model` to `output`; returns its operators counted by name.

        Raises:
            CannotConvertError: nodes without an equivalent, or a combination that the compiler or the
                interpreter refuses, in their words.
            MachineError: the file could not be written.
        """
        source = Model(onnx_ir.load(model), model)
        lowered = lower_model(source, layout)
        with lowered.builder.context, ir.Location.unknown():
            _run_passes(lowered)
            complete = replace(
                manifest, inputs=lowered.inputs, outputs=lowered.outputs, taps=_surviving_taps(lowered)
            )
            _embed(lowered.module, complete)
            _export(lowered.module, output, source.weight_bytes)
        check_runs(output)
        return operators(output)


def _run_passes(lowered: Lowered) -> None:
    config = converter_api_ext.ConvertToTFLConfig()
    # True would replace infinities in constants by the largest float, which masks count on.
    config.canonicalizing_inf_as_min_max_float = False
    try:
        converter_api_ext.run_convert_to_tfl_passes(lowered.module, passmanager.PassManager(), config)
    except (ValueError, RuntimeError, ir.MLIRError) as error:
        raise CannotConvertError("the LiteRT compiler refuses the model", why=_first_words(error)) from error


def _surviving_taps(lowered: Lowered) -> dict[str, Tap]:
    """The taps whose tensor is still computed after fusion, under a name that no other tensor has."""
    written = Counter(_leading_names(lowered.module))
    return {name: tap for name, tap in lowered.taps.items() if written[tap.key] == 1}


def _leading_names(module: ir.Module) -> Iterator[str]:
    """For each op its tensor's name up to the first semicolon, by which the exporter joins what it fused."""
    for function in module.body.operations:
        for operation in function.operation.regions[0].blocks[0].operations:
            named = re.match(r'loc\((?:fused\[)?"([^"]*)"', str(operation.location))
            if named:
                yield named.group(1)


def _embed(module: ir.Module, manifest: Manifest) -> None:
    note = ir.DictAttr.get({KEY: ir.StringAttr.get(manifest.to_json())})
    module.operation.attributes["tfl.metadata"] = note


def _export(module: ir.Module, output: Path, weight_bytes: int) -> None:
    try:
        if weight_bytes > _IN_MEMORY:
            converter_api_ext.export_flatbuffer_to_file(module.operation, str(output))
        else:
            # Python reports a full disk as what it is, the exporter does not.
            output.write_bytes(converter_api_ext.export_flatbuffer_to_bytes(module.operation))
    except (ValueError, RuntimeError) as error:
        raise CannotConvertError(
            "the LiteRT compiler cannot serialize the model", why=_first_words(error)
        ) from error


def _first_words(error: Exception) -> str:
    """The compiler's cause without its preamble and locations."""
    text = " ".join(str(error).split())
    text = re.sub(r"^(Failed to run converter passes: |Failed to export flatbuffer: )", "", text)
    return text[:400] or "it gives no reason"
