"""Call a Python function that declares no inputs with tensors by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def call_by_name(
    called: Callable[..., Any], described: Callable[..., Any], names: tuple[str, ...], **fixed: Any
) -> Callable[[Mapping[str, Any]], Any]:
    """Return `called` with tensors by name.

    Names that are all parameters are passed as such, a single tensor by position, several to a function of several
    parameters by position, and to one of a single parameter (Keras: `call(inputs)`) as a list.

    Args:
        described: the function whose signature counts.
        fixed: further arguments, dropped where it does not take them.
    """
    parameters = inspect.signature(described).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    extra = {name: value for name, value in fixed.items() if anything or name in parameters}
    wanted = [
        each
        for each in parameters.values()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(names) > 1 and all(name in parameters for name in names):
        # The first by position: Keras wants it so.
        first, *others = sorted(names, key=list(parameters).index)
        return lambda tensors: called(tensors[first], **{name: tensors[name] for name in others}, **extra)
    if len(names) > 1 and len(wanted) == 1:
        return lambda tensors: called([tensors[name] for name in names], **extra)
    return lambda tensors: called(*(tensors[name] for name in names), **extra)
