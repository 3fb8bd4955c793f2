"""How a runtime is to run a model: what `--reference-runtime` and `--candidate-runtime` may say, per format.

Without any library behind them, so that a wrong setting is refused before one is imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from onnxport.artifact import SUFFIXES, Format
from onnxport.errors import UsageError

# Kernel threads of every runtime: the verdict has to come soon on a small CI machine and leave one core to others.
THREADS = 2
_MOST_THREADS = 256

OrtLevel = Literal["disable", "basic", "extended", "all"]
Delegate = Literal["xnnpack", "none"]
Coreml = Literal["auto", "predict", "evaluator"]
Units = Literal["all", "cpu", "cpu-gpu", "cpu-ne"]


@dataclass(frozen=True)
class RuntimeOptions:
    """The settings of one runtime; each format reads its own.

    Attributes:
        threads: kernel threads.
        level: ONNX Runtime's graph optimizations; an `.ort` file has its own behind it.
        provider: ONNX Runtime's execution provider without the word: "CPU", "CUDA", "OpenVINO".
        delegate: what LiteRT hands its operators to; "none" runs its built-in kernels.
        runtime: who answers for a Core ML package: Core ML itself ("predict", macOS), or our evaluator of its program;
            "auto" is the first where there is one.
        units: what Core ML may compute on.
        function: which function of a Core ML package answers; the one that it names as its default unless given.
    """

    threads: int = THREADS
    level: OrtLevel = "all"
    provider: str = "CPU"
    delegate: Delegate = "xnnpack"
    runtime: Coreml = "auto"
    units: Units = "all"
    function: str = ""

    def at_level(self, level: OrtLevel) -> RuntimeOptions:
        return replace(self, level=level)


# Format to the settings that its runtime knows.
_KNOWN: dict[Format, tuple[str, ...]] = {
    "onnx": ("level", "provider", "threads"),
    "ort": ("provider", "threads"),
    "tflite": ("delegate", "threads"),
    "coreml": ("function", "runtime", "units"),
}
_CHOICES = {
    "level": get_args(OrtLevel),
    "delegate": get_args(Delegate),
    "runtime": get_args(Coreml),
    "units": get_args(Units),
}


def runtime_options(format_: Format, given: Mapping[str, str], option: str) -> RuntimeOptions:
    """The options of the runtime for `format_`.

    Args:
        given: names and values as the user wrote them.
        option: how the user says it, for messages.

    Raises:
        UsageError: a name that this format's runtime does not know, or a value that it cannot have.
    """
    known = _KNOWN[format_]
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            way_out = f"did you mean {nearest[0]!r}?" if nearest else f"its settings are {', '.join(known)}"
            raise UsageError(
                f"{option}: the runtime of {SUFFIXES[format_]} files has no {name!r}", fix=way_out
            )
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise UsageError(
                f"{option}: {name} has the value {given[name]!r}", fix=f"give {', '.join(choices)}"
            )
    return RuntimeOptions(
        threads=_threads(given.get("threads", str(THREADS)), option),
        level=given.get("level", "all"),  # type: ignore[arg-type]  # checked against the choices
        provider=given.get("provider", "CPU"),
        delegate=given.get("delegate", "xnnpack"),  # type: ignore[arg-type]
        runtime=given.get("runtime", "auto"),  # type: ignore[arg-type]
        units=given.get("units", "all"),  # type: ignore[arg-type]
        function=given.get("function", ""),
    )


def _threads(text: str, option: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= _MOST_THREADS:
        return int(text)
    raise UsageError(f"{option}: threads has the value {text!r}", fix=f"give 1 to {_MOST_THREADS}")
