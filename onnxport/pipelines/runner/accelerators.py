"""The proof of an artefact for an accelerator (`--fit`) on the accelerator's own runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel

from onnxport.core.errors import CannotConvertError, InputError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.runner.clock import Clock
from onnxport.runtimes import registry

if TYPE_CHECKING:
    from onnxport.pipelines.runner.judges import Judges
    from onnxport.validate.report import Report

# Word of `--fit` -> the runtime that is asked.
_RUNTIMES: Mapping[str, str] = {"gpu": "litert-gpu", "webgpu": "ort-webgpu"}


def ask_accelerators(
    judge: Judges, params: BaseModel, candidate: Artifact, report: Report, clock: Clock
) -> Report:
    """Return the report on a proven candidate with what the runtimes of its accelerators say.

    One that answers otherwise has the last word. One that cannot be asked on this machine is a note.

    Raises:
        CannotConvertError: an accelerator's runtime does not take the candidate whole.
        MachineError: it crashed or hung.
    """
    for word in getattr(params, "fit", ()):
        kind = registry.find(_RUNTIMES[word])
        assert kind is not None, "it is one of ours"
        if lacks := ", ".join(kind.lacking) or kind.ask_probe():
            report = _noted(report, f"{kind.title} was not asked: it needs {lacks} (docs/guide/gpu.md)")
            continue
        with clock.phase("validate"), judge.on({"runtime": kind.name}) as asked:
            try:
                found = asked.verdict(candidate)
            except InputError as refusal:
                what = f"{kind.title} does not take what was converted for it"
                raise CannotConvertError(what, why=refusal.why or refusal.what, fix=refusal.fix) from refusal
        if not found.passed:
            return found.model_copy(update={"notes": (*report.notes, *found.notes)})
        report = _noted(report, f"{found.candidate.runtime}: {found.verdict}, {found.reason}", *found.notes)
    return report


def _noted(report: Report, *notes: str) -> Report:
    return report.model_copy(update={"notes": tuple(dict.fromkeys((*report.notes, *notes)))})
