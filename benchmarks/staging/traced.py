"""Run `onnxport`, or one of its children, with its stages measured.

    python -m benchmarks.staging.traced FOLDER onnxport validate a.onnx b.onnx

Functions are wrapped when their module is loaded; children are started through this module, too.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.staging.ledger import ELSEWHERE, Ledger

_SERVER = "onnxport.core.child_server"

# module -> function, or Class.method -> its stage.
_FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "onnxport.formats.artifact": {
        "Artifact.digest": "digests",
        "Staging.commit": "writing",
        "Staging.commit_folder": "writing",
    },
    "onnxport.pipelines.runner.report": {"run_report": "report"},
    "onnxport.validate.reference": {
        "Reference.__init__": "inputs",
        "Reference.prepare": "inputs",
        "Reference._answer": "reference",
    },
    "onnxport.validate.dead_outputs": {"find_dead_node": "evidence"},
    "onnxport.validate.input_sets": {"GeneratedInputs._sample": "inputs"},
    "onnxport.validate.evidence": {"Proof.add": "evidence"},
    "onnxport.validate.noise_meter": {"NoiseMeter.open": "probes", "NoiseMeter.measure": "probes"},
    "onnxport.validate.evaluation": {"evaluate": "comparison"},
    "onnxport.runtimes.isolation": {"IsolatedRuntime._open": "sessions"},
    "onnxport.runtimes.host": {"Host.open": "sessions", "Host.run": ELSEWHERE},
    "onnxport.validate.precision": {"precision_of": "precision", "kept_float32": "precision"},
    "onnxport.validate.sessions": {"source_dtypes": "precision"},
    "onnxport.validate.signature": {"check_signatures": "precision"},
    "onnxport.formats.model": {"Model.load": "load"},
    "onnxport.converters.tflite.worker": {"_compile": "compile", "check_runs": "trial run"},
    "onnxport.converters.tflite.lower": {"lower_model": "lower"},
    "onnxport.converters.coreml.worker": {"Worker.lower": "lower", "Worker.write": "compile"},
    "onnxport.converters.ort": {"convert": "compile"},
}
# Phases of the runner's clock.
_PHASES = {
    "load": "load",
    "prepare": "prepare",
    "convert": "waiting",
    "validate": "waiting",
    "write": "writing",
}
# A run in one of these stages is one of the candidate.
_RUNS = {"comparison": "candidate"}


class _Finder:
    """A finder for sys.meta_path that wraps the functions of modules as they are loaded."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        wrap = _SPECIAL.get(fullname)
        functions = _FUNCTIONS.get(fullname, {})
        if wrap is None and not functions:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def load(module: ModuleType) -> None:
            execute(module)
            for name, stage in functions.items():
                owner, name = _owner(module, name)
                setattr(owner, name, _staged(getattr(owner, name), stage, self._ledger))
            if wrap is not None:
                wrap(module, self._ledger)

        spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


def _owner(module: ModuleType, name: str) -> tuple[Any, str]:
    owner, _, method = name.rpartition(".")
    return (getattr(module, owner), method) if owner else (module, method)


def _staged(function: Callable[..., Any], stage: str, ledger: Ledger) -> Callable[..., Any]:
    @functools.wraps(function)
    def staged(*args: Any, **kwargs: Any) -> Any:
        with ledger.stage(stage):
            return function(*args, **kwargs)

    return staged


def _wrap_clock(module: ModuleType, ledger: Ledger) -> None:
    plain = module.Clock.phase

    @contextmanager
    def phase(self: Any, step: str) -> Iterator[None]:
        with ledger.stage(_PHASES.get(step, "rest")), plain(self, step):
            yield

    module.Clock.phase = phase  # type: ignore[attr-defined]


def _wrap_runtime(module: ModuleType, ledger: Ledger) -> None:
    plain = module.IsolatedRuntime._run

    def run(self: Any, *args: Any) -> Any:
        with ledger.stage(_RUNS.get(ledger.current, ledger.current or "rest")):
            return plain(self, *args)

    module.IsolatedRuntime._run = run  # type: ignore[attr-defined]


def _wrap_child(module: ModuleType, ledger: Ledger) -> None:
    child: Any = module.Child  # type: ignore[attr-defined]
    start, call, kill = child.__init__, child.call, child.kill
    begun: set[int] = set()

    def timed(self: Any, method: str, *args: Any) -> Any:
        clock = (~self._process.pid << 3) | 2  # CPUCLOCK_SCHED of the whole process
        if self._process.pid not in begun:  # its imports are stages of its own
            begun.add(self._process.pid)
            with ledger.stage("waiting"):
                call(self, "")
        if method != "run":
            return call(self, method, *args)
        before = time.clock_gettime(clock)
        try:
            return call(self, method, *args)
        finally:
            with suppress(OSError):  # it has ended
                ledger.called(time.clock_gettime(clock) - before)

    child.__init__, child.kill = _staged(start, "processes", ledger), _staged(kill, "processes", ledger)
    child.call = timed


_SPECIAL: Mapping[str, Callable[[ModuleType, Ledger], None]] = {
    "onnxport.pipelines.runner.clock": _wrap_clock,
    "onnxport.runtimes.isolation": _wrap_runtime,
    "onnxport.core.child_process": _wrap_child,
}


def _measure_imports(ledger: Ledger) -> None:
    plain, load = builtins.__import__, importlib.import_module

    def imported(name: str, *args: Any, **kwargs: Any) -> Any:
        if ledger.current == "imports" or (name in sys.modules and not (len(args) > 2 and args[2])):
            return plain(name, *args, **kwargs)
        with ledger.stage("imports"):
            return plain(name, *args, **kwargs)

    builtins.__import__ = imported
    importlib.import_module = _staged(load, "imports", ledger)


def _trace_children(folder: Path) -> None:
    plain = subprocess.Popen.__init__

    def start(self: Any, command: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(command, list) and _SERVER in command:
            at = command.index(_SERVER)
            command = [*command[:at], __spec__.name, str(folder), *command[at:]]
        plain(self, command, *args, **kwargs)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]


def main() -> None:
    folder, module = Path(sys.argv[1]), sys.argv[2]
    ledger = Ledger(folder)
    sys.meta_path.insert(0, _Finder(ledger))  # type: ignore[arg-type]
    _measure_imports(ledger)
    if module != _SERVER:
        _trace_children(folder)
    sys.argv = [module, *sys.argv[3:]]
    with ledger.stage("rest"):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
