"""Fills params models from options, and explains refused options."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from onnxport.core.errors import UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

P = TypeVar("P", bound=BaseModel)


def check_known(
    options: Mapping[str, Any], *models: type[BaseModel], purpose: str, further: Collection[str] = ()
) -> None:
    """Refuse an option that is no field of `models` and none of `further`, with a suggestion (UsageError)."""
    known = {*further, *(name for model in models for name in model.model_fields)}
    for name in options:
        if name not in known:
            raise UsageError(f"{purpose} has no option {name!r}", fix=suggest(name, known))


def params_of(model: type[P], options: Mapping[str, Any], *, purpose: str) -> P:
    """Fill the params model from `options`; UsageError for an unknown option or a refused value."""
    check_known(options, model, purpose=purpose)
    try:
        return model.model_validate(options)
    except ValidationError as error:
        raise _refusal(model, error) from None


class RefusedValue(UsageError):
    """A refused value of the option `name`; `place` is the path to it, from the option on."""

    def __init__(self, name: str, value: object, fix: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"option {name!r}: {value!r} is not allowed", fix=fix)
        self.name, self.value, self.place = name, value, place or (name,)


# pydantic's kinds of refusal as ways out.
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


def _refusal(model: type[BaseModel], error: ValidationError) -> UsageError:
    refusal = error.errors(include_url=False)[0]
    name, *inner = refusal["loc"]
    if refusal["type"] == "missing":
        return UsageError(f"option {name!r} is missing", fix="it has no default")
    where = "".join(f"[{part!r}]" for part in inner)
    return RefusedValue(
        f"{name}{where}", refusal["input"], expected_value(model, refusal, str(name)), refusal["loc"]
    )


def expected_value(model: type[BaseModel], refusal: ErrorDetails, name: str) -> str:
    """Return the way out for a refused value: what the field `name` of `model` takes."""
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


def suggest(name: str, known: Collection[str], beside: Collection[str] = ()) -> str:
    """Return the way out for an unknown name: the nearest of `known` and `beside`, or all of `known`."""
    close = difflib.get_close_matches(name, (*known, *beside), n=1)
    return f"did you mean {close[0]!r}?" if close else f"its options are {', '.join(sorted(known))}"
