"""How a runtime is to run a model: what `--reference-runtime` and `--candidate-runtime` may say, per format.

Without any library behind them, so that a wrong setting is refused before one is imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from onnxport.artifact import SUFFIXES, Format
from onnxport.errors import UsageError
from onnxport.validate.runtimes import kinds

# Kernel threads of every runtime: the verdict has to come soon on a small CI machine and leave one core to others.
THREADS = 2
_MOST_THREADS = 256

OrtLevel = Literal["disable", "basic", "extended", "all"]
Delegate = Literal["xnnpack", "none"]
Units = Literal["all", "cpu", "cpu-gpu", "cpu-ne"]
Integers = Literal["exact", "cpu"]


@dataclass(frozen=True)
class RuntimeOptions:
    """The settings of one runtime; each format reads its own.

    Attributes:
        threads: kernel threads.
        level: ONNX Runtime's graph optimizations; an `.ort` file has its own behind it.
        provider: ONNX Runtime's execution provider without the word: "CPU", "CUDA", "OpenVINO".
        integers: ONNX Runtime's integer products: "exact", as ONNX defines them, or with the "cpu"'s own kernels, which
            saturate on x86 without VNNI (exact_integers.py).
        delegate: what LiteRT hands its operators to; "none" runs its built-in kernels.
        runtime: who answers, by its name in `kinds.KINDS` or of a plugin; "auto" is the first for the format.
        units: what Core ML may compute on.
        function: which function of a Core ML package answers; the one that it names as its default unless given.
        own: names and values of settings that only the runtime itself knows, in the order of the names.
    """

    threads: int = THREADS
    level: OrtLevel = "all"
    provider: str = "CPU"
    integers: Integers = "exact"
    delegate: Delegate = "xnnpack"
    runtime: str = kinds.AUTO
    units: Units = "all"
    function: str = ""
    own: tuple[tuple[str, str], ...] = ()

    def at_level(self, level: OrtLevel) -> RuntimeOptions:
        return replace(self, level=level)


_CHOICES = {
    "level": get_args(OrtLevel),
    "integers": get_args(Integers),
    "delegate": get_args(Delegate),
    "units": get_args(Units),
}
_FIELDS = frozenset(field.name for field in fields(RuntimeOptions))


def runtime_options(format_: Format, given: Mapping[str, str], option: str) -> RuntimeOptions:
    """The options of the runtime for `format_`.

    Args:
        given: names and values as the user wrote them.
        option: how the user says it, for messages.

    Raises:
        UsageError: a name that the runtime does not know, or a value that it cannot have.
        MissingDependencyError: a runtime of a plugin that cannot be used.
    """
    kind = kinds.find(format_, given.get("runtime", kinds.AUTO), option)
    known = sorted((*kind.settings, "runtime"))
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            way_out = f"did you mean {nearest[0]!r}?" if nearest else f"its settings are {', '.join(known)}"
            who = kind.title if "runtime" in given else f"the runtime of {SUFFIXES[format_]} files"
            raise UsageError(f"{option}: {who} has no {name!r}", fix=way_out)
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise UsageError(
                f"{option}: {name} has the value {given[name]!r}", fix=f"give {', '.join(choices)}"
            )
    return RuntimeOptions(
        threads=_threads(given.get("threads", str(THREADS)), option),
        level=given.get("level", "all"),  # type: ignore[arg-type]  # checked against the choices
        provider=given.get("provider", "CPU"),
        integers=given.get("integers", "exact"),  # type: ignore[arg-type]
        delegate=given.get("delegate", "xnnpack"),  # type: ignore[arg-type]
        runtime=given.get("runtime", kinds.AUTO),
        units=given.get("units", "all"),  # type: ignore[arg-type]
        function=given.get("function", ""),
        own=tuple(sorted((name, value) for name, value in given.items() if name not in _FIELDS)),
    )


def _threads(text: str, option: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= _MOST_THREADS:
        return int(text)
    raise UsageError(f"{option}: threads has the value {text!r}", fix=f"give 1 to {_MOST_THREADS}")
