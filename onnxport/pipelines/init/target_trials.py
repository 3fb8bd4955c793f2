"""Finds the targets that accept a model, by converting it once for each, without a proof."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from onnxport.core.errors import CannotConvertError, MachineError, UsageError, printable
from onnxport.formats.artifact import SUFFIXES, Artifact
from onnxport.formats.manifest import Manifest
from onnxport.pipelines.environment import RUNS_ON, missing
from onnxport.pipelines.environment import TARGETS as LIBRARIES
from onnxport.pipelines.registry import TARGETS, open_worker
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.model_sources import load, reading
from onnxport.pipelines.stages import Work

# Bytes of weights. A larger model would take minutes; it is assumed to convert.
_LARGEST = 256 * 2**20


def missing_targets() -> dict[str, str]:
    """Return the targets that cannot be made and proven on this machine, with the remedy."""
    absent = {name: missing(dict.fromkeys((*LIBRARIES[name], *RUNS_ON[name]))) for name in TARGETS}
    return {
        name: f"{each[0].name} is not installed; {each[0].remedy}" for name, each in absent.items() if each
    }


def refusals(model: Artifact, targets: Collection[str], progress: Progress | None = None) -> dict[str, str]:
    """Return the `targets` that refuse the model, with the reason.

    Raises:
        InputError: ONNX Runtime cannot load it.
    """
    if model.size > _LARGEST:
        return {}
    clock = Clock(progress)
    refused = {}
    with tempfile.TemporaryDirectory(prefix="onnxport-init-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(open_worker(TARGETS[name])) for name in targets}
        with clock.phase("load"), reading(model):
            graph, whole = load(model)
        for name, worker in workers.items():
            stage = TARGETS[name]
            output = Path(folder, name, f"model{SUFFIXES[stage.gives]}")
            output.parent.mkdir()
            manifest = Manifest(source=whole.digest(), made_by={}, options={}, validation="skipped")
            try:
                with clock.phase(f"try {name}"):
                    worker(graph, stage.params(), Work(output, manifest, None, Clock(None)))
            except (CannotConvertError, MachineError, UsageError) as error:
                refused[name] = _reason(error)
    return refused


def _reason(error: CannotConvertError | MachineError | UsageError) -> str:
    """Return an error as one line."""
    if isinstance(error, CannotConvertError) and error.refusals:
        first, *others = error.refusals
        more = f", and {len(others)} more" if others else ""
        return printable(f"{first.op} {first.node!r}: {first.why}{more}")
    return printable(str(error).splitlines()[0])
