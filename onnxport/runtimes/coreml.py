"""Core ML, on macOS; elsewhere mlprogram/ evaluates a package."""

from __future__ import annotations

import importlib
import os
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.core.lazy_imports import hidden
from onnxport.core.resources import Closing
from onnxport.formats.manifest import Port
from onnxport.formats.mlpackage.program import Function
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.base import RunError, check_feeds, check_taps, format_shapes
from onnxport.runtimes.mlprogram import ports as program_ports
from onnxport.runtimes.mlprogram.ports import from_program, input_types, state_names, to_program
from onnxport.runtimes.options import RuntimeOptions, Units

_DEFAULT = RuntimeOptions()
# Our names to those of coremltools and of a report.
_UNITS: Mapping[Units, tuple[str, str]] = {
    "all": ("ALL", "all compute units"),
    "cpu": ("CPU_ONLY", "CPU"),
    "cpu-gpu": ("CPU_AND_GPU", "CPU and GPU"),
    "cpu-ne": ("CPU_AND_NE", "CPU and Neural Engine"),
}
# Specification version -> the first macOS that loads it.
_SYSTEMS = {6: 12, 7: 13, 8: 14, 9: 15, 10: 26}
# A program's input type -> dtype of Core ML's arrays; float32 for any other.
_DTYPES: Mapping[str, np.dtype[Any]] = {"float16": np.dtype(np.float16), "int32": np.dtype(np.int32)}
# Frameworks that coremltools imports where they are installed; `predict` needs none.
_FRAMEWORKS = "torch torchvision torchaudio tensorflow sklearn xgboost libsvm transformers executorch".split()


class CoremlRuntime(Closing):
    """A package compiled and run by Core ML; reads the options `units` and `function`.

    Raises:
        MissingDependencyError: this is no Mac.
        InputError: no package, a damaged one, or one that Core ML cannot compile.
        UsageError: the package has no such function.
    """

    taps: frozenset[str] = frozenset()  # Core ML returns outputs only

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT) -> None:
        if platform.system() != "Darwin":
            raise MissingDependencyError(
                f"Core ML is not available on {platform.system()}",
                fix="run this on macOS, or leave out runtime=predict: the evaluator runs elsewhere",
            )
        package = read_package(path)
        self._path, self._units = path, options.units
        name = program_ports.function_name(package, path, options.function)
        self._signature = program_ports.signature(package, path, name)
        self.inputs = tuple(port.spec for port in self._signature.inputs)
        self.outputs = tuple(port.spec for port in self._signature.outputs)
        self._function = package.functions[name]
        check_system(path, package.spec.specificationVersion, platform.mac_ver()[0])
        self._model = _compile(path, options.units, name if package.description.functions else None)

    @property
    def name(self) -> str:
        units = _UNITS[self._units][1]
        return f"Core ML of macOS {platform.mac_ver()[0]}, {units} (coremltools {version('coremltools')})"

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        inputs = to_core_ml(self._signature.inputs, self._function, feeds)
        try:
            state = self._make_state(inputs)
            found = self._model.predict(inputs, **({} if state is None else {"state": state}))
            found = dict(found) | {key: state.read_state(key) for key in state_names(self._function)}
        except Exception as error:  # neither Core ML nor coremltools says which classes it raises
            raise RunError(
                f"Core ML cannot run {self._path.name} on {format_shapes(feeds)}", why=first_line(error)
            ) from error
        return from_core_ml(self._signature.outputs, found)

    def prepared(self, feeds: Feeds) -> Callable[[], object]:
        """Return a function that predicts on `feeds`, for a bench; all calls share one state."""
        inputs = to_core_ml(self._signature.inputs, self._function, feeds)
        state = self._make_state(inputs)
        return partial(self._model.predict, inputs, **({} if state is None else {"state": state}))

    def _make_state(self, inputs: dict[str, Array]) -> Any:
        """Move the states out of `inputs` into a new state of Core ML, since its states outlive a run; None without."""
        names = state_names(self._function)
        state: Any = self._model.make_state() if names else None
        for key in names & set(inputs):
            state.write_state(key, inputs.pop(key))
        return state

    def close(self) -> None:
        self._model = None


def check_system(path: Path, specification: int, system: str) -> None:
    """Raise InputError where the package needs a newer macOS."""
    needed = _SYSTEMS.get(specification, max(_SYSTEMS.values()))
    if system and int(system.partition(".")[0]) < needed:
        raise InputError(
            f"{path} needs macOS {needed}, this is {system}",
            fix="convert it with an older --minimum-target, or give --candidate-runtime runtime=evaluator",
        )


def to_core_ml(ports: Sequence[Port], function: Function, feeds: Feeds) -> dict[str, Array]:
    """Return the feeds under the program's names, in dtypes that Core ML's arrays have."""
    types = input_types(function)
    inputs = {}
    for port in ports:
        array = to_program(feeds[port.name], types[port.key], port)
        dtype: np.dtype[Any] = _DTYPES.get(types[port.key], np.dtype(np.float32))
        inputs[port.key] = np.ascontiguousarray(array, dtype)
    return inputs


def from_core_ml(ports: Sequence[Port], found: Mapping[str, Any]) -> dict[str, Array]:
    """Return Core ML's outputs under the source's names and in its dtypes."""
    return {port.name: from_program(found[port.key], port) for port in ports}


def first_line(error: Exception) -> str:
    """Return Core ML's message without the object dumps that follow it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:400] if lines else type(error).__name__


def _compile(path: Path, units: Units, function: str | None) -> Any:
    """Load the model; `function` is None for a package without named functions, where Core ML accepts no name."""
    library = coremltools()
    unit = getattr(library.ComputeUnit, _UNITS[units][0])
    try:
        with warnings.catch_warnings():  # coremltools warns of a failure, which is an error below
            warnings.simplefilter("ignore")
            model = library.models.MLModel(os.fspath(path), compute_units=unit, function_name=function)
    except Exception as error:
        raise InputError(f"Core ML cannot load {path}", why=first_line(error)) from error
    if getattr(model, "__proxy__", None) is None:
        cause = getattr(model, "_framework_error", None)
        raise InputError(f"Core ML cannot compile {path}", why=first_line(cause) if cause else "")
    return model


def coremltools() -> Any:
    """Import coremltools without the frameworks that it would import."""
    with hidden(_FRAMEWORKS):
        return importlib.import_module("coremltools")
