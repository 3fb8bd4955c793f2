"""The stages and targets of this package and of plugins. A worker is imported only when its stage starts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from pydantic import BaseModel

from onnxport.converters.params import PARAMS
from onnxport.core.errors import UsageError
from onnxport.core.plugins import Kind, installed
from onnxport.formats.artifact import SUFFIXES, Format
from onnxport.optimizers.params import ExtractParams, OptimizeParams
from onnxport.pipelines import plugins
from onnxport.pipelines.environment import RUNS_ON, require
from onnxport.pipelines.environment import TARGETS as TARGET_LIBRARIES
from onnxport.pipelines.stages import Stage, Worker
from onnxport.quantize.params import QuantizeParams


def _stage(
    name: str,
    params: type[BaseModel],
    libraries: tuple[str, ...],
    gives: Format = "onnx",
    *,
    rewrites: bool = False,
) -> Stage:
    """Return one of our stages; its worker has its name."""
    worker = f"onnxport.pipelines.workers:{name}"
    return Stage(name, params, "onnx", gives, libraries, worker, rewrites)


_REWRITING = ("tflite", "coreml")  # targets whose workers run optimizer passes
TARGETS: Mapping[str, Stage] = {
    name: _stage(name, PARAMS[name], TARGET_LIBRARIES[name], name, rewrites=name in _REWRITING)
    for name in SUFFIXES
    if name in PARAMS  # a format may have a runtime before it has a converter
}
QUANTIZE = replace(_stage("quantize", QuantizeParams, RUNS_ON["onnx"]), lowers=True)
OPTIMIZE = replace(_stage("optimize", OptimizeParams, RUNS_ON["onnx"]), checks_passes=True)
EXTRACT = _stage("extract", ExtractParams, RUNS_ON["onnx"])

# The steps that targets of a pipeline share.
STAGES: Mapping[str, Stage] = {stage.name: stage for stage in (OPTIMIZE, QUANTIZE)}


def target(name: str) -> Stage:
    """Return the stage of the target `name`, ours or a plugin's.

    Raises:
        UsageError, MissingDependencyError: there is none, or its plugin cannot be used.
    """
    return _find_stage(TARGETS, "target", name)


def shared_stage(name: str) -> Stage:
    """Return the shared step `name`, ours or a plugin's; raises as `target` does."""
    return _find_stage(STAGES, "stage", name)


def known_targets() -> tuple[str, ...]:
    """Return the names of targets, plugins last; imports no plugin."""
    return tuple(dict.fromkeys((*TARGETS, *(plugin.name for plugin in installed("target")))))


def known_stages() -> tuple[str, ...]:
    """Return the names of shared steps, plugins last; imports no plugin."""
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
    """Start the stage's worker; MissingDependencyError if one of its libraries is not installed."""
    require(stage.libraries, f"the step {stage.name!r}")
    return stage.started() if stage.provider is None else plugins.guard_worker(stage)
