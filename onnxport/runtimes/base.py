"""The protocol of a runtime: named arrays in, named arrays out, for every model format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from onnxport.core.errors import USAGE, MachineError, UsageError
from onnxport.formats.artifact import TensorSpec

if TYPE_CHECKING:
    from onnxport.core.arrays import Array, Feeds
    from onnxport.runtimes.options import RuntimeOptions
    from onnxport.samples.domain import Domain


class RunError(UsageError):
    """A loaded model refuses inputs that fit its signature; `why` is the runtime's own message."""


class UndefinedResultError(RunError):
    """The runtime's own documentation leaves open what it computes there."""


class SlowRunError(RunError):
    """A run exceeded the time that its caller allowed."""


class MemoryFullError(MachineError):
    """A run needs more memory than the machine has; smaller inputs may work."""


class OverLimitError(MemoryFullError):
    """A run needs more memory than the user allows."""

    exit_code = USAGE


class Runtime(Protocol):
    """One loaded model."""

    @property
    def name(self) -> str:
        """The runtime and its version, for the report: "ONNX Runtime 1.31.1, CPU"."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, with the source model's names, order and dtypes."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, with the source model's names, order and dtypes."""

    @property
    def taps(self) -> frozenset[str]:
        """The names of intermediate values that `run` can return; empty where the format exposes none."""

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """Run the model once and return the outputs and the taps by name.

        Args:
            feeds: every input by name, of the declared dtype and shape; open dimensions take any size.
            taps: intermediate values to return beside the outputs.

        Raises:
            UsageError: a missing or unknown input, a wrong dtype or shape, or a tap that is not in `taps`.
            RunError: the model cannot run on these inputs, for instance at sizes that its layers do not fit.
            MemoryFullError: the machine has too little memory.
            MachineError: the runtime crashed or hung.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ReferenceRuntime(Runtime, Protocol):
    """A Runtime that also measures its own noise and may know the domains of its inputs."""

    @property
    def domains(self) -> Mapping[str, Domain]:
        """The domains of those inputs of which it knows more than the graph shows."""

    @property
    def features(self) -> tuple[str, ...] | None:
        """The column names of a tabular model, () where its columns have none; None for any other model."""

    def other_kernels(self) -> Runtime | None:
        """Return the same model on other kernels, or None; closing one of the two closes both.

        Raises:
            InputError: it cannot be loaded so.
        """

    def beside(self, options: RuntimeOptions, path: Path) -> Runtime | None:
        """Open another ONNX model in the same process; None where that process runs no ONNX models."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """End runs in the block after `seconds` with SlowRunError, where the model reloads quickly."""

    def again(self) -> ReferenceRuntime:
        """Return the same model in a new process, after the first has ended."""


def check_feeds(inputs: Sequence[TensorSpec], feeds: Feeds) -> None:
    """Raise UsageError, naming the input, where `feeds` do not fit `inputs`."""
    names = [spec.name for spec in inputs]
    missing = [name for name in names if name not in feeds]
    unknown = [name for name in feeds if name not in names]
    if missing or unknown:
        wrong = f"lack {missing}" if missing else f"have {unknown}, which the model does not"
        raise UsageError(f"the inputs {wrong}", fix=f"the model's inputs are {names}")
    for spec in inputs:
        check_feed(spec, feeds[spec.name])


def check_feed(spec: TensorSpec, array: Array) -> None:
    """Raise UsageError where `array` has another dtype or shape than `spec` declares."""
    given = "string" if array.dtype.kind in "OUS" else array.dtype.name
    if given != spec.dtype:
        raise UsageError(f"input {spec.name!r} is {given}, the model takes {spec.dtype}")
    fits = len(array.shape) == len(spec.shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise UsageError(f"input {spec.name!r} has shape {list(array.shape)}, the model takes {spec}")


def check_taps(known: frozenset[str], wanted: Sequence[str], model: str) -> None:
    """Raise UsageError for intermediate values that `model` cannot return."""
    unknown = [name for name in wanted if name not in known]
    if not unknown:
        return
    if not known:
        raise UsageError(f"{model} exposes no intermediate values", why=f"{unknown} were requested")
    raise UsageError(
        f"{model} has no intermediate values {unknown}", fix=f"it can return {len(known)} others"
    )


def format_shapes(feeds: Feeds) -> str:
    """Return the shapes of feeds for an error message: "x [1, 3], y [4]"."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
