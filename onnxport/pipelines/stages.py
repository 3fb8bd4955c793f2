"""The Stage contract: what a pipeline is made of, for single commands and for whole pipelines alike.

A stage declares its name, its params model, the format it takes and the one it gives, and the libraries that
shape its bytes. Its worker is pure: the same model and params give the same files on the same versions. The
worker lives in another module and is imported when the stage starts.
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
    from onnxport.optimizers.canonical_form import Equivalence
    from onnxport.validate.params import ValidateParams

P = TypeVar("P", bound=BaseModel)


class Phases(Protocol):
    """Where a worker says what it is doing, for the progress display and the timings."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...

    def progress(self, done: int, total: int) -> None:
        """How far the phase that runs has come."""
        ...


@dataclass(frozen=True)
class UsersInputs:
    """See `--inputs` and `--preprocess`."""

    folder: Path
    preprocess: Mapping[str, str]


@dataclass(frozen=True)
class Work:
    """What the runner hands to a worker beside the model and the params.

    Attributes:
        output: the file to write, in a private folder; what belongs to it goes beside it.
        manifest: what the artefact is to say of itself, but for its ports and taps.
        equivalence: the judge's opinion on an intermediate graph; None when the user asked for no proof.
        phases: steps worth a line of their own in the progress and the timings.
        inputs: the user's folder of inputs and how its images are preprocessed, for workers that measure; None where
            there is none.
        validation: how the result will be judged; None for not at all.
    """

    output: Path
    manifest: Manifest
    equivalence: Equivalence | None
    phases: Phases
    inputs: UsersInputs | None = None
    validation: ValidateParams | None = None


@dataclass(frozen=True)
class Product:
    """What a worker made.

    Attributes:
        notes: sentences for the user, the same from run to run.
        facts: figures about the artefact for the report ("transposes": 1).
        unrunnable: why no runtime here can run it, so that nothing can be proven; empty where one can.
        is_ours: whether passes of ours made it, which can be checked one by one when the result is wrong.
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
        modules: in which the stage's object, params and worker are.
        sources: SHA-256 of the packages of these, as hexadecimal text. It is part of what a product follows from, since
            code under development changes between two versions.
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
        worker: "module:function"; the function returns a context manager of the Worker. Entering it begins
            what needs no model yet, such as a child process that imports its compiler.
        rewrites: whether the worker runs optimizer passes, and checks each where it is given an equivalence, as it is
            when its product was found to be wrong.
        checks_passes: whether it is given one from the start.
        lowers: whether its result rounds what its source does not: the steps behind it are held to the result, and
            only the loss is asked of the source.
        provider: the distribution that brings it; None for ours. plugins.py fills it in.
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
        """The worker as a context manager; `registry.open_worker` checks first what it needs."""
        module, _, function = self.worker.partition(":")
        started: AbstractContextManager[Worker] = getattr(importlib.import_module(module), function)()
        return started
