"""A runtime in a process of its own: its crash or hang is an error message, never the end of the command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxport.artifact import FORMATS, SUFFIXES, Artifact, TensorSpec
from onnxport.closing import Closing
from onnxport.isolation import RUN_TIMEOUT, Child
from onnxport.validate.runtimes import kinds
from onnxport.validate.runtimes.base import Array, Feeds, Runtime
from onnxport.validate.runtimes.options import RuntimeOptions, runtime_options

if TYPE_CHECKING:
    from onnxport.samples.domain import Domain
    from onnxport.validate.params import ValidateParams

Role = Literal["reference", "candidate"]

_DEFAULT = RuntimeOptions()
_PATIENCE = "give it more time with --timeout SECONDS, or smaller inputs"


@dataclass(frozen=True)
class Description:
    """What the child says of its model."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    permutations: Mapping[str, tuple[int, ...]]
    remarks: tuple[str, ...] = ()


class Host:
    """The child's side: it holds the real runtimes, by the options that they run under."""

    def __init__(self) -> None:
        self._held: dict[RuntimeOptions, Runtime] = {}

    def open(self, path: Path, options: RuntimeOptions) -> Description:
        from onnxport.validate.runtimes import load

        runtime = self._held[options] = load(path, options)
        permutations = getattr(runtime, "permutations", {})
        remarks = getattr(runtime, "remarks", ())
        return Description(runtime.name, runtime.inputs, runtime.outputs, permutations, remarks)

    def taps(self, options: RuntimeOptions) -> frozenset[str]:
        return self._held[options].taps

    def run(self, options: RuntimeOptions, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        return self._held[options].run(feeds, taps=taps)


def tflite_host() -> Host:
    """A host that has its imports behind it when the first call arrives."""
    importlib.import_module("onnxport.validate.runtimes.tflite")
    return Host()


def ort_host() -> Host:
    """As `tflite_host`, for `.onnx` and `.ort`."""
    importlib.import_module("onnxport.validate.runtimes.ort")
    return Host()


def coreml_host() -> Host:
    """As `tflite_host`, for `.mlpackage`; which runtime answers is known when the first call arrives."""
    importlib.import_module("onnxport.validate.runtimes.mil")
    return Host()


# Kinds whose imports begin with the process; others begin theirs with the first call.
_TARGETS = {
    "litert": "tflite_host",
    "ort": "ort_host",
    "predict": "coreml_host",
    "evaluator": "coreml_host",
}


def isolated(artifact: Artifact, params: ValidateParams, role: Role) -> IsolatedRuntime:
    """The runtime of one of the two sides under the user's settings; its process starts at once.

    Raises:
        UsageError: settings that the runtime does not know.
        MissingDependencyError: the runtime that is asked for is not installed.
    """
    option = f"--{role}-runtime"
    given = params.reference_runtime if role == "reference" else params.candidate_runtime
    options = runtime_options(artifact.format, given, option)
    return IsolatedRuntime(artifact.path, options, timeout=params.timeout)


class IsolatedRuntime(Closing):
    """The Runtime contract over a child process; what its inputs may hold is read from the graph.

    The child starts at once and without waiting, so that its imports overlap with the caller's work; the file is
    opened by the first use, and may be written until then.

    Args:
        path: the model.
        options: how its runtime is to run it.
        timeout: seconds that one call may take.
    """

    domains: Mapping[str, Domain] = {}
    features: tuple[str, ...] | None = None

    def __init__(
        self, path: Path, options: RuntimeOptions = _DEFAULT, *, timeout: float = RUN_TIMEOUT
    ) -> None:
        self.path, self.options, self._timeout = path, options, timeout
        self._kind = kinds.find(FORMATS[path.suffix.lower()], options.runtime)
        self._kind.check()
        target = f"{__name__}:{_TARGETS.get(self._kind.name, Host.__name__)}"
        purpose = f"{self._kind.title} running {path}"
        self._child = Child(target, purpose=purpose, timeout=timeout, patience=_PATIENCE)
        self._described: Description | None = None

    def beside(self, options: RuntimeOptions) -> IsolatedRuntime:
        """The same model loaded once more in the same process, which ends with the first of the two to close.

        Raises:
            InputError: the runtime cannot load it under these options.
        """
        other = copy(self)
        other.options = options
        other._described = self._child.call("open", self.path, options)
        return other

    def other_kernels(self) -> IsolatedRuntime | None:
        """See `ReferenceRuntime.other_kernels`: ONNX Runtime without its optimizations, or with them."""
        if self._kind.name != "ort" or self.path.suffix.lower() != SUFFIXES["onnx"]:
            return None
        return self.beside(self.options.at_level("all" if self.options.level == "disable" else "disable"))

    def again(self) -> IsolatedRuntime:
        """See `ReferenceRuntime.again`."""
        return IsolatedRuntime(self.path, self.options, timeout=self._timeout)

    @property
    def name(self) -> str:
        return self._description.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._description.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._description.outputs

    @property
    def permutations(self) -> Mapping[str, tuple[int, ...]]:
        """See `TfliteRuntime.permutations`; empty for formats that permute nothing."""
        return self._description.permutations

    @property
    def remarks(self) -> tuple[str, ...]:
        """See `TfliteRuntime.remarks`; none for other formats."""
        return self._description.remarks

    @property
    def taps(self) -> frozenset[str]:
        names: frozenset[str] = self._opened().call("taps", self.options)
        return names

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        outputs: dict[str, Array] = self._opened().call("run", self.options, dict(feeds), tuple(taps))
        return outputs

    def close(self) -> None:
        self._child.close()

    def _opened(self) -> Child:
        assert self._description
        return self._child

    @property
    def _description(self) -> Description:
        if self._described is None:
            self._described = self._child.call("open", self.path, self.options)
        assert self._described is not None
        return self._described
