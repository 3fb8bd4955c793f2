"""Judge a part of a model: fed with the model's values at its inputs, it has to give the model's at its outputs.

Both sides take the inputs of the whole model. The reference returns inner values of the model. The candidate gets
inner values of the model and computes the same from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from onnxport.core.arrays import Array, Feeds
from onnxport.core.resources import Closing
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.runtimes.base import ReferenceRuntime, Runtime
from onnxport.validate.judge import Judge, ReferenceRun
from onnxport.validate.precision import precision_of

if TYPE_CHECKING:
    from pathlib import Path

    from onnxport.formats.model import Model
    from onnxport.runtimes.options import RuntimeOptions
    from onnxport.samples.domain import Domain
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.progress import Tell


class TappedRuntime(Closing):
    """A model whose outputs are inner values of its graph; its own outputs do not show.

    Args:
        runtime: the whole model.
        outputs: the values to return, with their types.
    """

    def __init__(self, runtime: Runtime, outputs: Sequence[TensorSpec]) -> None:
        self.runtime, self.outputs = runtime, tuple(outputs)

    @property
    def name(self) -> str:
        return self.runtime.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.runtime.inputs

    @property
    def taps(self) -> frozenset[str]:
        return self.runtime.taps

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        wanted = dict.fromkeys((*(spec.name for spec in self.outputs), *taps))
        own = {spec.name for spec in self.runtime.outputs}
        inner = [name for name in wanted if name not in own and name not in feeds]
        values = {**feeds, **self.runtime.run(feeds, taps=inner)}
        return {name: values[name] for name in wanted}

    def close(self) -> None:
        self.runtime.close()


class TappedReference(TappedRuntime):
    """The same of a ReferenceRuntime, as one."""

    runtime: ReferenceRuntime

    def __init__(self, runtime: ReferenceRuntime, outputs: Sequence[TensorSpec]) -> None:
        super().__init__(runtime, outputs)

    @property
    def domains(self) -> Mapping[str, Domain]:
        return self.runtime.domains

    @property
    def features(self) -> tuple[str, ...] | None:
        return self.runtime.features

    def other_kernels(self) -> TappedRuntime | None:
        """See `ReferenceRuntime.other_kernels`."""
        other = self.runtime.other_kernels()
        return None if other is None else TappedRuntime(other, self.outputs)

    def beside(self, options: RuntimeOptions, path: Path) -> Runtime | None:
        """See `ReferenceRuntime.beside`."""
        return self.runtime.beside(options, path)

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """See `ReferenceRuntime.within`."""
        return self.runtime.within(seconds)

    def again(self) -> TappedReference:
        """See `ReferenceRuntime.again`."""
        return TappedReference(self.runtime.again(), self.outputs)


class PartRuntime(Closing):
    """A part that is fed by the whole model, as a runtime with the whole model's inputs.

    Args:
        whole: the whole model, whose outputs are the part's inputs.
        part: the part.
    """

    taps: frozenset[str] = frozenset()

    def __init__(self, whole: TappedRuntime, part: Runtime) -> None:
        self._whole, self._part = whole, part

    @property
    def name(self) -> str:
        return self._part.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._whole.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._part.outputs

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        return self._part.run(self._whole.run(feeds), taps=taps)

    def close(self) -> None:
        self._part.close()
        self._whole.close()


class PartJudge(Judge):
    """Compares parts of a model with the model.

    Args:
        source: the whole model's file.
        graph: the graph from the whole model's inputs to the part's outputs.
        part: the part, whose precision counts.
        runtime: the process that runs the whole model.
    """

    def __init__(
        self,
        source: Artifact,
        params: ValidateParams,
        runtime: ReferenceRuntime,
        graph: Model,
        part: Model,
        tell: Tell | None = None,
    ) -> None:
        self._whole, self._inputs = runtime, part.inputs
        tapped = TappedReference(runtime, part.outputs)
        run = ReferenceRun(source, params, tapped, graph, tell, precision=precision_of(source, part))
        super().__init__(source, params, run=run, tell=tell)
        self._is_shared = False

    def _open(self, candidate: Artifact) -> Runtime:
        return PartRuntime(TappedRuntime(self._whole.again(), self._inputs), super()._open(candidate))
