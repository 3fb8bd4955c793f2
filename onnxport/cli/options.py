"""Builds command line options from params models."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from onnxport.cli.help_groups import COMMON, PROOF, Option
from onnxport.cli.output import PATH, SOURCE
from onnxport.core.errors import UsageError
from onnxport.formats.input_paths import takes_urls
from onnxport.pipelines.params import RefusedValue, params_of

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P", bound=BaseModel)
if TYPE_CHECKING:
    _ParamType = click.ParamType[str]
else:  # not generic before click 8.5
    _ParamType = click.ParamType


def word_list(choices: Sequence[str]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return the callback of an option that takes several of some words as a,b; it gives a tuple, or None."""

    def parse(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        given = [value] if isinstance(value, str) else value or ()
        words = [word.strip() for each in given for word in each.split(",")]
        choice = click.Choice(choices)
        return tuple(choice.convert(word, parameter, context) for word in words) or None

    return parse


class Words(_ParamType):
    """The type of an option with `word_list`, which names the words where the option is missing."""

    name = "word"

    def __init__(self, choices: Sequence[str]) -> None:
        self._choice = click.Choice(choices)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        return self._choice.get_missing_message(param, ctx)


def options_of(
    *always: type[BaseModel],
    targets: Mapping[str, type[BaseModel]] | None = None,
    conditional: Mapping[str, Mapping[str, FieldInfo]] | None = None,
    lists: Sequence[str] = (),
) -> Callable[[F], F]:
    """Add one option per field of the models; a field of several models is one option.

    Args:
        always: models that always apply; the first with a field describes it.
        targets: models of single targets, by name, for the help text.
        conditional: fields that need another option, by its name; fields of the models take precedence.
        lists: fields of one word of which the option takes several, as a,b; the command gets a tuple.
    """
    fields: dict[str, dict[str, FieldInfo]] = {}
    for owner, model in (*(targets or {}).items(), *(("", model) for model in always)):
        for name, field in _optional(model.model_fields):
            fields.setdefault(name, {}).setdefault(owner, field)
    own, proving = ((), always) if targets else (always[:1], always[1:])
    groups = _groups(fields, proving, set().union(*(model.model_fields for model in own)))
    for option, beside_it in (conditional or {}).items():
        for name, field in _optional(beside_it):
            if name not in fields:
                fields[name] = {"": field}
                groups[name] = COMMON if _option_name(name) == option else f"Only with {option}"

    def decorate(function: F) -> F:
        for name, owners in reversed(fields.items()):
            is_on = all(field.default is True for field in owners.values())
            switch = _option_name(name) + (f"/--no-{name.replace('_', '-')}" if is_on else "")
            settings = _settings(owners)
            if name in lists:
                settings["callback"] = word_list(settings.pop("type").choices)
            option = click.option(switch, cls=Option, group=groups[name], help=_help(owners), **settings)
            function = option(function)
        return function

    return decorate


def _groups(
    fields: Mapping[str, Mapping[str, FieldInfo]], proving: Sequence[type[BaseModel]], own: Collection[str]
) -> dict[str, str]:
    """Return the group of each field in the help text.

    Args:
        proving: the models about the proof.
        own: fields of the command itself, also where the proof has one of the same name.
    """
    groups = {}
    for name, owners in fields.items():
        (owner, *others) = owners
        if others:
            groups[name] = COMMON
        elif owner:
            groups[name] = f"Only --to {owner}"
        else:
            proves = name not in own and any(name in model.model_fields for model in proving)
            groups[name] = PROOF if proves else COMMON
    return groups


def _optional(fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, FieldInfo]]:
    return ((name, field) for name, field in fields.items() if _extra(field).get("option", True))


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave; the params models fill in the others."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


@contextmanager
def name_options() -> Iterator[None]:
    """Name a refused value by its option instead of its keyword."""
    try:
        yield
    except RefusedValue as refusal:
        option = _option_name(re.sub(r"\[\d+\]$", "", refusal.name))  # one of several words
        raise UsageError(f"{option}: {refusal.value} is not allowed", fix=refusal.fix) from None


def params_from(model: type[P], options: Mapping[str, Any], *, purpose: str) -> P:
    """Fill the params model from the given options of a command line."""
    with name_options():
        return params_of(model, given_options(options), purpose=purpose)


def _option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _help(owners: Mapping[str, FieldInfo]) -> str:
    """Return the help text of a field: one sentence, or one per target if they differ."""
    said = {owner: _description(field) for owner, field in owners.items()}
    if "" in said:
        return said[""]
    if _choices_differ(owners):
        said = {owner: f"{', '.join(_choices(owners[owner]))}. {text}" for owner, text in said.items()}
    texts = list(dict.fromkeys(said.values()))
    if len(said) == 1:
        return texts[0]  # the group says which target
    if len(texts) == 1:
        return f"{texts[0]} Only --to {', '.join(said)}."
    return " ".join(
        f"--to {', '.join(owner for owner, each in said.items() if each == text)}: {text}" for text in texts
    )


def _choices_differ(owners: Mapping[str, FieldInfo]) -> bool:
    return len({_choices(field) for field in owners.values()}) > 1


def _choices(field: FieldInfo) -> tuple[str, ...]:
    """Return the choices of a Literal field; empty for others."""
    kind = _bare(field.annotation)
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _description(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    shown = isinstance(default, str | int | float) and not isinstance(default, bool)
    return (field.description or "") + (f" [default: {default}]" if shown else "")


def _settings(owners: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return click's settings for a field: the choices of all its models, each of which checks its own.

    No default is set: the model fills it in.
    """
    field = next(iter(owners.values()))
    settings: dict[str, Any] = {"default": None, "metavar": _extra(field).get("metavar")}
    kind = _bare(field.annotation)
    if get_origin(kind) is Literal:
        settings["type"] = click.Choice(
            list(dict.fromkeys(choice for each in owners.values() for choice in _choices(each)))
        )
        if _choices_differ(owners):
            settings["metavar"] = "WORD"  # a line has no room for all
    elif isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
        settings["multiple"] = True  # NAME=VALUE, once per name
    elif get_origin(kind) is tuple:
        settings["multiple"] = True
    elif kind is bool and field.default is False:
        settings["is_flag"] = True
    elif kind is not bool:
        settings["type"] = kind if kind is not Path else SOURCE if takes_urls(field) else PATH
    return settings


def _extra(field: FieldInfo) -> dict[str, Any]:
    """Return the settings of a field's option: its metavar; option=False for no option."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _bare(annotation: Any) -> Any:
    """Return the annotation without Annotated and None; str for a union of several types."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _bare(kinds[0]) if len(kinds) == 1 else str  # a number or a word: the model decides
    return annotation
