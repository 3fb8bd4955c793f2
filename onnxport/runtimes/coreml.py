"""`.mlpackage` by Core ML itself, on macOS, behind the Runtime contract.

Elsewhere the evaluator answers (mil/). Names, ranks and dtypes are the source's, by the same rules as there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.manifest import Port
from onnxport.formats.mlpackage.program import Function
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.base import RunError, check_feeds, check_taps
from onnxport.runtimes.mlprogram.ports import Ends, chosen, ends, entering, fed_types, held_states, leaving
from onnxport.runtimes.options import RuntimeOptions, Units

_DEFAULT = RuntimeOptions()
# Our words to coremltools' and to those of a report.
_UNITS: Mapping[Units, tuple[str, str]] = {
    "all": ("ALL", "all compute units"),
    "cpu": ("CPU_ONLY", "CPU"),
    "cpu-gpu": ("CPU_AND_GPU", "CPU and GPU"),
    "cpu-ne": ("CPU_AND_NE", "CPU and Neural Engine"),
}
# macOS that brought each version of the format; an older one cannot load it.
_SYSTEMS = {6: 12, 7: 13, 8: 14, 9: 15, 10: 26}
# What Core ML takes arrays of: other types of a program's inputs come as these.
_FED: Mapping[str, np.dtype[Any]] = {"float16": np.dtype(np.float16), "int32": np.dtype(np.int32)}
# Frameworks that coremltools would import where it finds them; `predict` needs none.
_FRAMEWORKS = "torch torchvision torchaudio tensorflow sklearn xgboost libsvm transformers executorch".split()


class CoremlRuntime(Closing):
    """A package compiled and run by Core ML.

    Args:
        path: the package's folder.
        options: `units`, what it may compute on; `function`, which of its functions answers.

    Raises:
        MissingDependencyError: this is no Mac.
        InputError: no package, a damaged one, or one that Core ML cannot compile.
        UsageError: it has no function of the wanted name.
    """

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT) -> None:
        if platform.system() != "Darwin":
            raise MissingDependencyError(
                f"Core ML is not here, {platform.system()} has none",
                fix="run this on macOS, or leave out runtime=predict: the evaluator answers elsewhere",
            )
        package = read_package(path)
        self._path, self._units = path, options.units
        name = chosen(package, path, options.function)
        self._ends: Ends = ends(package, path, name)
        self._function: Function = package.functions[name]
        check_system(path, package.spec.specificationVersion, platform.mac_ver()[0])
        self._model = _compiled(path, options.units, name if package.description.functions else None)

    @property
    def name(self) -> str:
        units = _UNITS[self._units][1]
        return f"Core ML of macOS {platform.mac_ver()[0]}, {units} (coremltools {version('coremltools')})"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(port.spec for port in self._ends.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(port.spec for port in self._ends.outputs)

    @property
    def taps(self) -> frozenset[str]:
        return frozenset()  # Core ML shows outputs only

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        given, held = fed(self._ends.inputs, self._function, feeds), held_states(self._function)
        try:
            state = self._state(given)
            found = self._model.predict(given, **({} if state is None else {"state": state}))
            found = dict(found) | {key: state.read_state(key) for key in held}
        except Exception as error:  # whatever Core ML's own errors and coremltools' checks come as
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            raise RunError(
                f"Core ML cannot run {self._path.name} on {shapes}", why=first_line(error)
            ) from error
        return answers(self._ends.outputs, found)

    def prepared(self, feeds: Feeds) -> Callable[[], object]:
        """One prediction on `feeds`, again and again: what a bench times. A state is kept from one to the next."""
        given = fed(self._ends.inputs, self._function, feeds)
        state = self._state(given)
        return partial(self._model.predict, given, **({} if state is None else {"state": state}))

    def _state(self, given: dict[str, Array]) -> Any:
        """The state that a run begins with, which is taken out of what the program is fed: Core ML keeps states from
        one prediction to the next, which ONNX does not, so each run has its own. None where it has none."""
        held = held_states(self._function)
        state: Any = self._model.make_state() if held else None
        for key in held & set(given):
            state.write_state(key, given.pop(key))
        return state

    def close(self) -> None:
        self._model = None


def check_system(path: Path, specification: int, system: str) -> None:
    """Refuses a package that is younger than this system (InputError)."""
    needed = _SYSTEMS.get(specification, max(_SYSTEMS.values()))
    if system and int(system.partition(".")[0]) < needed:
        raise InputError(
            f"{path} needs macOS {needed}, this is {system}",
            fix="convert it with an older --minimum-target, or give --candidate-runtime runtime=evaluator",
        )


def fed(ports: Sequence[Port], function: Function, feeds: Feeds) -> dict[str, Array]:
    """The feeds under the program's names, of types that Core ML's arrays have."""
    types = fed_types(function)
    given = {}
    for port in ports:
        array = entering(feeds[port.name], types[port.key], port)
        dtype: np.dtype[Any] = _FED.get(types[port.key], np.dtype(np.float32))
        given[port.key] = np.ascontiguousarray(array, dtype)
    return given


def answers(ports: Sequence[Port], found: Mapping[str, Any]) -> dict[str, Array]:
    """What Core ML gave, under the source's names and in its dtypes."""
    return {port.name: leaving(found[port.key], port) for port in ports}


def first_line(error: Exception) -> str:
    """What Core ML says, without the object dumps that its errors carry along."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:400] if lines else type(error).__name__


def _compiled(path: Path, units: Units, function: str | None) -> Any:
    """`function` is None for a package that names none, of which Core ML takes no name."""
    library = coremltools()
    unit = getattr(library.ComputeUnit, _UNITS[units][0])
    try:
        with warnings.catch_warnings():  # what Core ML refuses is a warning there, and an error here
            warnings.simplefilter("ignore")
            model = library.models.MLModel(os.fspath(path), compute_units=unit, function_name=function)
    except Exception as error:
        raise InputError(f"Core ML cannot load {path}", why=first_line(error)) from error
    if getattr(model, "__proxy__", None) is None:
        cause = getattr(model, "_framework_error", None)
        raise InputError(f"Core ML cannot compile {path}", why=first_line(cause) if cause else "")
    return model


def coremltools() -> Any:
    """coremltools, imported without the frameworks that it would drag in."""
    with _hidden():
        return importlib.import_module("coremltools")


@contextlib.contextmanager
def _hidden() -> Iterator[None]:
    hidden = [name for name in _FRAMEWORKS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
