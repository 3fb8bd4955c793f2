"""The Stage contract: the building blocks of single commands and of whole pipelines.

A stage declares its name, its params model, its input and output formats, and the libraries that determine its bytes.
Its worker is pure: the same model and params give the same files with the same versions. The worker's module is
imported when the stage starts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel

from onnxport.formats.artifact import Artifact, Format

if TYPE_CHECKING:
    from onnxport.formats.manifest import Manifest
    from onnxport.formats.model import Model
    from onnxport.optimizers.passes import Equivalence
    from onnxport.validate.params import ValidateParams

P = TypeVar("P", bound=BaseModel)


class Phases(Protocol):
    """Receives a worker's progress, for the display and the timings."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...

    def progress(self, done: int, total: int) -> None:
        """Report the progress of the current phase."""
        ...


@dataclass(frozen=True)
class UsersInputs:
    """The values of `--inputs` and `--preprocess`."""

    folder: Path
    preprocess: Mapping[str, str]


@dataclass(frozen=True)
class Work:
    """The input of a worker beside the model and the params.

    Attributes:
        output: the file to write, in a private folder; companion files go beside it.
        manifest: the note for the artefact, without its ports and taps.
        equivalence: the judge's check of an intermediate graph; None without a proof.
        phases: receives the steps that the display and the timings show.
        inputs: the user's folder of inputs with its preprocessing, for workers that measure; None without one.
        validation: the options of the proof; None for no proof.
        tries: whether the worker runs what it made, to refuse what no runtime takes; False where the proof runs it.
    """

    output: Path
    manifest: Manifest
    equivalence: Equivalence | None
    phases: Phases
    inputs: UsersInputs | None = None
    validation: ValidateParams | None = None
    tries: bool = True


@dataclass(frozen=True)
class Product:
    """The result of a worker.

    Attributes:
        notes: sentences for the user, the same in every run.
        facts: figures about the artefact for the report ("transposes": 1).
        unrunnable: why no runtime can run it here, so it stays unproven; empty if one can.
        is_ours: whether our own passes made it, which can be checked one by one if the result is wrong.
    """

    artifact: Artifact
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    unrunnable: str = ""
    is_ours: bool = True


Worker = Callable[["Model", Any, Work], Product]


@dataclass(frozen=True)
class Provider:
    """The distribution that a stage comes from.

    Attributes:
        modules: of the stage's object, params and worker.
        sources: hexadecimal SHA-256 of their packages, a part of the cache key: code under development changes.
    """

    distribution: str
    version: str
    modules: tuple[str, ...]
    sources: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Stage:
    """One kind of step.

    Attributes:
        name: in YAML, in reports, and the value of `--to` for a target.
        params: the pydantic model of its options, in <room>/params.py.
        takes, gives: formats.
        libraries: distributions that it needs; their versions are part of an artefact's provenance.
        worker: "module:function"; the function returns a context manager of the Worker. Entering it starts what needs
            no model yet, such as a child process that imports its compiler.
        rewrites: whether the worker runs optimizer passes, and checks each if `equivalence` is given. The runner gives
            it after a wrong product.
        checks_passes: whether it is given from the start.
        lowers: whether it lowers the precision: the following steps are compared with its result, and only the loss of
            quality is measured against the source.
        provider: the distribution that brings it; None for our own. plugins.py sets it.
    """

    name: str
    params: type[BaseModel]
    takes: Format
    gives: Format
    libraries: tuple[str, ...]
    worker: str
    rewrites: bool = False
    checks_passes: bool = False
    lowers: bool = False
    provider: Provider | None = None

    def started(self) -> AbstractContextManager[Worker]:
        """Return the worker as a context manager; `registry.open_worker` checks its libraries first."""
        module, _, function = self.worker.partition(":")
        started: AbstractContextManager[Worker] = getattr(importlib.import_module(module), function)()
        return started
