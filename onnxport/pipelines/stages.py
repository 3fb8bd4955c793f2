"""The Stage contract: what a pipeline is made of, for single commands and for whole pipelines alike.

A stage declares its name, its params model, the format it takes and the one it gives, and the libraries that
shape its bytes. Its worker is pure: the same model and params give the same files on the same versions. The
worker lives in another module and is imported when the stage starts, so that the declarations below cost a
`--help` nothing.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact, Format
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines import plugins
from onnxport.pipelines.environment import RUNS_ON, require
from onnxport.pipelines.environment import TARGETS as TARGET_LIBRARIES
from onnxport.quantize.params import QuantizeParams

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from onnxport.formats.manifest import Manifest
    from onnxport.formats.model import Model
    from onnxport.optimizers.prepare import Equivalence
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
    provider: plugins.Provider | None = None

    def open(self) -> AbstractContextManager[Worker]:
        """Starts the worker.

        Raises:
            MissingDependencyError: a library is not installed here.
        """
        require(self.libraries, f"the step {self.name!r}")
        return self.started() if self.provider is None else plugins.guarded(self)

    def started(self) -> AbstractContextManager[Worker]:
        """As `open`, of what is known to be here."""
        module, _, function = self.worker.partition(":")
        started: AbstractContextManager[Worker] = getattr(importlib.import_module(module), function)()
        return started


TARGETS: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            "tflite",
            TfliteParams,
            takes="onnx",
            gives="tflite",
            libraries=TARGET_LIBRARIES["tflite"],
            worker="onnxport.pipelines.workers:tflite",
            rewrites=True,
        ),
        Stage(
            "coreml",
            CoremlParams,
            takes="onnx",
            gives="coreml",
            libraries=TARGET_LIBRARIES["coreml"],
            worker="onnxport.pipelines.workers:coreml",
            rewrites=True,
        ),
        Stage(
            "ort",
            OrtParams,
            takes="onnx",
            gives="ort",
            libraries=TARGET_LIBRARIES["ort"],
            worker="onnxport.pipelines.workers:ort",
        ),
    )
}

QUANTIZE = Stage(
    "quantize",
    QuantizeParams,
    takes="onnx",
    gives="onnx",
    libraries=RUNS_ON["onnx"],
    worker="onnxport.pipelines.workers:quantize",
    lowers=True,
)

OPTIMIZE = Stage(
    "optimize",
    OptimizeParams,
    takes="onnx",
    gives="onnx",
    libraries=RUNS_ON["onnx"],
    worker="onnxport.pipelines.workers:optimize",
    checks_passes=True,
)

# What a pipeline names as a step that targets share.
STAGES: Mapping[str, Stage] = {stage.name: stage for stage in (OPTIMIZE, QUANTIZE)}


def target(name: str) -> Stage:
    """The stage that makes what pipelines and `convert_model` call `name`, ours or a plugin's.

    Raises:
        UsageError: there is none.
        MissingDependencyError: the plugin that brings it cannot be used.
    """
    return _named(TARGETS, "target", name)


def shared(name: str) -> Stage:
    """The step that a pipeline uses by `name`, ours or a plugin's; raises as `target` does."""
    return _named(STAGES, "stage", name)


def known_targets() -> tuple[str, ...]:
    """The names of targets, those of plugins last; imports none of these."""
    return tuple(dict.fromkeys((*TARGETS, *(plugin.name for plugin in plugins.installed("target")))))


def known_stages() -> tuple[str, ...]:
    """The names of shared steps, those of plugins last; imports none of these."""
    return tuple(dict.fromkeys((*STAGES, *(plugin.name for plugin in plugins.installed("stage")))))


def _named(ours: Mapping[str, Stage], kind: plugins.Kind, name: str) -> Stage:
    found = plugins.find(kind, name) or ours.get(name)
    if found is None:
        known = known_targets() if kind == "target" else known_stages()
        near = difflib.get_close_matches(name, known, n=1)
        wanted = f"did you mean {near[0]!r}?" if near else f"{kind}s are {', '.join(known)}"
        raise UsageError(f"there is no {kind} {name!r}", fix=wanted)
    return found


def check_known(
    options: Mapping[str, Any], *models: type[BaseModel], purpose: str, further: Collection[str] = ()
) -> None:
    """Raises UsageError for an option that is a field of none of `models`, naming the nearest one that is.

    Args:
        further: single fields that are known as well.
    """
    known = {*further, *(name for model in models for name in model.model_fields)}
    for name in options:
        if name not in known:
            raise UsageError(f"{purpose} has no option {name!r}", fix=nearest(name, known))


def params_of(model: type[P], options: Mapping[str, Any], *, purpose: str) -> P:
    """The params model filled from `options`.

    Raises:
        UsageError: an option that it does not have, or a value that it refuses.
    """
    check_known(options, model, purpose=purpose)
    try:
        return model.model_validate(options)
    except ValidationError as error:
        raise _refused(model, error) from None


class RefusedValue(UsageError):
    """A value that the option `name` cannot have; `place` is the way to it, from the option on."""

    def __init__(self, name: str, value: object, fix: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"option {name!r} has the value {value!r}", fix=fix)
        self.name, self.value, self.place = name, value, place or (name,)


# pydantic's kinds of refusal in our words.
_WANTED = {
    "finite_number": "give a finite number",
    "literal_error": "give {expected}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "give a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "give a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "give true or false"),
    "path_type": "give a path",
    "string_type": "give text",
    "tuple_type": "give text, or a list of several",
    "dict_type": "give keys with values",
}


def _refused(model: type[BaseModel], error: ValidationError) -> UsageError:
    refusal = error.errors(include_url=False)[0]
    name, *inner = refusal["loc"]
    if refusal["type"] == "missing":
        return UsageError(f"option {name!r} has to be given", fix="it has no default")
    where = "".join(f"[{part!r}]" for part in inner)
    return RefusedValue(f"{name}{where}", refusal["input"], wanted(model, refusal, str(name)), refusal["loc"])


def wanted(model: type[BaseModel], refusal: ErrorDetails, name: str) -> str:
    """What the field `name` of `model` takes instead of a value that it refused, as the way out."""
    kind = refusal["type"]
    if kind in ("greater_than", "greater_than_equal", "less_than_equal"):
        return _bounds(model.model_fields[name])
    if kind in _WANTED:
        return _WANTED[kind].format(**refusal.get("ctx", {}))
    return refusal["msg"].removeprefix("Value error, ")


def _bounds(field: FieldInfo) -> str:
    above, least, most = (
        next((getattr(bound, kind) for bound in field.metadata if hasattr(bound, kind)), None)
        for kind in ("gt", "ge", "le")
    )
    if above is not None:
        return f"give more than {above}" + ("" if most is None else f", {most} at most")
    if least is not None and most is not None:
        return f"give {least} to {most}"
    return f"give {least} or more" if most is None else f"give {most} or less"


def nearest(name: str, known: Collection[str], beside: Collection[str] = ()) -> str:
    """The way out for a name that is none of `known`, nor of the keys that may stand `beside` these."""
    close = difflib.get_close_matches(name, (*known, *beside), n=1)
    return f"did you mean {close[0]!r}?" if close else f"its options are {', '.join(sorted(known))}"
