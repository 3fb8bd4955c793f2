"""Converts options of a pipeline.yaml, with their places, for the params models.

A proof has options of the whole pipeline, of the model, and of the stage or target. The nearest wins; mappings (budget,
preprocess, shape, ...) are merged key by key.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from onnxport.core import reads
from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.core.missing_paths import missing_path
from onnxport.core.named_values import parse_pairs
from onnxport.core.urls import is_url
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_paths import takes_urls
from onnxport.formats.remote import fetch, place_for
from onnxport.pipelines.config.document import Faults, Part, Place, show
from onnxport.pipelines.config.scalars import source_text, to_plain
from onnxport.pipelines.config.schema import NEEDED, Section, keys_of
from onnxport.pipelines.params import RefusedValue, expected_value, suggest
from onnxport.reports.trackers import tracker_of
from onnxport.validate.params import ValidateParams

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")
S = TypeVar("S", bound=Section)
P = TypeVar("P", bound=BaseModel)

_REPORT_TENSORS = "report_tensors"  # each proof of a run would overwrite the file
# Options of a proof that no pipeline may have.
_NO_KEYS = frozenset(("part", "preprocess_is_shared", _REPORT_TENSORS))
# Options of a stage or target that apply to its proof too.
SHARED = ("shape", "state")
# The same for one that calibrates.
SHARED_CALIBRATING = (*SHARED, "preprocess", "seed")


def proof_fields() -> dict[str, FieldInfo]:
    """Return the options of a proof that a pipeline may have."""
    return {name: field for name, field in ValidateParams.model_fields.items() if name not in _NO_KEYS}


@dataclass(frozen=True)
class Options:
    """Options with their places in the file."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    @classmethod
    def at(cls, place: Place, values: Mapping[str, Any]) -> Options:
        given = {name: value for name, value in values.items() if value is not None}
        return cls(given, {name: (*place, name) for name in given})

    def only(self, names: Collection[str]) -> Options:
        return Options(
            {name: value for name, value in self.values.items() if name in names},
            {name: place for name, place in self.places.items() if name in names},
        )

    def overridden_by(self, nearer: Options) -> Options:
        """Merge `nearer` over these; mappings key by key."""
        values = dict(self.values)
        for name, value in nearer.values.items():
            before = values.get(name)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            values[name] = {**before, **value} if both else value  # type: ignore[dict-item]
        return Options(values, {**self.places, **nearer.places})

    def with_values(self, values: Mapping[str, Any]) -> Options:
        """Return the same places with other values."""
        return Options(dict(values), self.places)

    def without(self, name: str) -> Options:
        return self.only(self.values.keys() - {name})


@dataclass(frozen=True)
class Proofs:
    """The options of a proof, merged so far; `wanted` is False for no proof."""

    options: Options = field(default_factory=Options)
    wanted: bool = True

    def overridden_by(self, nearer: Proofs | None) -> Proofs:
        if nearer is None:
            return self
        return Proofs(self.options.overridden_by(nearer.options), nearer.wanted)

    def with_shared(self, options: Options) -> Proofs:
        """Merge options of a stage or target that apply to the proof too."""
        return Proofs(self.options.overridden_by(options), self.wanted)


@dataclass(frozen=True)
class OptionsReader:
    """Reads sections and options; collects their `faults`.

    Attributes:
        folder: of relative paths.
        metrics: names of the user's own metrics in the file.
        read: files and folders of options, with their places.
    """

    faults: Faults
    folder: Path
    metrics: frozenset[str] = frozenset()
    read: dict[Path, Place] = field(default_factory=dict)
    _copies: dict[str, Path] = field(default_factory=dict)
    _targets: dict[str, Path] = field(default_factory=dict)

    def section(self, kind: type[S], place: Place, given: object) -> S | None:
        """Read a section of the file; None if a required key is missing or wrong."""
        if not isinstance(given, Mapping):
            fix = f"write keys: {', '.join(keys_of(kind))}"
            self.faults.add(f"keys are expected here, not {show(given)}", *place, fix=fix)
            return None
        values = dict(given)
        while True:
            try:
                return kind.model_validate(values)
            except ValidationError as error:
                names = {str(each["loc"][0]) for each in error.errors()}
                for each in error.errors(include_url=False):
                    self._refuse(kind, place, each)
                fields = {field.alias or name: field for name, field in kind.model_fields.items()}
                if any(name in fields and fields[name].is_required() for name in names):
                    return None
                values = {name: value for name, value in values.items() if name not in names}

    def _refuse(self, kind: type[Section], place: Place, refusal: ErrorDetails) -> None:
        name = str(refusal["loc"][0])
        if refusal["type"] == "extra_forbidden":
            error = UsageError("there is no such key", fix=suggest(name, keys_of(kind)))
        elif refusal["type"] == "missing":
            # In a section with options, a misspelt key is refused nowhere else.
            given = refusal["input"] if kind.model_config.get("extra") == "allow" else ()
            near = next(iter(difflib.get_close_matches(name, given, n=1)), "")
            fix = f"did you mean it by {near!r}?" if near else NEEDED[name]
            self.faults.add(f"{name} is missing", *place, fix=fix)
            return
        else:
            fields = kind.model_fields.items()
            field = next((key for key, found in fields if (found.alias or key) == name), name)
            fix = expected_value(kind, refusal, field)
            error = UsageError(f"{show(refusal['input'])} is not valid", fix=fix)
        self.faults.add(error, *place, *refusal["loc"])

    def select_known(
        self,
        options: Options,
        fields: Collection[str],
        *,
        purpose: str,
        beside: Collection[str] = (),
        elsewhere: Mapping[str, str] | None = None,
    ) -> Options:
        """Return the `options` that are among `fields`; the others are faults.

        Args:
            beside: the section's own keys, to suggest.
            elsewhere: names that belong elsewhere, with the way out.
        """
        for name in (each for each in options.values if each not in fields):
            place, keys = options.places[name], beside
            if isinstance(place[-1], int):  # a value of a matrix: its key is wrong
                place, keys = place[:-1], ()
            if elsewhere and name in elsewhere:
                self.faults.add(f"{purpose} has no such option", *place, fix=elsewhere[name])
            else:
                fix = suggest(name, fields, keys)
                self.faults.add(f"{purpose} has no option {name!r}", *place, fix=fix)
        return options.only(fields)

    def fit(self, options: Options, fields: Mapping[str, FieldInfo]) -> Options:
        """Convert YAML values to the forms that the fields take; impossible ones are faults."""
        values = {}
        for name, value in options.values.items():
            with self.faults.catching(*options.places[name]):
                values[name] = _fit(name, fields[name], value) if name in fields else value
                if name in fields and takes_urls(fields[name]):
                    values[name] = self._fetch_urls(values[name])
        return options.only(values).with_values(values)

    def _fetch_urls(self, value: Any) -> Any:
        """Return an option's value with copies in place of URLs."""
        if isinstance(value, Mapping):
            return {key: self._fetch_urls(each) for key, each in value.items()}
        return self.path(value) if is_url(value) else value

    def as_mappings(self, options: Options) -> Options:
        """Convert NAME=VALUE texts in `options` of a proof to mappings, which can be merged."""
        values = {}
        for name, value in options.values.items():
            with self.faults.catching(*options.places[name]):
                is_named = _has_container(dict, _kinds(ValidateParams.model_fields[name].annotation))
                values[name] = parse_pairs(value) if is_named and not isinstance(value, Mapping) else value
        return options.only(values).with_values(values)

    def fill(
        self,
        make: Callable[[dict[str, Any]], T],
        options: Options,
        place: Place,
        fields: Mapping[str, FieldInfo],
    ) -> T | None:
        """Call `make` with `options`; None if it refuses some, each of which is a fault.

        Args:
            place: for faults of several options together.
            fields: their fields, to find the option at fault.
        """
        values, refused = dict(options.values), False
        while True:
            try:
                made = make(values)
            except RefusedValue as error:
                name = str(error.place[0])
                self.faults.add(error, *options.places.get(name, place), *error.place[1:])
                refused = True
                if values.pop(name, None) is None:
                    return None
            except OnnxportError as error:
                if not refused:
                    culprit = next((name for name in values if _refuses(fields.get(name), values[name])), "")
                    self.faults.add(error, *options.places.get(culprit, place))
                return None
            else:
                return None if refused else made

    def resolve_paths(self, params: P, options: Options, place: Place) -> P:
        """Make the paths in `params` relative to the pipeline's folder; missing files are faults."""
        update: dict[str, Any] = {}
        for name in type(params).model_fields:
            value = getattr(params, name)
            if isinstance(value, Path):
                update[name] = self.path(value)
            elif isinstance(value, Mapping) and any(isinstance(each, Path) for each in value.values()):
                update[name] = {key: self.path(each) for key, each in value.items()}
        for name, value in update.items():
            for key, path in value.items() if isinstance(value, dict) else [(None, value)]:
                self.check_there(path, *options.places.get(name, place), *([key] if key else []))
        return params.model_copy(update=update)

    def path(self, given: str | Path) -> Path:
        """Return the path of a file to read; of a URL that of its copy, which is fetched once. Raises as `fetch`."""
        if isinstance(given, Path) or not is_url(given):
            return self.folder / given
        if given not in self._copies:
            self._copies[given] = Path(fetch(given))
        return self._copies[given]

    def target(self, given: str) -> Path:
        """Return the path of a file or folder to write; raises as `remote.place_for`."""
        if tracker_of(Path(given)) is not None:
            return Path(given)
        if not is_url(given):
            return self.folder / given
        if given not in self._targets:
            self._targets[given] = Path(place_for(given))
        return self._targets[given]

    def check_there(self, path: Path, *place: Part) -> None:
        """Add a fault for a missing file or folder, or for an empty folder."""
        self.read.setdefault(path, place)
        reads.note(path)
        with self.faults.catching(*place):
            try:
                if not path.exists():
                    raise missing_path(path)
                if path.is_dir() and not any(path.iterdir()):
                    raise InputError(f"the folder {path} is empty", fix="put files into it, or name another")
            except OSError as error:
                raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error

    def proofs(self, place: Place, given: bool | Mapping[str, Any]) -> Proofs | None:
        """Read a `validate` section; None if it is empty."""
        if isinstance(given, bool):
            return Proofs(wanted=given)
        if not given:
            return None
        options = Options.at(place, given)
        if _REPORT_TENSORS in options.values:
            fix = "leave it out: onnxport validate writes the tensors of one artefact"
            self.faults.add("every proof of the run would write this file", *place, _REPORT_TENSORS, fix=fix)
            options = options.without(_REPORT_TENSORS)
        keys = proof_fields()
        for name in options.values:
            if name not in keys:
                self.faults.add("the proof has no such option", *place, name, fix=suggest(name, keys))
        fitted = self.as_mappings(self.fit(options.only(keys), keys))
        if "inputs" in fitted.values:
            self.check_there(self.path(fitted.values["inputs"]), *place, "inputs")
        self._check_limits(fitted.values.get("budget"), (*place, "budget"))
        return Proofs(fitted)

    def _check_limits(self, budget: object, place: Place) -> None:
        """Add faults for limits of unknown metrics, each at its line."""
        if not isinstance(budget, Mapping):
            return
        from onnxport.validate.budgets import check_limit  # imports NumPy

        for text, value in budget.items():
            with suppress(TypeError, ValueError), self.faults.catching(*place, text):
                check_limit(text, float(value), self.metrics)  # pydantic refuses what is no number


def _refuses(field: FieldInfo | None, value: Any) -> bool:
    """Return whether a field refuses a value by itself."""
    if field is None or not field.metadata:  # pydantic refuses a plain type as a RefusedValue
        return False
    try:
        TypeAdapter(Annotated[field.annotation, *field.metadata]).validate_python(value)
    except (OnnxportError, ValidationError):
        return True
    return False


_NUMBERS = (int, float)


def _fit(name: str, field: FieldInfo, value: Any) -> Any:
    """Convert `value` to the form that a field takes: numbers to text for a text field, and in mappings likewise."""
    kinds = _kinds(field.annotation)
    single = isinstance(value, bool | int | float)
    if isinstance(value, bool) and bool not in kinds and {*kinds} & {*_NUMBERS}:
        raise RefusedValue(name, value, "give a number")
    if single and {*kinds} & {str, Path} and not {*kinds} & {*_NUMBERS, bool}:
        return source_text(value)
    if _has_container(tuple, kinds) and isinstance(value, list):
        return [source_text(each) if isinstance(each, int | float) else each for each in value]
    kind = next((each for each in kinds if get_origin(each) is dict), None)
    if kind is None:
        return value
    _, held = get_args(kind)
    if not isinstance(value, Mapping):
        return value
    if held is str:  # numbers as they are written; the params model converts or refuses a list
        return {
            key: to_plain(each)
            if isinstance(each, list)
            else source_text(each)
            if isinstance(each, bool | int | float)
            else each
            for key, each in value.items()
        }
    if held is TensorSpec:
        return {
            key: ",".join(map(source_text, each)) if isinstance(each, list) else each
            for key, each in value.items()
        }
    return value


def _has_container(container: type, kinds: Sequence[Any]) -> bool:
    """Return whether one of `kinds` is such a container, as dict[str, str] is a dict."""
    return any(get_origin(kind) is container for kind in kinds)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the types of an annotation without Annotated and None."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = (member for member in get_args(annotation) if member is not type(None))
        return tuple(kind for member in members for kind in _kinds(member))
    return (annotation,)
