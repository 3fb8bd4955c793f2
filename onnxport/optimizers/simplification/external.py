"""Simplifiers of others, as passes: ONNX Runtime's offline optimizer, and onnxsim where it is installed.

Each reads a file and writes one. What comes back is held against what went in: nodes in their order, the signature, no
domain that was not asked for, and fewer nodes, or else it is dropped.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import onnx
import onnx_ir as ir
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxport.core.errors import MachineError, MissingDependencyError, OnnxportError
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.simplification.graph import Scene
from onnxport.optimizers.simplification.registry import simplification
from onnxport.optimizers.simplification.size import size_of
from onnxport.runtimes.options import OrtLevel
from onnxport.runtimes.ort.inference_session import open_session

# Of more, a tool would have to be handed a copy.
_LARGEST = 2**30  # bytes
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear")
_REFUSALS = (
    state.EPFail,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NotImplemented,
    state.RuntimeException,
)
_SECONDS = 600


@simplification(
    "onnxruntime-basic",
    "What ONNX Runtime's optimizer does at its level basic: in ONNX's own operators.",
    keeps="Models with Q and DQ, which it would put elsewhere, and those with more than 1 GiB of weights.",
)
def onnxruntime_basic(scene: Scene) -> int:
    return _by_onnxruntime(scene, "onnxruntime-basic", "basic")


@simplification(
    "onnxruntime-extended",
    "What ONNX Runtime's optimizer does at its level extended: fused operators of its own domain, com.microsoft.",
    keeps="As onnxruntime-basic.",
)
def onnxruntime_extended(scene: Scene) -> int:
    return _by_onnxruntime(scene, "onnxruntime-extended", "extended", microsoft=True)


@simplification(
    "onnxruntime-all",
    "All that ONNX Runtime's optimizer does, for the processor of this machine: its blocked layouts (NCHWc) as well.",
    keeps="As onnxruntime-basic.",
)
def onnxruntime_all(scene: Scene) -> int:
    changes = _by_onnxruntime(scene, "onnxruntime-all", "all", microsoft=True)
    if changes:
        scene.note(
            "onnxruntime-all made the model for this processor: elsewhere it may be slower, or not load"
        )
    return changes


def _by_onnxruntime(scene: Scene, name: str, level: OrtLevel, *, microsoft: bool = False) -> int:
    source = _written(scene, name)
    if source is None:
        return 0
    path = scene.folder / "simplified-by-tool.onnx"
    try:
        open_session(source, level=level, threads=1, prepacking=False, optimized=path)
    except _REFUSALS as error:
        scene.note(f"pass {name!r} did nothing: ONNX Runtime says: {' '.join(str(error).split())[:200]}")
        return 0
    return _taken_over(scene, name, path, microsoft=microsoft)


@simplification(
    "onnxsim",
    "What onnxsim does, if it is installed (pip install onnxsim): in a process of its own, which does not see torch.",
    keeps="As onnxruntime-basic; results that cannot be sorted, or with operators that ONNX does not have.",
)
def onnxsim(scene: Scene) -> int:
    if importlib.util.find_spec("onnxsim") is None:
        raise MissingDependencyError(
            "the pass 'onnxsim' needs onnxsim, which is not installed", fix="pip install onnxsim"
        )
    source = _written(scene, "onnxsim")
    if source is None:
        return 0
    path = scene.folder / "simplified-by-tool.onnx"
    command = [sys.executable, "-c", _ONNXSIM, str(source), str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"onnxsim was not ready after {_SECONDS} s", fix="take the pass 'onnxsim' out of the list"
        ) from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        scene.note(f"pass 'onnxsim' did nothing: {said[:200]}")
        return 0
    return _taken_over(scene, "onnxsim", path, microsoft=False)


# torch, which onnxsim imports where it finds it, takes seconds and is not used.
_ONNXSIM = """
import sys
sys.modules["torch"] = None
import onnx, onnxsim
model, _ = onnxsim.simplify(sys.argv[1])
onnx.save(model, sys.argv[2])
"""


def _written(scene: Scene, name: str) -> Path | None:
    """The model as a file; None, and a note, for one that the tool is not given."""
    if scene.model.weight_bytes > _LARGEST:
        scene.note(
            f"pass {name!r} was left out: it would copy {scene.model.weight_bytes / 2**30:.1f} GiB of weights"
        )
        return None
    if any(node.op_type in _QUANTIZED for node in scene.model.graph.all_nodes()):
        scene.note(f"pass {name!r} was left out: it would put the Q and DQ of this quantized model elsewhere")
        return None
    path = scene.folder / "before-tool.onnx"
    scene.model.save(path)
    return path


def _taken_over(scene: Scene, name: str, path: Path, *, microsoft: bool) -> int:
    """Puts what a tool wrote in the model's place, if it is smaller and sound; how many nodes it saves."""
    try:
        made = Model.load(path)
    except OnnxportError as error:
        scene.note(f"pass {name!r} did nothing: what it wrote is not valid: {error}")
        return 0
    saved = size_of(scene.model).nodes - size_of(made).nodes
    allowed = {"", "ai.onnx", *(node.domain for node in scene.model.graph.all_nodes())}
    if microsoft:
        allowed |= {"com.microsoft", "com.microsoft.nchwc"}
    foreign = {node.domain for node in made.graph.all_nodes()} - allowed
    unknown = next((node.op_type for node in made.graph.all_nodes() if not _is_known(node, made.opset)), None)
    if saved <= 0:
        return 0
    if foreign or unknown:
        what = unknown or f"operators of {', '.join(sorted(foreign))}"
        scene.note(f"pass {name!r} was undone: it wrote {what}")
        return 0
    for attribute in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(made.ir, attribute, getattr(scene.model.ir, attribute))
    made.ir.metadata_props.update(scene.model.ir.metadata_props)
    made.graph.name = scene.model.graph.name
    made.path = scene.model.path
    scene.model = made
    scene.forget_names()
    shape_inference.infer(scene.model)
    return saved


def _is_known(node: ir.Node, opset: int) -> bool:
    """Whether ONNX has an operator of its own domain by that name; of other domains it is not ours to say."""
    return bool(node.domain) or onnx.defs.has(node.op_type, opset, "")
