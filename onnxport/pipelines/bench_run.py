"""Runs that make nothing and judge nothing: what artefacts cost on this machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import shlex
from collections.abc import Sequence

from onnxport.bench.comparison import Conditions
from onnxport.bench.engine import enough
from onnxport.bench.gate import confirmed, gate_of
from onnxport.bench.measurement import measured
from onnxport.bench.params import BenchParams
from onnxport.bench.report import BenchReport, Machine
from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import RUNS_ON, instruction_sets, processor, versions
from onnxport.pipelines.model_sources import unchanged
from onnxport.pipelines.step_times import Clock, Progress
from onnxport.runtimes import registry


def bench(
    artifacts: Sequence[Artifact],
    params: BenchParams,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> BenchReport:
    """Measures every artefact under all settings that `params` ask for; writes no file.

    Raises:
        UsageError: settings that none of the artefacts can follow, or an open size that nobody gave.
        InputError: the reference is no model, there are no such inputs, what `params` compare with is no baseline, or a
            file changes meanwhile.
    """
    about = machine()  # before anything of ours keeps it busy
    if params.reference is not None:
        Artifact.open(params.reference)
    if params.inputs is not None and not params.inputs.exists():
        raise InputError(f"{params.inputs} does not exist", fix="give a folder or a file with inputs")
    gate = gate_of(artifacts, params, about)
    everybody = (*artifacts, *gate.beside)
    until = gate.until(enough(params.runs), params)
    with unchanged(*everybody):
        found = measured(everybody, params, Clock(progress), until)
    libraries = {name for artifact in everybody for name in RUNS_ON[artifact.format]}
    libraries |= {name for row in found.rows for name in registry.distributions(row.settings.runtime)}
    taken = {"python": platform.python_version()} | versions(sorted(libraries))
    rows = gate.judged(found.rows, Conditions(found.pace_ms, found.others))
    if doubted := {row.artifact for row in gate.doubted(rows)}:
        suspects = (*(each for each in artifacts if str(each.path) in doubted), *gate.beside)
        again = measured(suspects, params, Clock(progress), gate.until(enough(params.runs), params))
        rows = confirmed(rows, gate.judged(again.rows, Conditions(again.pace_ms, again.others)))
    return BenchReport(
        command=shlex.join(("onnxport", "bench", *arguments)),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=about,
        versions=taken,
        runs=params.runs,
        warmup=params.warmup,
        inputs=found.inputs,
        rows=rows,
        pace_ms=found.pace_ms,
        others=found.others,
        notes=(*found.notes, *gate.notes(rows, taken)),
    )


def machine() -> Machine:
    """This one."""
    cores = os.cpu_count() or 1
    load, memory = 0.0, 0
    with contextlib.suppress(AttributeError, OSError):
        load = os.getloadavg()[0] / cores
    with contextlib.suppress(AttributeError, OSError, ValueError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        processor=processor(),
        instruction_sets=instruction_sets(),
        cores=cores,
        memory=memory,
        system=platform.platform(),
        load=round(load, 3),
    )
