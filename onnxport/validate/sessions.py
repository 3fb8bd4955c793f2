"""The runtimes of both models, each in a process of its own, and a runtime as the source model sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.runtimes.base import Runtime
from onnxport.runtimes.isolation import IsolatedRuntime, Role
from onnxport.runtimes.memory_limit import MemoryLimit
from onnxport.runtimes.settings import runtime_options
from onnxport.validate.params import ValidateParams

if TYPE_CHECKING:
    from onnxport.core.arrays import Array, Feeds
    from onnxport.formats.model import Model

Names = Mapping[str, str]
Permutations = Mapping[str, tuple[int, ...]]

# `--io fp16` narrows float32, and the float32 form of a model of tables narrows float64.
_NARROW = frozenset({"float16", "float32"})


def isolated(artifact: Artifact, params: ValidateParams, role: Role) -> IsolatedRuntime:
    """Start the process that runs one of the two models under the user's settings.

    Raises:
        UsageError: settings that the runtime does not know.
        MissingDependencyError: the requested runtime is not installed.
    """
    given = params.reference_runtime if role == "reference" else params.candidate_runtime
    return IsolatedRuntime(
        artifact.path,
        runtime_options(artifact.format, given, f"--{role}-runtime"),
        timeout=params.timeout,
        limit=lambda: MemoryLimit.of(params.memory_limit, artifact),
        role=role,
    )


def source_dtypes(graph: Model | None, runtime: Runtime) -> dict[str, str]:
    """Return the inputs and outputs of an ONNX file of ours that are wider in its source, with the type there.

    The note in the file holds these types.

    Args:
        graph: the file's; None for other formats.
    """
    narrow = {spec.name: spec.dtype for spec in (*runtime.inputs, *runtime.outputs) if spec.dtype in _NARROW}
    if graph is None or not narrow:
        return {}
    from onnxport.validate.precision import onnx

    note = onnx.manifest_in(graph)
    ports = () if note is None else (*note.inputs, *note.outputs)
    return {port.key: port.dtype for port in ports if narrow.get(port.key, port.dtype) != port.dtype}


class Oriented:
    """A runtime in the axis order of the source, whatever the artefact's layout, and under other names if asked.

    Args:
        inputs, outputs: names to show, each with the runtime's own; the others stay.
        dtypes: the runtime's own name of each value that has another float type in the source, with that type.
        unread: inputs of the source that the runtime may lack; what is fed to them is dropped.

    Attributes:
        missing: inputs of the source that the runtime does not have.
    """

    def __init__(
        self,
        runtime: Runtime,
        inputs: Names | None = None,
        outputs: Names | None = None,
        dtypes: Mapping[str, str] | None = None,
        unread: Sequence[TensorSpec] = (),
    ) -> None:
        self.runtime = runtime
        self._inputs, self._outputs, self._dtypes = inputs or {}, outputs or {}, dtypes or {}
        own = {spec.name for spec in self._own_inputs}
        self.missing = tuple(spec for spec in unread if spec.name not in own)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (*self._own_inputs, *self.missing)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self._spec(spec, self._outputs) for spec in self.runtime.outputs)

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """Run like `Runtime.run`, but with arrays in the source's axis order."""
        permutations, missing = self._permutations, {spec.name for spec in self.missing}
        feeds = {self._inputs.get(name, name): array for name, array in feeds.items() if name not in missing}
        physical = {
            name: array.transpose(permutations[name]) if name in permutations else array
            for name, array in feeds.items()
        }
        answers = self._run(physical, taps)
        shown = {own: name for name, own in self._outputs.items()}
        return {
            shown.get(name, name): array.transpose(_inverse(permutations[name]))
            if name in permutations
            else array
            for name, array in answers.items()
        }

    def _run(self, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        """Run with the artefact's own types."""
        if not self._dtypes:
            return self.runtime.run(feeds, taps=taps)
        import numpy as np  # a process of a runtime starts before NumPy is read

        own = {spec.name: spec.dtype for spec in self.runtime.inputs if spec.name in self._dtypes}
        with np.errstate(over="ignore"):  # the artefact would get infinities, too
            fed = {name: each.astype(own[name]) if name in own else each for name, each in feeds.items()}
        answers = self.runtime.run(fed, taps=taps)
        return {name: each.astype(self._dtypes.get(name, each.dtype)) for name, each in answers.items()}

    @property
    def _own_inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self._spec(spec, self._inputs) for spec in self.runtime.inputs)

    @property
    def _permutations(self) -> Permutations:
        permutations: Permutations = getattr(self.runtime, "permutations", {})
        return permutations

    def _spec(self, spec: TensorSpec, names: Names) -> TensorSpec:
        """Return a runtime's spec with the source's name, dtype and axis order."""
        name = next((shown for shown, own in names.items() if own == spec.name), spec.name)
        shape, permutation = spec.shape, self._permutations.get(spec.name)
        if permutation is not None and len(permutation) == len(shape):
            shape = tuple(shape[axis] for axis in _inverse(permutation))
        return TensorSpec(name, self._dtypes.get(spec.name, spec.dtype), shape)


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))
