"""The settings of a runtime: threads, kernels, and what each format's runtime knows besides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# Kernel threads of every runtime: the verdict has to come soon on a small CI machine and leave one core to others.
THREADS = 2

AUTO = "auto"  # the first runtime of a format that answers on this system

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
    runtime: str = AUTO
    units: Units = "all"
    function: str = ""
    own: tuple[tuple[str, str], ...] = ()

    def at_level(self, level: OrtLevel) -> RuntimeOptions:
        return replace(self, level=level)
