"""Simplifiers of others as passes: ONNX Runtime's offline optimizer, and onnxsim if installed.

Each reads a file and writes one. The result is dropped unless it is sorted, has the signature, fewer nodes and no
unexpected domain.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.core.errors import MachineError, MissingDependencyError, OnnxportError
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.simplification.graph import ModelEditor, measure_size, simplification
from onnxport.runtimes.options import OrtLevel
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.offline_optimizer import write_optimized

# A larger model is not copied for a tool.
_LARGEST = 2**30  # bytes
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear")
_REFUSALS = tuple(
    getattr(state, name)
    for name in "EPFail Fail InvalidArgument InvalidGraph InvalidProtobuf NotImplemented RuntimeException".split()
)
_SECONDS = 600


@simplification("onnxruntime-basic")
def onnxruntime_basic(editor: ModelEditor) -> int:
    """Run ONNX Runtime's optimizer at level basic, which writes ONNX's own operators.

    Keeps: Models with Q and DQ, which it would move, and models with more than 1 GiB of weights.
    """
    return _run_onnxruntime(editor, "basic")


@simplification("onnxruntime-extended")
def onnxruntime_extended(editor: ModelEditor) -> int:
    """Run ONNX Runtime's optimizer at level extended, which writes fused operators of its domain com.microsoft.

    Keeps: As onnxruntime-basic.
    """
    return _run_onnxruntime(editor, "extended")


@simplification("onnxruntime-all")
def onnxruntime_all(editor: ModelEditor) -> int:
    """Run ONNX Runtime's optimizer at its highest level, for the processor of this machine: also blocked layouts
    (NCHWc).

    Keeps: As onnxruntime-basic.
    """
    changes = _run_onnxruntime(editor, "all")
    if changes:
        editor.note(
            "onnxruntime-all optimized the model for this processor: on others it may be slower, or not load"
        )
    return changes


def _run_onnxruntime(editor: ModelEditor, level: OrtLevel) -> int:
    name, path = f"onnxruntime-{level}", editor.folder / "simplified-by-tool.onnx"
    source = _save(editor, name)
    if source is None:
        return 0
    try:
        write_optimized(editor.model, source, path, level=level, threads=1, prepacking=False)
    except _REFUSALS as error:
        editor.note(f"pass {name!r} did nothing: ONNX Runtime says: {' '.join(str(error).split())[:200]}")
        return 0
    return _adopt(editor, name, path, microsoft=level != "basic")


@simplification("onnxruntime-transformers")
def onnxruntime_transformers(editor: ModelEditor) -> int:
    """Run ONNX Runtime's transformer optimizer, whose fused operators (Attention, SkipLayerNormalization, BiasGelu) are
    of its domain com.microsoft.

    Keeps: As onnxruntime-basic; models without Softmax and LayerNormalization; what ONNX Runtime then cannot load.
    """
    name, path = "onnxruntime-transformers", editor.folder / "simplified-by-tool.onnx"
    present = {node.op_type for node in editor.model.graph.all_nodes()}
    if not present >= _OF_TRANSFORMERS or "SkipLayerNormalization" in present:  # it ran before
        return 0
    source = _save(editor, name)
    if source is None or not _run_tool(editor, name, [_TRANSFORMERS, str(source), str(path)]):
        return 0
    try:
        open_session(path, level="disable", threads=1, prepacking=False)
    except _REFUSALS as error:
        editor.note(f"pass {name!r} was undone: ONNX Runtime says: {' '.join(str(error).split())[:200]}")
        return 0
    return _adopt(editor, name, path, microsoft=True)


_OF_TRANSFORMERS = frozenset(("Softmax", "LayerNormalization"))
# Its modules import each other by plain names, so they get their own process. Without the raw mask, Attention takes
# the mask's sum for a length, which is wrong for padding on the left.
_TRANSFORMERS = """
import logging, sys
logging.disable(logging.CRITICAL)
sys.modules["torch"] = None
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
options = FusionOptions("bert")
options.use_raw_attention_mask(True)
made = optimizer.optimize_model(sys.argv[1], "bert", optimization_options=options, opt_level=0)
made.save_model_to_file(sys.argv[2])
"""


@simplification("onnxsim")
def onnxsim(editor: ModelEditor) -> int:
    """Run onnxsim, if it is installed (pip install onnxsim), in a subprocess that does not import torch.

    Keeps: As onnxruntime-basic; results that cannot be sorted, or with operators that ONNX does not have.
    """
    if importlib.util.find_spec("onnxsim") is None:
        raise MissingDependencyError(
            "the pass 'onnxsim' needs onnxsim, which is not installed", fix="pip install onnxsim"
        )
    source = _save(editor, "onnxsim")
    if source is None:
        return 0
    path = editor.folder / "simplified-by-tool.onnx"
    if not _run_tool(editor, "onnxsim", [_ONNXSIM, str(source), str(path)]):
        return 0
    return _adopt(editor, "onnxsim", path, microsoft=False)


def _run_tool(editor: ModelEditor, name: str, program: Sequence[str]) -> bool:
    """Run Python code with its arguments in a process of its own; return whether it succeeded, else with a note."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", *program], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"{name} did not finish within {_SECONDS} s", fix=f"leave the pass out: --skip {name}"
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        editor.note(f"pass {name!r} did nothing: {reason[:200]}")
    return not done.returncode


# onnxsim imports torch if present, which takes seconds, and does not use it.
_ONNXSIM = """
import sys
sys.modules["torch"] = None
import onnx, onnxsim
model, _ = onnxsim.simplify(sys.argv[1])
onnx.save(model, sys.argv[2])
"""


def _save(editor: ModelEditor, name: str) -> Path | None:
    """Save the model for a tool; return None, with a note, if the tool must not get it."""
    if editor.model.weight_bytes > _LARGEST:
        editor.note(
            f"pass {name!r} was skipped: it would copy {editor.model.weight_bytes / 2**30:.1f} GiB of weights"
        )
        return None
    if any(node.op_type in _QUANTIZED for node in editor.model.graph.all_nodes()):
        editor.note(f"pass {name!r} was skipped: it would move the Q and DQ of this quantized model")
        return None
    path = editor.folder / "before-tool.onnx"
    editor.model.save(path)
    return path


def _adopt(editor: ModelEditor, name: str, path: Path, *, microsoft: bool) -> int:
    """Replace the model by a tool's result if that is smaller and valid; return how many nodes it saves."""
    try:
        made = Model.load(path)
    except OnnxportError as error:
        editor.note(f"pass {name!r} did nothing: what it wrote is not valid: {error}")
        return 0
    saved = measure_size(editor.model).nodes - measure_size(made).nodes
    if saved <= 0:
        return 0
    allowed = {"", "ai.onnx", *(node.domain for node in editor.model.graph.all_nodes())}
    if microsoft:
        allowed |= {"com.microsoft", "com.microsoft.nchwc"}
    nodes = list(made.graph.all_nodes())
    foreign = {node.domain for node in nodes} - allowed
    ops = (node.op_type for node in nodes if not node.domain)
    unknown = next((op for op in ops if not onnx.defs.has(op, made.opset, "")), None)
    if foreign or unknown:
        written = unknown or f"operators of {', '.join(sorted(foreign))}"
        editor.note(f"pass {name!r} was undone: it wrote {written}")
        return 0
    for attribute in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(made.ir, attribute, getattr(editor.model.ir, attribute))
    made.ir.metadata_props.update(editor.model.ir.metadata_props)
    made.graph.name = editor.model.graph.name
    made.path = editor.model.path
    editor.model = made
    editor.forget_names()
    shape_inference.infer(editor.model)
    return saved
