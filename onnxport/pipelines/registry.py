"""The stages and targets of this package, and those that plugins add.

A worker is imported when its stage starts: these declarations cost a `--help` nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import AbstractContextManager

from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.core.errors import UsageError
from onnxport.core.plugins import Kind, installed
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines import plugins
from onnxport.pipelines.environment import RUNS_ON, require
from onnxport.pipelines.environment import TARGETS as TARGET_LIBRARIES
from onnxport.pipelines.stages import Stage, Worker
from onnxport.quantize.params import QuantizeParams

TARGETS: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            "tflite",
            TfliteParams,
            takes="onnx",
            gives="tflite",
            libraries=TARGET_LIBRARIES["tflite"],
            worker="onnxport.pipelines.workers:tflite",
            rewrites=True,
        ),
        Stage(
            "coreml",
            CoremlParams,
            takes="onnx",
            gives="coreml",
            libraries=TARGET_LIBRARIES["coreml"],
            worker="onnxport.pipelines.workers:coreml",
            rewrites=True,
        ),
        Stage(
            "ort",
            OrtParams,
            takes="onnx",
            gives="ort",
            libraries=TARGET_LIBRARIES["ort"],
            worker="onnxport.pipelines.workers:ort",
        ),
    )
}

QUANTIZE = Stage(
    "quantize",
    QuantizeParams,
    takes="onnx",
    gives="onnx",
    libraries=RUNS_ON["onnx"],
    worker="onnxport.pipelines.workers:quantize",
    lowers=True,
)

OPTIMIZE = Stage(
    "optimize",
    OptimizeParams,
    takes="onnx",
    gives="onnx",
    libraries=RUNS_ON["onnx"],
    worker="onnxport.pipelines.workers:optimize",
    checks_passes=True,
)

# What a pipeline names as a step that targets share.
STAGES: Mapping[str, Stage] = {stage.name: stage for stage in (OPTIMIZE, QUANTIZE)}


def target(name: str) -> Stage:
    """The stage that makes what pipelines and `convert_model` call `name`, ours or a plugin's.

    Raises:
        UsageError: there is none.
        MissingDependencyError: the plugin that brings it cannot be used.
    """
    return _find_stage(TARGETS, "target", name)


def shared_stage(name: str) -> Stage:
    """The step that a pipeline uses by `name`, ours or a plugin's; raises as `target` does."""
    return _find_stage(STAGES, "stage", name)


def known_targets() -> tuple[str, ...]:
    """The names of targets, those of plugins last; imports none of these."""
    return tuple(dict.fromkeys((*TARGETS, *(plugin.name for plugin in installed("target")))))


def known_stages() -> tuple[str, ...]:
    """The names of shared steps, those of plugins last; imports none of these."""
    return tuple(dict.fromkeys((*STAGES, *(plugin.name for plugin in installed("stage")))))


def _find_stage(ours: Mapping[str, Stage], kind: Kind, name: str) -> Stage:
    found = plugins.find(kind, name) or ours.get(name)
    if found is None:
        known = known_targets() if kind == "target" else known_stages()
        near = difflib.get_close_matches(name, known, n=1)
        wanted = f"did you mean {near[0]!r}?" if near else f"{kind}s are {', '.join(known)}"
        raise UsageError(f"there is no {kind} {name!r}", fix=wanted)
    return found


def open_worker(stage: Stage) -> AbstractContextManager[Worker]:
    """Starts the stage's worker.

    Raises:
        MissingDependencyError: a library is not installed here.
    """
    require(stage.libraries, f"the step {stage.name!r}")
    return stage.started() if stage.provider is None else plugins.guard_worker(stage)
