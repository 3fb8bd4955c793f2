"""Parse `--reference-runtime` and `--candidate-runtime` into RuntimeOptions, without importing a runtime."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import get_args

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import SUFFIXES, Format
from onnxport.runtimes import registry
from onnxport.runtimes.options import AUTO, THREADS, Delegate, Integers, OrtLevel, RuntimeOptions, Units

_MOST_THREADS = 256
_CHOICES = {
    "level": get_args(OrtLevel),
    "integers": get_args(Integers),
    "delegate": get_args(Delegate),
    "units": get_args(Units),
}
_FIELDS = frozenset(field.name for field in fields(RuntimeOptions))
_TEXTS = _FIELDS - {"threads", "own"}


def runtime_options(format_: Format, given: Mapping[str, str], option: str) -> RuntimeOptions:
    """Return the options of the runtime for `format_` from the user's texts; messages name `option`.

    Raises:
        UsageError: the runtime does not know a name, or a value is not allowed.
        MissingDependencyError: the runtime is a plugin that cannot be used.
    """
    kind = registry.find_runtime(format_, given.get("runtime", AUTO), option)
    known = sorted((*kind.settings, "runtime"))
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean {nearest[0]!r}?" if nearest else f"its settings are {', '.join(known)}"
            runtime = kind.title if "runtime" in given else f"the runtime of {SUFFIXES[format_]} files"
            raise UsageError(f"{option}: {runtime} has no {name!r}", fix=fix)
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise UsageError(
                f"{option}: {given[name]!r} is not allowed for {name}", fix=f"give {', '.join(choices)}"
            )
    return RuntimeOptions(
        threads=_threads(given.get("threads", str(THREADS)), option),
        own=tuple(sorted((name, value) for name, value in given.items() if name not in _FIELDS)),
        **{name: value for name, value in given.items() if name in _TEXTS},  # type: ignore[arg-type]  # see _CHOICES
    )


def _threads(text: str, option: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= _MOST_THREADS:
        return int(text)
    raise UsageError(f"{option}: {text!r} is not allowed for threads", fix=f"give 1 to {_MOST_THREADS}")
