"""Runs that make nothing and judge nothing: what artefacts cost on this machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import shlex
from collections.abc import Sequence

from onnxport.artifact import Artifact
from onnxport.bench.measuring import measured
from onnxport.bench.params import BenchParams
from onnxport.bench.record import BenchReport, Machine
from onnxport.pipelines.clock import Clock, Progress
from onnxport.pipelines.environment import RUNS_ON, instruction_sets, processor, versions
from onnxport.validate.runtimes import kinds


def bench(
    artifacts: Sequence[Artifact],
    params: BenchParams,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> BenchReport:
    """Measures every artefact under all settings that `params` ask for; writes no file.

    Raises:
        UsageError: settings that none of the artefacts can follow, or an open size that nobody gave.
        InputError: the reference is no model.
    """
    about = machine()  # before anything of ours keeps it busy
    if params.reference is not None:
        Artifact.open(params.reference)
    found = measured(artifacts, params, Clock(progress))
    libraries = {name for artifact in artifacts for name in RUNS_ON[artifact.format]}
    libraries |= {name for row in found.rows for name in kinds.distributions(row.settings.runtime)}
    return BenchReport(
        command=shlex.join(("onnxport", "bench", *arguments)),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=about,
        versions={"python": platform.python_version()} | versions(sorted(libraries)),
        runs=params.runs,
        warmup=params.warmup,
        inputs=found.inputs,
        rows=found.rows,
        pace_ms=found.pace_ms,
        others=found.others,
        notes=found.notes,
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
