"""Options of a pipeline.yaml as the params models of the rooms take them: each knows where it stands.

The proof has several owners: its options are those of the whole pipeline, of the model and of the stage or target, and
the nearest wins; of those that are mappings (budget, preprocess, shape, ...) each key by itself.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.core.named_values import parse_pairs
from onnxport.formats.artifact import TensorSpec
from onnxport.pipelines.config.document import Part, Place, show
from onnxport.pipelines.config.faults import Faults
from onnxport.pipelines.config.scalars import source_text, to_plain
from onnxport.pipelines.config.schema import NEEDED, Section, keys_of
from onnxport.pipelines.params import RefusedValue, expected_value, suggest
from onnxport.validate.params import ValidateParams

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")
S = TypeVar("S", bound=Section)
P = TypeVar("P", bound=BaseModel)

_REPORT_TENSORS = "report_tensors"  # a file that every proof of a run would write over the last one's
# Options of a proof that stand in no pipeline: two that follow from the rest, and that.
_NO_KEYS = frozenset(("part", "preprocess_is_shared", _REPORT_TENSORS))
# What says to a stage or target how its model is fed, and so to the proof as well.
SHARED = ("shape", "state")
# The same of one that calibrates.
SHARED_CALIBRATING = (*SHARED, "preprocess", "seed")


def proof_fields() -> dict[str, FieldInfo]:
    """The options of a proof that may stand in a pipeline."""
    return {name: field for name, field in ValidateParams.model_fields.items() if name not in _NO_KEYS}


@dataclass(frozen=True)
class Options:
    """Options with the place that each stands at."""

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
        """These with `nearer` ones over them; of mappings each key by itself."""
        values = dict(self.values)
        for name, value in nearer.values.items():
            before = values.get(name)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            values[name] = {**before, **value} if both else value  # type: ignore[dict-item]
        return Options(values, {**self.places, **nearer.places})

    def with_values(self, values: Mapping[str, Any]) -> Options:
        """The same places with other values."""
        return Options(dict(values), self.places)

    def without(self, name: str) -> Options:
        return self.only(self.values.keys() - {name})


@dataclass(frozen=True)
class Proofs:
    """What was said of proofs on the way from the pipeline to a product; `wanted` is False for none."""

    options: Options = field(default_factory=Options)
    wanted: bool = True

    def overridden_by(self, nearer: Proofs | None) -> Proofs:
        if nearer is None:
            return self
        return Proofs(self.options.overridden_by(nearer.options), nearer.wanted)

    def with_shared(self, options: Options) -> Proofs:
        """With options of a stage or target that are the proof's too."""
        return Proofs(self.options.overridden_by(options), self.wanted)


@dataclass(frozen=True)
class OptionsReader:
    """Reads sections and options; what is wrong with them are `faults`.

    Attributes:
        folder: what relative paths start from.
        metrics: names of the user's own metrics, wherever the file names them.
        read: files and folders that options name, with the place that does.
    """

    faults: Faults
    folder: Path
    metrics: frozenset[str] = frozenset()
    read: dict[Path, Place] = field(default_factory=dict)

    def section(self, kind: type[S], place: Place, given: object) -> S | None:
        """A section of the file; None where it says too little to go on with."""
        if not isinstance(given, Mapping):
            self.faults.add(
                UsageError(f"{show(given)} stands here", fix=f"write keys: {', '.join(keys_of(kind))}"),
                *place,
            )
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
            # Where a key may be an option's, a misspelt one is refused nowhere else.
            given = refusal["input"] if kind.model_config.get("extra") == "allow" else ()
            near = next(iter(difflib.get_close_matches(name, given, n=1)), "")
            fix = f"did you mean it by {near!r}?" if near else NEEDED[name]
            self.faults.add(UsageError(f"{name} is missing", fix=fix), *place)
            return
        else:
            fix = expected_value(kind, refusal, _field(kind, name))
            error = UsageError(f"{show(refusal['input'])} cannot be meant", fix=fix)
        self.faults.add(error, *place, *refusal["loc"])

    def select_known(
        self,
        options: Options,
        *models: type[BaseModel],
        purpose: str,
        beside: Collection[str] = (),
        further: Collection[str] = (),
        elsewhere: Mapping[str, str] | None = None,
    ) -> Options:
        """Those of `options` that are fields of `models`, as these take them; the others are faults.

        Args:
            beside: the section's own keys, one of which may have been meant.
            further: single fields that are known as well.
            elsewhere: names that are known in other places, and what to do with them.
        """
        fields = {name: found for model in models for name, found in model.model_fields.items()}
        known = {*fields, *further}
        for name in (each for each in options.values if each not in known):
            place = options.places[name]
            keys = beside
            if isinstance(place[-1], int):  # one of the values of a matrix: of these the key is wrong
                place, keys = place[:-1], ()
            if elsewhere and name in elsewhere:
                self.faults.add(UsageError(f"{purpose} has no such option", fix=elsewhere[name]), *place)
            else:
                fix = suggest(name, known, keys)
                self.faults.add(UsageError(f"{purpose} has no option {name!r}", fix=fix), *place)
        return options.only(known)

    def fit(self, options: Options, fields: Mapping[str, FieldInfo]) -> Options:
        """`options` with values of the forms that YAML has as the fields take them; what cannot be is a fault."""
        values = {}
        for name, value in options.values.items():
            with self.faults.catching(*options.places[name]):
                values[name] = _fit(name, fields[name], value) if name in fields else value
        return options.only(values).with_values(values)

    def as_mappings(self, options: Options) -> Options:
        """`options` of a proof with NAME=VALUE texts as the mappings that they stand for, which can be joined."""
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
        """What `make` makes of `options`; None where it refuses some, each of which is a fault.

        Args:
            place: where they stand, for what is wrong with several of them.
            fields: what they fill, for what is wrong with one.
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
        """`params` with paths that start from the pipeline's folder; what is not there is a fault."""
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
        return self.folder / given

    def check_there(self, path: Path, *place: Part) -> None:
        """A file or folder that is missing, or a folder with nothing in it, is a fault."""
        self.read.setdefault(path, place)
        with self.faults.catching(*place):
            try:
                if not path.exists():
                    raise InputError(f"{path} does not exist")
                if path.is_dir() and not any(path.iterdir()):
                    raise InputError(f"the folder {path} is empty", fix="put files into it, or name another")
            except OSError as error:
                raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error

    def proofs(self, place: Place, given: bool | Mapping[str, Any]) -> Proofs | None:
        """A `validate` section; None where it says nothing."""
        if isinstance(given, bool):
            return Proofs(wanted=given)
        if not given:
            return None
        options = Options.at(place, given)
        if _REPORT_TENSORS in options.values:
            fix = "leave it out: onnxport validate writes those of one artefact"
            self.faults.add(
                UsageError("every proof of the run would write that file", fix=fix), *place, _REPORT_TENSORS
            )
            options = options.without(_REPORT_TENSORS)
        keys = proof_fields()
        for name in options.values:
            if name not in keys:
                self.faults.add(
                    UsageError("the proof has no such option", fix=suggest(name, keys)), *place, name
                )
        fitted = self.as_mappings(self.fit(options.only(keys), keys))
        if "inputs" in fitted.values:
            self.check_there(self.path(fitted.values["inputs"]), *place, "inputs")
        self._check_limits(fitted.values.get("budget"), (*place, "budget"))
        return Proofs(fitted)

    def _check_limits(self, budget: object, place: Place) -> None:
        """Refuses limits of metrics that there are not, each at its line."""
        if not isinstance(budget, Mapping):
            return
        from onnxport.validate.budgets import check_limit  # which brings NumPy

        for text, value in budget.items():
            with suppress(TypeError, ValueError), self.faults.catching(*place, text):
                check_limit(text, float(value), self.metrics)  # what is no number is pydantic's to refuse


def _refuses(field: FieldInfo | None, value: Any) -> bool:
    """Whether a field cannot have a value, whatever the others have."""
    if field is None or not field.metadata:  # a plain type is pydantic's to refuse, as a RefusedValue
        return False
    try:
        TypeAdapter(Annotated[field.annotation, *field.metadata]).validate_python(value)
    except (OnnxportError, ValidationError):
        return True
    return False


def _field(kind: type[BaseModel], key: str) -> str:
    return next((name for name, found in kind.model_fields.items() if (found.alias or name) == key), key)


_NUMBERS = (int, float)


def _fit(name: str, field: FieldInfo, value: Any) -> Any:
    """`value` in the form that a field takes: text for numbers where text is meant, NAME=VALUE as a mapping.

    Raises:
        UsageError: true or false where a number is meant, or a text that gives no value a name.
    """
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
    if held is str:
        return {key: _number_text(each) for key, each in value.items()}
    if held is TensorSpec:
        return {key: _join(each) if isinstance(each, list) else each for key, each in value.items()}
    return value


def _number_text(value: Any) -> Any:
    """A number as it is written; a list is for the params model to make text of, or to refuse."""
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    return source_text(value) if isinstance(value, bool | int | float) else value


def _join(values: Sequence[Any]) -> str:
    return ",".join(map(source_text, values))


def _has_container(container: type, kinds: Sequence[Any]) -> bool:
    """Whether one of `kinds` is such a container, as dict[str, str] is a dict."""
    return any(get_origin(kind) is container for kind in kinds)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """What an annotation allows, without Annotated, Literal's own values and None."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(_members(annotation))
    return (annotation,)


def _members(union: Any) -> Iterator[Any]:
    for member in get_args(union):
        if member is not type(None):
            yield from _kinds(member)
