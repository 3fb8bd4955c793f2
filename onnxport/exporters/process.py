"""A framework's model in its own process: the parent's side and the child's."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.arrays import Array, Feeds
from onnxport.core.child_process import Child, ChildDied
from onnxport.core.resources import Closing
from onnxport.core.user_code import UsedCode, Watch
from onnxport.exporters.framework import Exported, Framework
from onnxport.exporters.missing_modules import EXTRAS, missing_module_error
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import LOADERS, Source
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.base import check_feeds, check_taps

if TYPE_CHECKING:
    from onnxport.runtimes.options import RuntimeOptions
    from onnxport.samples.domain import Domain


# TensorFlow makes up to 22 copies of all weights while it turns variables into constants and optimizes the graph.
_COPIES_OF_TENSORFLOW = 26


@dataclass(frozen=True)
class Description:
    """The child's description of its model."""

    kind: str
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    has_other_kernels: bool
    domains: Mapping[str, Domain]
    features: tuple[str, ...] | None


class Host:
    """The child's side."""

    def __init__(self) -> None:
        self._name = ""
        self._framework: Framework | None = None
        self._watch = Watch().__enter__()

    def open(self, source: Source, params: ExportParams) -> Description:
        module, _, function = LOADERS[source.kind].partition(":")
        with _missing_as_error(source.name):
            framework: Framework = getattr(importlib.import_module(module), function)(source, params)
        self._name, self._framework = source.name, framework
        return Description(
            framework.kind,
            framework.name,
            framework.inputs,
            framework.outputs,
            framework.has_other_kernels,
            getattr(framework, "domains", {}),
            getattr(framework, "features", None),
        )

    def export(self, output: Path, opset: int | None) -> Exported:
        assert self._framework is not None, "open comes first"
        with _missing_as_error(self._name):
            return self._framework.export(output, opset)

    def run(self, feeds: Feeds, other_kernels: bool) -> dict[str, Array]:
        assert self._framework is not None, "open comes first"
        return self._framework.run(feeds, other_kernels=other_kernels)

    def consulted(self) -> UsedCode:
        return self._watch.consulted()


@contextmanager
def _missing_as_error(name: str) -> Iterator[None]:
    """Turn a missing framework into MissingDependencyError; let bugs of ours through."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        raise missing_module_error(name, error) from error


class SourceRuntime(Closing):
    """The framework's model as a Runtime (runtimes.base) and as its own exporter.

    Args:
        folder: the only one that it writes to, unless it runs the user's code.
        timeout: seconds per call.
    """

    taps: frozenset[str] = frozenset()
    permutations: Mapping[str, tuple[int, ...]] = {}
    remarks: tuple[str, ...] = ()

    def __init__(self, source: Source, params: ExportParams, folder: Path, *, timeout: float) -> None:
        self._source, self._params, self._folder, self._timeout = source, params, folder, timeout
        self._child = Child(
            f"{__name__}:Host",
            purpose=f"{source.name} in its framework",
            timeout=timeout,
            patience="give it more time with --timeout SECONDS",
            # A confined process makes no semaphores, which joblib would tell the user.
            environment={"JOBLIB_MULTIPROCESSING": "0"},
            # Code of the user's may write and load what it wants.
            writes=None if source.is_factory or params.trust else (folder,),
        )

    @cached_property
    def described(self) -> Description:
        try:
            with self._bounded():
                described: Description = self._child.call("open", self._source, self._params)
        except ChildDied as death:
            if not self._source.is_factory:  # a native reader, on bytes that it did not expect
                death.fix = f"{self._source.name} may be damaged: save it again, or try an older copy"
            raise
        return described

    def export(self, output: Path, opset: int | None) -> Exported:
        """See Framework.export."""
        assert self.described
        with self._bounded():
            exported: Exported = self._child.call("export", output, opset)
        return exported

    def _bounded(self) -> AbstractContextManager[None]:
        """Limit the memory that a file of others takes; code of the user's may take what it wants."""
        if self._source.is_factory or self._params.trust:
            return nullcontext()
        if self._source.kind == "tensorflow":
            return self._child.bounded(self._source.size, copies=_COPIES_OF_TENSORFLOW)
        return self._child.bounded(self._source.size)

    def consulted(self) -> UsedCode:
        """Return the user code and files that the model read."""
        consulted: UsedCode = self._child.call("consulted")
        return consulted

    @property
    def name(self) -> str:
        return self.described.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.described.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.described.outputs

    @property
    def domains(self) -> Mapping[str, Domain]:
        return self.described.domains

    @property
    def features(self) -> tuple[str, ...] | None:
        return self.described.features

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        return self._run(feeds, taps, other_kernels=False)

    def other_kernels(self) -> _OtherKernels | None:
        """Return the same model with other kernels, in the same process; None where the framework has none."""
        return _OtherKernels(self) if self.described.has_other_kernels else None

    def beside(self, options: RuntimeOptions, path: Path) -> None:
        """Return None: a framework's process runs its own model only. See `ReferenceRuntime.beside`."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Do nothing: loading a framework again takes longer than most runs. See `ReferenceRuntime.within`."""
        return nullcontext()

    def again(self) -> SourceRuntime:
        """Return the same model in a new process."""
        return SourceRuntime(self._source, self._params, self._folder, timeout=self._timeout)

    def close(self) -> None:
        self._child.close()

    def _run(self, feeds: Feeds, taps: Sequence[str], *, other_kernels: bool) -> dict[str, Array]:
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, self._source.name)
        answers: dict[str, Array] = self._child.call("run", dict(feeds), other_kernels)
        return answers


class _OtherKernels(Closing):
    """A SourceRuntime with other kernels; it ends with its original."""

    taps: frozenset[str] = frozenset()
    permutations: Mapping[str, tuple[int, ...]] = {}

    def __init__(self, runtime: SourceRuntime) -> None:
        self._runtime = runtime
        self.name = f"{runtime.name}, other kernels"
        self.inputs, self.outputs = runtime.inputs, runtime.outputs

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        return self._runtime._run(feeds, taps, other_kernels=True)

    def close(self) -> None:
        """Do nothing: the original owns the process."""
