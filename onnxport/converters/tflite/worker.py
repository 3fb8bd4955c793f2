"""The compiler's side of a conversion, run in a child process (see isolation.Child).

Lowers, compiles, and checks what came out by loading and running it once, all of which can take a process down.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from litert_converter import converter_api_ext
from litert_converter.mlir import ir, passmanager

from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite.control.repairs import mend_branches, separate_results
from onnxport.converters.tflite.load_check import check_runs, operators
from onnxport.converters.tflite.lower import Lowered, lower_model
from onnxport.converters.tflite.metadata.labels import LabelFile
from onnxport.converters.tflite.metadata.writer import NAME, metadata, pack
from onnxport.converters.tflite.quantized.integer_kernels import integer_kernels
from onnxport.converters.tflite.quantized.wide_biases import widen_biases
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.result import Compiled, custom_names
from onnxport.converters.tflite.storage.source_weights import Stored
from onnxport.converters.tflite.storage.weights import store_weights
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.formats.manifest import KEY, Manifest, Tap
from onnxport.formats.model import Model
from onnxport.formats.tflite.tensor_names import INNER

_CONSTANTS = frozenset(("arith.constant", "tfl.no_value", "tfl.pseudo_const", "tfl.pseudo_qconst"))
# Larger models are serialized straight into the file, to have their weights in memory once less.
_IN_MEMORY = 256 * 2**20


class Worker:
    """Answers `native_ops` and `compile`; made once per child."""

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that have a lowering; others may be decomposed."""
        return REGISTRY.ops

    def compile(
        self,
        model: Path,
        output: Path,
        params: TfliteParams,
        manifest: Manifest,
        stored: Collection[Stored] = (),
        labels: Collection[LabelFile] = (),
    ) -> Compiled:
        """Converts the prepared ONNX file `model` to `output`.

        Args:
            stored: what the source holds in fewer bits.
            labels: files to pack into the artefact.

        Raises:
            CannotConvertError: nodes without an equivalent, or a combination that the compiler or the
                interpreter refuses, in their words.
            MachineError: the file could not be written.
        """
        notes, ends = _written(Model.received(model), output, params, manifest, stored, labels)
        pack(output, labels)
        # The module and the file that is run need not lie in memory together; the builder is part of a cycle.
        gc.collect()
        counts = operators(output)
        if not custom_names(counts):
            check_runs(output, ends=ends)
        return Compiled(counts, notes)


def _written(
    source: Model,
    output: Path,
    params: TfliteParams,
    manifest: Manifest,
    stored: Collection[Stored],
    labels: Collection[LabelFile],
) -> tuple[tuple[str, ...], bool]:
    """Compiles `source` into `output`; what to say of it, and whether it surely comes to an end."""
    size = source.weight_bytes
    lowered = lower_model(source, params)
    with lowered.builder.context, ir.Location.unknown():
        _run_passes(lowered)
        separate_results(lowered.builder, lowered.module)
        complete = replace(
            manifest, inputs=lowered.inputs, outputs=lowered.outputs, taps=_name_tensors(lowered)
        )
        if lowered.custom:  # nobody here can run it
            complete = replace(complete, validation="skipped")
        notes = lowered.notes + store_weights(lowered.module, params.precision, stored)
        if lowered.builder.quantized.present:
            notes += integer_kernels(_operations(lowered.module))
        described = None
        if labels or params.normalization:
            ports = (complete.inputs, complete.outputs)
            described = metadata(output.stem, *ports, params.normalization, labels)
        _embed(lowered.module, complete, described)
        _export(lowered.module, output, size)
        mend_branches(lowered.module, output)
        if "int16" in lowered.builder.quantized.storage:
            widen_biases(output)
    return notes, not lowered.builder.may_not_end


def _run_passes(lowered: Lowered) -> None:
    config = converter_api_ext.ConvertToTFLConfig()
    # True would replace infinities in constants by the largest float, which masks count on.
    config.canonicalizing_inf_as_min_max_float = False
    if lowered.builder.quantized.present:
        config.qdq_conversion_mode = "STATIC"
        # Otherwise quantization spreads to ops that the model computes in floats.
        config.strict_qdq_mode = True
    try:
        converter_api_ext.run_convert_to_tfl_passes(lowered.module, passmanager.PassManager(), config)
    except (ValueError, RuntimeError, ir.MLIRError) as error:
        refusals = [_refusal(found) for found in _ILLEGAL.finditer(str(error))]
        why = "" if refusals else _first_words(error)
        raise CannotConvertError(
            "the LiteRT compiler refuses the model", why=why, refusals=refusals
        ) from error


# What the compiler says of an op on types or ranks that no kernel takes.
_ILLEGAL = re.compile(
    r"error: (?:loc\((?P<place>.*?)\): )?failed to legalize operation 'tfl\.(?P<op>\w+)'.*? : (?P<types>\(.*?\) -> \S+)"
)


def _refusal(found: re.Match[str]) -> Refusal:
    named = re.search(r'"([^"]*)"', found["place"] or "")
    node = named.group(1).removesuffix(INNER) if named else ""
    return Refusal(
        found["op"].upper(), node, f"TFLite's kernel does not take {found['types'].replace('tensor', '')}"
    )


def _name_tensors(lowered: Lowered) -> dict[str, Tap]:
    """Gives the tensors that hold an ONNX value its plain name, and names no other tensor so.

    Fusion joins names ("relu;norm;conv"), leaves them on the constants that it folded too, and puts one name on
    several ops; the exporter then tells tensors of one name apart by numbers, which may be other values' names.
    Returns the taps that are left.
    """
    named: dict[str, list[ir.Operation]] = {}
    for operation in _operations(lowered.module):
        names = list(_names(operation.location))
        operation.location = ir.Location.unknown()
        if names and operation.name not in _CONSTANTS:
            # Of what was fused the op gives what is computed last, in whatever order the names stand.
            last = max(names, key=lambda name: lowered.sequence.get(name, -1))
            operation.location = ir.Location.name(last.removesuffix(INNER) + INNER)
            named.setdefault(last, []).append(operation)
    holders = {
        name: operations[0]
        for name, operations in named.items()
        if len(operations) == 1 and operations[0].results[0].type == lowered.types.get(name)
    }
    for name, operation in holders.items():
        operation.location = ir.Location.name(name)
    return {value: tap for value, tap in lowered.taps.items() if tap.key in holders}


def _operations(module: ir.Module) -> Iterator[ir.Operation]:
    for function in module.body.operations:
        yield from (each.operation for each in function.operation.regions[0].blocks[0].operations)


def _names(location: ir.Location) -> Iterator[str]:
    """All names in a location, however fused."""
    if hasattr(location, "locations"):
        for part in location.locations:
            yield from _names(part)
    elif hasattr(location, "name_str"):
        yield location.name_str


def _embed(module: ir.Module, manifest: Manifest, described: bytes | None) -> None:
    notes = {KEY: ir.StringAttr.get(manifest.to_json())}
    if described is not None:
        notes[NAME] = ir.StringAttr.get(described)
    module.operation.attributes["tfl.metadata"] = ir.DictAttr.get(notes)


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
    text = re.sub(r"^(Failed to run converter passes|Failed to export flatbuffer): ?", "", text)
    return text[:400] or "it gives no reason"
