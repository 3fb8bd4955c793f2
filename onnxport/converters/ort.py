"""ONNX -> .ort, ONNX Runtime's own format, and beside it the list of operators for a reduced build.

ONNX Runtime optimizes and saves the model with the settings of its own converter tool
(onnxruntime/tools/convert_onnx_models_to_ort.py, style "Fixed"). Unlike the tool, we write nothing into the model's
folder, the same bytes every time, and no paths into the operator list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.converters import required_operators, webgpu_fit
from onnxport.converters.constant_growth import constant_bytes, format_size, has_narrow_constants
from onnxport.converters.params import OrtParams
from onnxport.converters.precisions import check_precision
from onnxport.core.arrays import Feeds
from onnxport.core.errors import CannotConvertError, InputError, MachineError, Refusal
from onnxport.formats import ort_file
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import Manifest
from onnxport.formats.model import Model
from onnxport.optimizers.float16.conversion import to_float16
from onnxport.runtimes.options import OrtLevel
from onnxport.runtimes.ort.offline_optimizer import write_optimized

# It arranges weights in blocks as wide as this machine's vector registers: such a file runs on no other kind of
# CPU, and it comes out differently from run to run. ONNX Runtime's tool leaves it out for the same reason.
_MACHINE_BOUND = ["NchwcTransformer"]
# ONNX Runtime's exceptions have no common base.
_REFUSALS = (
    state.EPFail,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.NotImplemented,
    state.RuntimeException,
)
# Locations in ONNX Runtime's messages: "[ONNXRuntimeError] : 1 : FAIL : ", "y.cc:12 f ",
# "/onnxruntime_src/x.h:46 void f(int) ".
_LOCATION = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|"
    r"/onnxruntime_src/\S+:\d+ [^()]*\((?:[^()]|\([^()]*\))*\) (?:const )?|\b\w+\.(?:cc|h):\d+ \S+ "
)
_NEWER_OPSET = re.compile(r"Opset (\d+) is under development.*is till opset (\d+)")
_INFERENCE = re.compile(r"\[(?:Shape|Type)InferenceError\] ")
# ONNX Runtime's words for a model that it could not run either.
_INVALID = ("ShapeInferenceError", "TypeInferenceError", "Type Error", "This is an invalid model")

_PURPOSE = (
    "an .ort file saves runtime size, not time: build ONNX Runtime with --include_ops_by_config "
    "FILE.required_operators.config --enable_reduced_operator_type_support"
)
_LEVEL = (
    "saved with basic graph optimization: with more, ONNX Runtime stores float16 weights as float32 on a CPU without "
    "float16 kernels, and the file is as large as before"
)
_LEVEL_OF_WEBGPU = "saved with basic graph optimization: with more, convolutions are fused for the CPU"
_FOLDING = ("ConstantFolding",)
# What no note need explain: times the source's size, and bytes.
_USUAL, _LEAST = 1.15, 64 * 2**10
_GROWN = "the file stores {} of constants that the source computes in every run"
_LARGER = (
    "of the file's {}, {} are constants (of the source's, {}) and {} describe the graph: the format has a record for "
    "each value and operator, and writes each integer of a list in 8 bytes"
)
_KEPT = "stored numbers keep their few bits and are widened in every run, where ONNX Runtime would store them wide"
_LACKING = (
    "ONNX Runtime's tool left operators out of {} that the model needs: {}; add them before you build with it"
)
# With more, ONNX Runtime stores float16 weights as float32 on a CPU without float16 kernels.
_MOST_IN_FLOAT16: OrtLevel = "basic"


def convert(
    model: Model, output: Path, params: OrtParams, manifest: Manifest, samples: Sequence[Feeds] = ()
) -> tuple[Artifact, tuple[str, ...], dict[str, Any]]:
    """Write `model` to `output` and its operator list beside it; return both with notes and facts.

    Args:
        samples: inputs on which a conversion to float16 measures peaks; generated ones if empty.

    Raises:
        CannotConvertError: ONNX Runtime refuses the model, it is too large for the format, or nothing of it can be
            float16.
        UsageError: a precision that the model does not have.
        MachineError: the disk is full.
    """
    check_precision(model, params.precision)
    notes, facts = [], dict[str, Any]()
    if params.precision == "fp16":
        half = to_float16(model, output.parent, samples)
        model, manifest = half.model, replace(manifest, islands=half.islands)
        notes, facts = [*half.notes], dict(half.facts)
        if params.level not in ("disable", _MOST_IN_FLOAT16):
            params = params.model_copy(update={"level": _MOST_IN_FLOAT16})
            notes.append(_LEVEL)
    if params.fit:
        model, changes = webgpu_fit.fit(model)
        notes += changes
        if params.level not in ("disable", "basic"):
            params = params.model_copy(update={"level": "basic"})
            notes.append(_LEVEL_OF_WEBGPU)
    data = model.noted(manifest).to_bytes()
    if data is None:
        what = f"{model.path} cannot be converted to ONNX Runtime format"
        raise CannotConvertError(what, why="the format holds at most 2 GB, weights included")
    try:
        written, grown = _save(model, data, params.level, output.with_name("raw.ort"))
    except _REFUSALS as error:
        raise _explain(model, output, error) from error
    notes += [*grown, _PURPOSE]
    config = output.with_name(f"{output.stem}{required_operators.SUFFIX}")
    nodes: tuple[required_operators.Use, ...] = ()
    try:
        session = ort_file.read(written)
        nodes = tuple(required_operators.find_uses(session))
        facts["nodes"] = len(session["model"]["graph"]["nodes"])
        notes += [] if grown else _describe_size(model, len(data), session, len(written))
        output.write_bytes(ort_file.write(session))
    except ValueError as error:  # the format is newer than our schema
        notes.append(f"{output.name} may have other bytes in the next run: {error}")
        output.write_bytes(written)
    needed = required_operators.write_list([output])
    config.write_text(needed)
    if lacking := required_operators.parse_list(needed).lacks(nodes):
        notes.append(_LACKING.format(config.name, ", ".join(lacking)))
    return Artifact(output, "ort", (config,)), tuple(notes), facts


def _save(model: Model, data: bytes, level: OrtLevel, scratch: Path) -> tuple[bytes, list[str]]:
    """Return the file in ONNX Runtime's format, and notes on its size.

    Constants that ONNX Runtime computes ahead can be much larger than what they are made of. Where that widens stored
    numbers, it is left to run time.
    """
    written = _optimize(model, data, level, scratch)
    if len(written) <= max(_USUAL * len(data), len(data) + _LEAST) or level == "disable":
        return written, []
    if not has_narrow_constants(model):
        unfolded = _optimize(model, data, level, scratch, _FOLDING)
        more = len(written) - len(unfolded)
        return written, [_GROWN.format(format_size(more))] if more > _LEAST else []
    # In the order of speed.
    for at, without, note in ((level, _FOLDING, _KEPT), (_MOST_IN_FLOAT16, _FOLDING, f"{_KEPT}; {_LEVEL}")):
        smaller = _optimize(model, data, at, scratch, without)
        if len(smaller) <= _USUAL * len(data):
            return smaller, [note]
    return written, []


def _describe_size(model: Model, before: int, session: dict[str, Any], after: int) -> list[str]:
    """Return a note on what fills a file that is larger than its source for no other known reason."""
    if after <= _USUAL * before:
        return []
    constants = sum(map(_tensor_bytes, session["model"]["graph"].get("initializers", ())))
    sizes = map(format_size, (after, constants, constant_bytes(model), max(after - constants, 0)))
    return [_LARGER.format(*sizes)]


def _tensor_bytes(tensor: dict[str, Any]) -> int:
    texts = sum(len(text) for text in tensor.get("string_data", ()))
    return texts + len(tensor.get("raw_data", b""))


def _optimize(model: Model, data: bytes, level: OrtLevel, path: Path, disabled: Sequence[str] = ()) -> bytes:
    """Return what ONNX Runtime saves by way of the file `path`."""
    write_optimized(
        model,
        data,
        path,
        level=level,
        threads=1,
        # qdqisint8allowed as the tool sets it; the default depends on the CPU that converts.
        config={"session.save_model_format": "ORT", "session.qdqisint8allowed": "0"},
        disabled_optimizers=[*_MACHINE_BOUND, *disabled],
    )
    written = path.read_bytes()
    path.unlink()
    return written


def _explain(model: Model, output: Path, error: Exception) -> CannotConvertError | InputError | MachineError:
    """Translate ONNX Runtime's exception into an error for the user."""
    message = _LOCATION.sub("", " ".join(str(error).split()))
    if newer := _NEWER_OPSET.search(message):
        opset, known = newer.groups()
        return InputError(
            f"{model.path} has opset {opset}, newer than ONNX Runtime {onnxruntime.__version__} knows ({known})",
            fix=f"export it with opset {known} or older",
        )
    if "Failed to save ORT format model" in message:
        return MachineError(
            f"{output.name} cannot be written",
            why="ONNX Runtime could not save it",
            fix="free some space or give -o a path on another disk",
        )
    what = f"{model.path} cannot be converted to ONNX Runtime format"
    if refusals := _unknown_operators(model):
        count = f"ONNX Runtime does not know {len(refusals)} of its nodes' operators"
        return CannotConvertError(f"{what}, {count}", refusals=refusals)
    if any(words in message for words in _INVALID):
        return InputError(
            f"{model.path} is not a valid ONNX model",
            why=f"ONNX Runtime says: {_INFERENCE.sub('', message)[:300]}",
            fix="repair this node's inputs, or export the model again",
        )
    return CannotConvertError(what, why=f"ONNX Runtime says: {message[:300]}")


def _unknown_operators(model: Model) -> list[Refusal]:
    """List the nodes whose operator neither ONNX Runtime nor the model itself defines."""
    known = {(schema.domain, schema.name) for schema in state.get_all_operator_schema()}
    known |= {(domain, name) for domain, name, _ in model.ir.functions}
    return [
        Refusal(
            node.op_type,
            node.name or node.outputs[0].name or "",
            f"no operator of {node.domain}; --custom-ops-library FILE gives its kernels"
            if node.domain
            else "no operator of ONNX",
        )
        for node in model.graph.all_nodes()
        if (node.domain, node.op_type) not in known
    ]
