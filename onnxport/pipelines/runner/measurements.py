"""Runs that measure model files on this machine: `bench` and `profile`. They make and judge nothing."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxport.bench.comparison import Conditions
from onnxport.bench.gate import keep_faster, make_gate
from onnxport.bench.limits import check_limits
from onnxport.bench.measurement import Measured, measure
from onnxport.bench.params import BenchParams
from onnxport.bench.report import BenchReport, Machine
from onnxport.bench.session import enough
from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import RUNS_ON, instruction_sets, processor, require, versions
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.model_sources import reading, unchanged
from onnxport.runtimes import registry

if TYPE_CHECKING:
    from onnxport.profiling.params import ProfileParams
    from onnxport.profiling.profile import Profile


def bench(
    artifacts: Sequence[Artifact],
    params: BenchParams,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> BenchReport:
    """Measure every artefact under all settings of `params`; write no file.

    Raises:
        UsageError: settings that suit no artefact, or an open size without a value.
        InputError: a file is missing, is no model or no baseline, or changes meanwhile.
    """
    about = machine()  # before our own work loads it
    if params.reference is not None:
        Artifact.open(params.reference)
    if params.inputs is not None and not params.inputs.exists():
        raise InputError(f"{params.inputs} does not exist", fix="give a folder or a file with inputs")
    gate = make_gate(artifacts, params, about)
    subjects = (*artifacts, *gate.beside)
    libraries = {name for artifact in subjects for name in RUNS_ON[artifact.format]}

    def measure_all(some: Sequence[Artifact]) -> Measured:
        return measure(some, params, Clock(progress), gate.until(enough(params.runs), params))

    with unchanged(*subjects):
        found = measure_all(subjects)
        rows = gate.judge(found.rows, Conditions(found.pace_ms, found.others))
        libraries |= {name for row in found.rows for name in registry.distributions(row.settings.runtime)}
        used = {"python": platform.python_version()} | versions(sorted(libraries))
        if repeated := {row.artifact for row in gate.rows_to_repeat(rows)}:
            again = measure_all((*(each for each in artifacts if str(each.path) in repeated), *gate.beside))
            rows = keep_faster(rows, gate.judge(again.rows, Conditions(again.pace_ms, again.others)))
        rows = check_limits(rows, params)
    return BenchReport(
        command=shlex.join(("onnxport", "bench", *arguments)),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=about,
        versions=used,
        runs=params.runs,
        warmup=params.warmup,
        inputs=found.inputs,
        rows=rows,
        pace_ms=found.pace_ms,
        others=found.others,
        notes=(*found.notes, *gate.notes(rows, used)),
    )


def machine() -> Machine:
    """Describe this machine and its load."""
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


def profile(
    artifact: Artifact,
    params: ProfileParams,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> Profile:
    """Profile `artifact`; write no file."""
    from onnxport.profiling import profile as profiling

    profiling.require_profiler(artifact)
    sources = [] if params.source is None else [Artifact.open(params.source)]
    for each in (artifact, *sources):
        require(RUNS_ON[each.format], f"profiling {artifact.path}")
    with Clock(progress).phase("profile"), reading(artifact), unchanged(artifact, *sources):
        return profiling.profile_model(artifact, params, shlex.join(("onnxport", "profile", *arguments)))
