"""A bench on a device: push tools, models and inputs, then run the tools in rounds: a drift hits all rows alike.

A round runs each row's tool once. A row's interval is that of its rounds' medians, as in a bench of this machine.
"""

from __future__ import annotations

import math
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from onnxport.bench.devices.connection import Answer, Device
from onnxport.bench.devices.tools import TOOLS, Binary
from onnxport.bench.devices.tools.base import Invocation, Reading, Tool
from onnxport.bench.files import Files, open_files, weigh
from onnxport.bench.inputs import Inputs
from onnxport.bench.measurement import Measured, Phases, row_of
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import Planned
from onnxport.bench.ports import Ports, ports_in_file
from onnxport.bench.report import Delegation, Memory, Row, Settings, Spread
from onnxport.bench.session import Failure, failed
from onnxport.bench.statistics import digits, median, median_interval
from onnxport.core.arrays import Array
from onnxport.core.child_process import ChildDied, ChildHung
from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.formats.artifact import SUFFIXES, Artifact

# Runs of a tool for each row. The least and the largest median of six contain the true one with 97 %.
ROUNDS = 6
_TIMED_OUT = 124
_SIGNAL = 128  # a shell adds the signal's number


@dataclass
class _Trial:
    """A row, with what its tool printed in each round."""

    plan: Planned
    binary: Binary
    failure: Failure | None = None
    batch: int | None = None
    invocation: Invocation | None = None
    delegations: tuple[Delegation, ...] = ()
    readings: list[Reading] = field(default_factory=list)


@dataclass(frozen=True)
class _Pushed:
    """A model on the device, its inputs with their shapes, and their batch where the model leaves it open."""

    model: str
    inputs: Mapping[str, tuple[int, ...]]
    batch: int | None


def measure_on(
    device: Device,
    artifacts: Sequence[Artifact],
    params: BenchParams,
    phases: Phases,
    binaries: Mapping[str, Binary],
) -> Measured:
    """Measure every artefact on the device under all its settings.

    Raises:
        UsageError: no tool was given for an artefact, or a setting is of no tool.
        MachineError: a file cannot be copied to the device.
    """
    trials = [
        _Trial(plan, binaries[plan.settings.runtime]) for plan in plan_on_device(artifacts, params, binaries)
    ]
    with phases.phase("read"):
        files = open_files(artifacts)
        inputs = Inputs(params, files.graphs)
        ports = _read_ports(trials, files)
        inputs.resolve_sizes([(str(path), each.inputs) for path, each in ports.items()])
    with phases.phase("push"):
        _push(device, trials, files, ports, inputs, params, phases)
    with phases.phase("measure"):
        _run(device, trials, params, phases)
    with phases.phase("weigh"):
        weigh(files)
    rows = tuple(_row(trial, files) for trial in trials)
    return Measured(rows, inputs.origin, notes=tuple(_notes(trials)))


def plan_on_device(
    artifacts: Sequence[Artifact], params: BenchParams, binaries: Mapping[str, Binary]
) -> tuple[Planned, ...]:
    """Return all rows, each once; UsageError for an artefact without a tool, or for settings of no tool."""
    _check(params, binaries)
    rows = []
    for artifact in artifacts:
        tool = _tool_for(artifact, binaries)
        providers = [each.lower() for each in params.providers if each.lower() in tool.providers]
        combined = product(
            providers or tool.providers[:1],
            params.threads,
            params.levels if tool.has_levels and artifact.format == "onnx" else (None,),
            params.batch or (None,),
        )
        for provider, threads, level, batch in combined:
            settings = Settings(
                runtime=tool.runtime, provider=provider, threads=threads, level=level, batch=batch
            )
            rows.append(Planned(artifact, settings))
    return tuple({(row.artifact.path, row.settings): row for row in rows}.values())


def _check(params: BenchParams, binaries: Mapping[str, Binary]) -> None:
    if params.runtimes:
        raise UsageError(
            "--runtimes has no effect on a device", fix="the tools of --device-binary are its runtimes"
        )
    if params.reference is not None:
        raise UsageError("--reference has no effect on a device", why="its tools return no outputs")
    known = sorted({name for binary in binaries.values() for name in binary.tool.providers})
    for name in params.providers:
        if known and name.lower() not in known:
            raise UsageError(f"--providers: no tool has {name!r}", fix=f"they have {', '.join(known)}")


def _tool_for(artifact: Artifact, binaries: Mapping[str, Binary]) -> Tool:
    tool = next((tool for tool in TOOLS if artifact.format in tool.formats), None)
    suffix = SUFFIXES[artifact.format]
    if tool is None:
        known = ", ".join(SUFFIXES[each] for one in TOOLS for each in one.formats)
        raise UsageError(
            f"{artifact.path} cannot be measured on a device", why=f"no tool runs {suffix}; {known} work"
        )
    if tool.runtime not in binaries:
        fix = f"give a build of {tool.name} for the device with --device-binary PATH"
        raise UsageError(f"{artifact.path} needs a tool that runs {suffix} on the device", fix=fix)
    return tool


def _read_ports(trials: Sequence[_Trial], files: Files) -> dict[Path, Ports]:
    found: dict[Path, Ports] = {}
    for trial in trials:
        with _end_on_failure(trial):
            path = trial.plan.artifact.path
            if path not in found:
                found[path] = ports_in_file(files.artifacts[path])
    return found


def _push(
    device: Device,
    trials: Sequence[_Trial],
    files: Files,
    ports: Mapping[Path, Ports],
    inputs: Inputs,
    params: BenchParams,
    phases: Phases,
) -> None:
    """Copy tools once, models and their inputs once per batch, and make the rows' invocations."""
    programs = {runtime: _push_tool(device, binary) for runtime, binary in _binaries_of(trials).items()}
    pushed: dict[tuple[Path, int | None], _Pushed] = {}
    for number, trial in enumerate(trials):
        phases.progress(number, len(trials))
        with _end_on_failure(trial):
            if trial.failure is not None:
                continue
            path, settings = trial.plan.artifact.path, trial.plan.settings
            key = (path, settings.batch)
            if key not in pushed:
                feeds = inputs.feeding(settings.batch)(ports[path].inputs)
                arrays, to = ports[path].to_runtime(feeds), f"model_{len(pushed)}"
                fed = _push_inputs(device, trial.binary.tool, arrays, to)
                model = _push_model(device, files.artifacts[path], to)
                pushed[key] = _Pushed(model, fed, inputs.batch_of(ports[path].inputs, feeds))
            found = pushed[key]
            trial.batch = found.batch
            trial.invocation = Invocation(
                program=programs[settings.runtime],
                model=found.model,
                inputs=found.inputs,
                settings=settings,
                runs=math.ceil(params.runs / ROUNDS),
                warmup=params.warmup,
                seconds=params.timeout,
            )


def _binaries_of(trials: Sequence[_Trial]) -> dict[str, Binary]:
    return {trial.plan.settings.runtime: trial.binary for trial in trials}


def _push_tool(device: Device, binary: Binary) -> str:
    folder = f"tool_{binary.tool.runtime}"
    for file in binary.beside:
        device.push(file, f"{folder}/{file.name}")
    program = f"{device.folder}/{folder}/{binary.file.name}"
    device.run(f"chmod 755 {shlex.quote(program)}")
    return program


def _push_inputs(
    device: Device, tool: Tool, arrays: Mapping[str, Array], folder: str
) -> dict[str, tuple[int, ...]]:
    """Copy the inputs as the tool reads them; return the files with their shapes."""
    with tempfile.TemporaryDirectory() as local:
        names = tool.save(arrays, Path(local))
        return {
            device.push(Path(local, name), f"{folder}/{name}"): array.shape
            for name, array in zip(names, arrays.values(), strict=True)
        }


def _push_model(device: Device, artifact: Artifact, folder: str) -> str:
    for file, name in zip(artifact.files, artifact.names, strict=True):
        device.push(file, f"{folder}/{name}")
    return f"{device.folder}/{folder}/{artifact.path.name}"


def _run(device: Device, trials: Sequence[_Trial], params: BenchParams, phases: Phases) -> None:
    further = shlex.split(params.device_arguments)
    for trial in trials:
        if trial.invocation is not None and (probe := trial.binary.tool.probe(trial.invocation)):
            shown = device.start([*probe, *further], seconds=params.timeout)
            trial.delegations = trial.binary.tool.read_delegations(shown.output)
    for done in range(ROUNDS):
        phases.progress(done, ROUNDS)
        for trial in trials:
            if trial.failure is None and trial.invocation is not None:
                with _end_on_failure(trial):
                    trial.readings.append(_measure(device, trial, further, params.timeout))


def _measure(device: Device, trial: _Trial, further: Sequence[str], seconds: float) -> Reading:
    assert trial.invocation is not None
    tool, path = trial.binary.tool, trial.plan.artifact.path
    ran = device.start([*tool.command(trial.invocation), *further], seconds=seconds)
    reading = tool.read(ran.output) if ran.code == 0 else None
    if reading is None:
        raise _refusal(f"{tool.name} on {device.title}", path, ran, seconds)
    return reading


def _refusal(tool: str, path: Path, ran: Answer, seconds: float) -> OnnxportError:
    if ran.code == _TIMED_OUT:
        fix = "give it more time with --timeout SECONDS, or fewer --runs"
        return ChildHung(f"{tool} running {path} gave no answer within {seconds:g} s", fix=fix)
    if ran.code > _SIGNAL:
        what = f"{tool} running {path} ended with code {ran.code}"
        return ChildDied(what, why=ran.last_line or "its connection was lost, or the system ended it")
    if ran.code == 0:
        return InputError(f"{tool} printed no figures for {path}", why=ran.last_line)
    why = ran.last_line or f"exit {ran.code}"
    return InputError(
        f"{tool} cannot run {path}", why=why, fix="run it there by hand to see all of its output"
    )


@contextmanager
def _end_on_failure(trial: _Trial) -> Iterator[None]:
    try:
        yield
    except OnnxportError as error:
        trial.failure = failed(error)


def _row(trial: _Trial, files: Files) -> Row:
    row = row_of(trial.plan, files, trial.failure)
    if trial.failure is not None:
        return row
    readings, tool = trial.readings, trial.binary.tool
    spread = _spread(readings)
    settings = row.settings.model_copy(
        update={"batch": trial.batch if trial.batch is not None else row.settings.batch}
    )
    figures = {
        "settings": settings,
        "ran_on": tool.name,
        "load_ms": _middle([each.load for each in readings]),
        "first_ms": _middle([each.first for each in readings]),
        "latency": spread,
        "throughput": digits(1000 * (settings.batch or 1) / spread.median),
        "memory": _memory(readings),
        "delegations": trial.delegations or readings[-1].delegations,
    }
    return row.model_copy(update=figures)


def _spread(readings: Sequence[Reading]) -> Spread:
    rounds = [each.median for each in readings]
    middle, interval = median(rounds), median_interval(rounds)
    return Spread(
        median=digits(middle),
        p90=_middle([each.p90 for each in readings]),
        p99=_middle([each.p99 for each in readings]),
        least=digits(min(each.least for each in readings)),
        low=digits(interval.low),
        high=digits(interval.high),
        confidence=digits(interval.confidence),
        runs=sum(each.runs for each in readings),
        rounds=tuple(map(digits, rounds)),
    )


def _memory(readings: Sequence[Reading]) -> Memory | None:
    peaks = [each.peak for each in readings if each.peak]
    loaded = [each.loaded for each in readings if each.loaded is not None]
    if not peaks:
        return None
    return Memory(bare=0, imported=0, loaded=int(median(loaded)) if loaded else None, peak=max(peaks))


def _middle(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return digits(median(known)) if known else None


def _notes(trials: Sequence[_Trial]) -> Iterator[str]:
    if any(reading.is_average for trial in trials for reading in trial.readings):
        yield "this build of the tool prints no percentiles: p50 is the median of the averages of its runs"
