"""The settings of a runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# Kernel threads of every runtime: quick enough on a small CI machine, and one core stays free.
THREADS = 2

AUTO = "auto"  # the default runtime of the format on this system

OrtLevel = Literal["disable", "basic", "extended", "all"]
Delegate = Literal["xnnpack", "none"]
Units = Literal["all", "cpu", "cpu-gpu", "cpu-ne"]
Integers = Literal["exact", "cpu"]


@dataclass(frozen=True)
class RuntimeOptions:
    """The settings of one runtime; each runtime reads its own.

    Attributes:
        threads: kernel threads.
        level: ONNX Runtime's graph optimizations; those of an `.ort` file are in the file.
        provider: ONNX Runtime's execution provider without the suffix: "CPU", "CUDA", "OpenVINO".
        integers: ONNX Runtime's integer products: "exact", as ONNX defines them, or "cpu", by this CPU's kernels, which
            saturate on x86 without VNNI (exact_integers.py).
        delegate: LiteRT's delegate; "none" runs its built-in kernels.
        runtime: name of the runtime in `registry.KINDS` or of a plugin; "auto" is the format's default.
        units: Core ML's compute units.
        function: function of a Core ML package; empty for the package's default.
        own: names and values of settings that only the runtime knows, sorted by name.
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
