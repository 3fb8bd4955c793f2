"""Runs that measure model files on this machine: `bench` and `profile`. They make and judge nothing."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from onnxport.bench.comparison import Conditions
from onnxport.bench.devices import open_device
from onnxport.bench.devices.connection import Device
from onnxport.bench.devices.description import describe
from onnxport.bench.devices.measurement import measure_on, plan_on_device
from onnxport.bench.devices.tools import find_binaries
from onnxport.bench.gate import describe_repeat, keep_faster, make_gate
from onnxport.bench.limits import check_limits
from onnxport.bench.measurement import Measured, measure
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import Planned, plan_rows
from onnxport.bench.report import BenchReport, Machine, Row
from onnxport.bench.session import Stop, enough
from onnxport.core.errors import UsageError
from onnxport.core.missing_paths import missing_path
from onnxport.core.shell_words import join
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import (
    INSTRUCTION_SETS,
    RUNS_ON,
    instruction_sets,
    processor,
    require,
    versions,
)
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
    if params.device is not None:
        with open_device(params.device) as device:
            return _bench(_Elsewhere(device, params, progress), artifacts, params, arguments)
    if params.device_binary or params.device_arguments:
        option = "--device-binary" if params.device_binary else "--device-arguments"
        raise UsageError(f"{option} needs --device", fix="add --device adb:SERIAL or --device ssh:HOST")
    return _bench(_Here(progress), artifacts, params, arguments)


class _Place(Protocol):
    """The machine of a bench."""

    machine: Machine

    def plan(self, artifacts: Sequence[Artifact], params: BenchParams) -> tuple[Planned, ...]:
        """Return all rows of the artefacts."""

    def measure(self, artifacts: Sequence[Artifact], params: BenchParams, until: Stop) -> Measured:
        """Measure all rows; `until` may lengthen it."""

    def versions(self, artifacts: Sequence[Artifact], rows: Sequence[Row]) -> dict[str, str]:
        """Return the versions of what ran."""


class _Here:
    """This machine."""

    def __init__(self, progress: Progress | None) -> None:
        self.machine = machine()  # before our own work loads it
        self._progress = progress

    def plan(self, artifacts: Sequence[Artifact], params: BenchParams) -> tuple[Planned, ...]:
        return plan_rows(artifacts, params)

    def measure(self, artifacts: Sequence[Artifact], params: BenchParams, until: Stop) -> Measured:
        return measure(artifacts, params, Clock(self._progress), until)

    def versions(self, artifacts: Sequence[Artifact], rows: Sequence[Row]) -> dict[str, str]:
        libraries = {name for artifact in artifacts for name in RUNS_ON[artifact.format]}
        libraries |= {name for row in rows for name in registry.distributions(row.settings.runtime)}
        return {"python": platform.python_version()} | versions(sorted(libraries))


class _Elsewhere:
    """The device of `--device`."""

    def __init__(self, device: Device, params: BenchParams, progress: Progress | None) -> None:
        self.machine = describe(device, INSTRUCTION_SETS)
        self._device, self._progress = device, progress
        self._binaries = find_binaries(params.device_binary)

    def plan(self, artifacts: Sequence[Artifact], params: BenchParams) -> tuple[Planned, ...]:
        return plan_on_device(artifacts, params, self._binaries)

    def measure(self, artifacts: Sequence[Artifact], params: BenchParams, until: Stop) -> Measured:
        return measure_on(self._device, artifacts, params, Clock(self._progress), self._binaries)

    def versions(self, artifacts: Sequence[Artifact], rows: Sequence[Row]) -> dict[str, str]:
        return {binary.tool.name: binary.digest for binary in self._binaries.values()}


def _bench(
    place: _Place, artifacts: Sequence[Artifact], params: BenchParams, arguments: Sequence[str]
) -> BenchReport:
    if params.reference is not None:
        Artifact.open(params.reference)
    if params.inputs is not None and not params.inputs.exists():
        raise missing_path(params.inputs, fix="give a folder or a file with inputs")
    gate = make_gate(artifacts, params, place.machine, place.plan)
    subjects = (*artifacts, *gate.beside)

    def measure_all(some: Sequence[Artifact]) -> Measured:
        return place.measure(some, params, gate.until(enough(params.runs), params))

    with unchanged(*subjects):
        found = measure_all(subjects)
        rows = gate.judge(found.rows, Conditions(found.pace_ms, found.others))
        used, repeats = place.versions(subjects, rows), tuple[str, ...]()
        if repeated := {row.artifact for row in gate.rows_to_repeat(rows)}:
            again = measure_all((*(each for each in artifacts if str(each.path) in repeated), *gate.beside))
            rows = keep_faster(rows, gate.judge(again.rows, Conditions(again.pace_ms, again.others)))
            repeats = (describe_repeat(sorted(repeated)),)
        rows = check_limits(rows, params)
    return BenchReport(
        command=join(("onnxport", "bench", *arguments)),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=place.machine,
        versions=used,
        runs=params.runs,
        warmup=params.warmup,
        inputs=found.inputs,
        rows=rows,
        pace_ms=found.pace_ms,
        others=found.others,
        notes=(*found.notes, *repeats, *gate.notes(rows, used)),
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
        return profiling.profile_model(artifact, params, join(("onnxport", "profile", *arguments)))
