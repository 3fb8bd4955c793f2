"""What validate runs: named arrays in, named arrays out, whatever the format behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import USAGE, MachineError, UsageError
from onnxport.formats.artifact import TensorSpec

if TYPE_CHECKING:
    from onnxport.runtimes.options import RuntimeOptions
    from onnxport.samples.domain import Domain


class RunError(UsageError):
    """A loaded model that refuses to run on inputs that fit its signature; `why` is the runtime's own cause."""


class SlowRunError(RunError):
    """A run that did not end within the time that its caller had for it."""


class MemoryFullError(MachineError):
    """A run that needs more memory than the machine has; one on smaller inputs may do."""


class OverLimitError(MemoryFullError):
    """A run that needs more memory than the user allows."""

    exit_code = USAGE


class Runtime(Protocol):
    """One loaded model. `inputs` and `outputs` carry the source model's names, order and dtypes."""

    @property
    def name(self) -> str:
        """The runtime and its version, for the report: "ONNX Runtime 1.31.1, CPU"."""
        ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def taps(self) -> frozenset[str]:
        """The names of intermediate values that `run` can give as well; empty where the format shows none."""
        ...

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """Runs the model once.

        Args:
            feeds: every input by name; shapes as declared, any size where a dimension is open.
            taps: intermediate values wanted beside the outputs.

        Raises:
            UsageError: an input is missing, unknown, or of a wrong dtype or shape; a tap that is not in `taps`.
            RunError: the model cannot run on these inputs, for instance at sizes that its layers do not fit.
            MemoryFullError: the machine does not hold what the model computes.
            MachineError: the runtime crashed or hung.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ReferenceRuntime(Runtime, Protocol):
    """A Runtime that can say what its own noise is, and maybe what its inputs may hold."""

    @property
    def domains(self) -> Mapping[str, Domain]:
        """Of the inputs of which it knows more than a graph shows."""
        ...

    @property
    def features(self) -> tuple[str, ...] | None:
        """Of a model of tables the names of its columns, () where they have none; None for any other model."""
        ...

    def other_kernels(self) -> Runtime | None:
        """The same model computed by other kernels; it ends with the first of the two to close. None for none.

        Raises:
            InputError: it cannot be loaded so.
        """
        ...

    def beside(self, options: RuntimeOptions, path: Path) -> Runtime | None:
        """Another ONNX model in the same process; None where that runs no ONNX models."""
        ...

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Ends runs inside it after `seconds`, by SlowRunError, where the model is quickly loaded again."""
        ...

    def again(self) -> ReferenceRuntime:
        """The same model in a new process, where the first has ended."""
        ...


def check_feeds(inputs: Sequence[TensorSpec], feeds: Feeds) -> None:
    """Refuses feeds that do not fit `inputs`, naming the input (UsageError)."""
    names = [spec.name for spec in inputs]
    missing = [name for name in names if name not in feeds]
    unknown = [name for name in feeds if name not in names]
    if missing or unknown:
        wrong = f"lack {missing}" if missing else f"have {unknown}, which the model does not"
        raise UsageError(f"the inputs {wrong}", fix=f"the model's inputs are {names}")
    for spec in inputs:
        check_feed(spec, feeds[spec.name])


def check_feed(spec: TensorSpec, array: Array) -> None:
    """Refuses an array that is not of the dtype and shape that `spec` declares (UsageError)."""
    given = "string" if array.dtype.kind in "OUS" else array.dtype.name
    if given != spec.dtype:
        raise UsageError(f"input {spec.name!r} is {given}, the model takes {spec.dtype}")
    fits = len(array.shape) == len(spec.shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise UsageError(f"input {spec.name!r} has shape {list(array.shape)}, the model takes {spec}")


def check_taps(known: frozenset[str], wanted: Sequence[str], model: str) -> None:
    """Refuses intermediate values that `model` cannot show (UsageError)."""
    unknown = [name for name in wanted if name not in known]
    if not unknown:
        return
    if not known:
        raise UsageError(f"{model} shows no intermediate values", why=f"asked for {unknown}")
    raise UsageError(f"{model} has no intermediate values {unknown}", fix=f"it can show {len(known)} others")
