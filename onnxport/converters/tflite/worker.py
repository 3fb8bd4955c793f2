"""The child's side of a conversion (core/child_process.py): lowers, compiles, and runs the result once.

Each of these steps can crash the process.
"""

from __future__ import annotations

import gc
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from litert_converter import converter_api_ext
from litert_converter.mlir import ir, passmanager

from onnxport.converters.result import Compiled, custom_names
from onnxport.converters.tflite.fit.module import fit_module
from onnxport.converters.tflite.load_check import check_runs, count_operators
from onnxport.converters.tflite.locations import names_in
from onnxport.converters.tflite.lower import Lowered, lower_model
from onnxport.converters.tflite.metadata.labels import LabelFile
from onnxport.converters.tflite.metadata.quantization import rename_note
from onnxport.converters.tflite.metadata.writer import pack_labels, write_metadata
from onnxport.converters.tflite.quantized.integer_kernels import describe_products
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.repairs import repair_branches, separate_results, widen_biases
from onnxport.converters.tflite.settings import Settings
from onnxport.converters.tflite.storage.source_weights import Stored
from onnxport.converters.tflite.storage.weights import store_weights
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.formats.manifest import KEY, Manifest, Tap
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY
from onnxport.formats.tflite.labels import NAME
from onnxport.formats.tflite.tensor_names import INNER

_CONSTANTS = frozenset(("arith.constant", "tfl.no_value", "tfl.pseudo_const", "tfl.pseudo_qconst"))
# Larger models are serialized straight into the file, which saves one copy of the weights in memory.
_IN_MEMORY = 256 * 2**20


class Worker:
    """The child's side; made once per child."""

    def native_ops(self) -> frozenset[str]:
        """Return the ONNX operators that have a lowering; others may be decomposed."""
        return REGISTRY.ops

    def compile(
        self,
        model: Path,
        output: Path,
        settings: Settings,
        manifest: Manifest,
        stored: Collection[Stored] = (),
        labels: Collection[LabelFile] = (),
        tries: bool = True,
    ) -> Compiled:
        """Convert the prepared ONNX file `model` to `output`.

        Args:
            stored: the weights that the source stores in fewer bits.
            labels: files to pack into the artefact.
            tries: whether to run the artefact once, which finds what no interpreter takes.

        Raises:
            CannotConvertError: a node without an equivalent, or a refusal of the compiler or the interpreter.
            MachineError: the file could not be written.
        """
        notes, ends = _compile(Model.received(model), output, settings, manifest, stored, labels)
        pack_labels(output, labels)
        counts = count_operators(output)
        if tries and not custom_names(counts):
            # Frees the module before the file is loaded; the builder is part of a reference cycle.
            gc.collect()
            check_runs(output, ends=ends, solve=lambda: _solve_sizes(model))
        return Compiled(counts, notes)


def _solve_sizes(path: Path) -> Iterator[Mapping[str, Sequence[int]]]:
    """Yield sizes of the open dimensions that all operators of the prepared model accept."""
    from onnxport.samples.sizes import OpenSizes  # few models have open sizes, and it reads samples, too

    model = Model.received(path)
    return OpenSizes(model.inputs, {spec.name: spec.shape for spec in model.inputs}, graph=model).proposals(1)


def _compile(
    source: Model,
    output: Path,
    settings: Settings,
    manifest: Manifest,
    stored: Collection[Stored],
    labels: Collection[LabelFile],
) -> tuple[tuple[str, ...], bool]:
    """Compile `source` into `output`; return notes, and whether the model surely terminates."""
    size = source.weight_bytes  # lowering frees the weights
    note = rename_note(source)
    lowered = lower_model(source, settings)
    with lowered.builder.context, ir.Location.unknown():
        _run_passes(lowered)
        ports = lowered.inputs, lowered.outputs
        fitted = fit_module(lowered.builder, lowered.module, *ports) if settings.fit else ()
        separate_results(lowered.builder, lowered.module)
        complete = replace(manifest, inputs=ports[0], outputs=ports[1], taps=_name_tensors(lowered))
        if lowered.custom:  # LiteRT cannot run it
            complete = replace(complete, validation="skipped")
        weights = store_weights(lowered.module, settings.precision, stored, on_gpu=bool(settings.fit))
        notes = lowered.notes + fitted + weights
        if lowered.builder.quantized.present:
            notes += describe_products(_operations(lowered.module))
        entries = {KEY: ir.StringAttr.get(complete.to_json())}
        if note is not None:
            entries[NOTE_KEY] = ir.StringAttr.get(note)
        if labels or settings.normalization:
            metadata = write_metadata(output.stem, *ports, settings.normalization, labels)
            entries[NAME] = ir.StringAttr.get(metadata)
        lowered.module.operation.attributes["tfl.metadata"] = ir.DictAttr.get(entries)
        _export(lowered.module, output, size)
        repair_branches(lowered.module, output)
        if "int16" in lowered.builder.quantized.storage:
            widen_biases(output)
    return notes, not lowered.builder.may_not_end


def _run_passes(lowered: Lowered) -> None:
    config = converter_api_ext.ConvertToTFLConfig()
    # True would replace infinities in constants by the largest float; masks need infinities.
    config.canonicalizing_inf_as_min_max_float = False
    if lowered.builder.quantized.present:
        config.qdq_conversion_mode = "STATIC"
        # Otherwise the compiler quantizes ops that the model computes in floats.
        config.strict_qdq_mode = True
    try:
        converter_api_ext.run_convert_to_tfl_passes(lowered.module, passmanager.PassManager(), config)
    except (ValueError, RuntimeError, ir.MLIRError) as error:
        refusals = [_refusal(found) for found in _ILLEGAL.finditer(str(error))]
        why = "" if refusals else _summarize(error)
        raise CannotConvertError(
            "the LiteRT compiler refuses the model", why=why, refusals=refusals
        ) from error


# The compiler's message on an op whose types or ranks no kernel takes.
_ILLEGAL = re.compile(
    r"error: (?:loc\((?P<place>.*?)\): )?failed to legalize operation 'tfl\.(?P<op>\w+)'.*? : (?P<types>\(.*?\) -> \S+)"
)


def _refusal(found: re.Match[str]) -> Refusal:
    named = re.search(r'"([^"]*)"', found["place"] or "")
    why = f"TFLite's kernel does not take {found['types'].replace('tensor', '')}"
    return Refusal(found["op"].upper(), named[1].removesuffix(INNER) if named else "", why)


# A type with one scale for the whole tensor.
_QUANTIZED = re.compile(
    r"!quant\.uniform<[iu]\d+(?:<[^>]*>)?:f32, (?P<scale>[^:,{>]+)(?::(?P<zero_point>-?\d+))?>"
)


def _name_tensors(lowered: Lowered) -> dict[str, Tap]:
    """Give the tensors that hold an ONNX value its plain name, and no other tensor; return the remaining taps.

    Fusion joins names ("relu;norm;conv"), keeps them on constants that it folded, and puts one name on several ops.
    The exporter then numbers tensors of one name, and a numbered name may be another value's.
    """
    named: dict[str, list[ir.Operation]] = {}
    for operation in _operations(lowered.module):
        names = list(names_in(operation.location))
        operation.location = ir.Location.unknown()
        if names and operation.name not in _CONSTANTS:
            # A fused op gives what is computed last, whatever the order of the names.
            last = max(names, key=lambda name: lowered.sequence.get(name, -1))
            operation.location = ir.Location.name(last.removesuffix(INNER) + INNER)
            named.setdefault(last, []).append(operation)
    grids: dict[str, tuple[float, int]] = {}
    for name, (operation, *others) in named.items():
        grid = None if others else _grid(str(operation.results[0].type), str(lowered.types.get(name)))
        if grid is not None:
            grids[name] = grid
            operation.location = ir.Location.name(name)
    return {
        value: replace(tap, scale=grids[tap.key][0], zero_point=grids[tap.key][1])
        for value, tap in lowered.taps.items()
        if tap.key in grids
    }


def _grid(held: str, wanted: str) -> tuple[float, int] | None:
    """Return scale and zero point by which a tensor of one type holds a value of another; None where it does not.

    The scale of an equal type is 0. Integer kernels give the integers of a float value.
    """
    if held == wanted:
        return 0.0, 0
    found = _QUANTIZED.search(held)
    if found is None or held.replace(found[0], "f32") != wanted:
        return None
    return _number(found["scale"]), int(found["zero_point"] or 0)


def _number(text: str) -> float:
    """Return a float that MLIR printed: in decimals, or as the bits of a double where six digits do not hold it."""
    if not text.startswith("0x"):
        return float(text)
    (found,) = struct.unpack(">d", bytes.fromhex(text[2:]))
    return float(found)


def _operations(module: ir.Module) -> Iterator[ir.Operation]:
    for function in module.body.operations:
        yield from (each.operation for each in function.operation.regions[0].blocks[0].operations)


def _export(module: ir.Module, output: Path, weight_bytes: int) -> None:
    try:
        if weight_bytes > _IN_MEMORY:
            converter_api_ext.export_flatbuffer_to_file(module.operation, str(output))
        else:
            # Python reports a full disk as such, the exporter does not.
            output.write_bytes(converter_api_ext.export_flatbuffer_to_bytes(module.operation))
    except (ValueError, RuntimeError) as error:
        what = "the LiteRT compiler cannot serialize the model"
        raise CannotConvertError(what, why=_summarize(error)) from error


def _summarize(error: Exception) -> str:
    """Return the start of the compiler's message without its preamble."""
    text = " ".join(str(error).split())
    text = re.sub(r"^(Failed to run converter passes|Failed to export flatbuffer): ?", "", text)
    return text[:400] or "it gives no reason"
