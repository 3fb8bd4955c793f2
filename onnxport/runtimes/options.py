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
    """The settings of one runtime; each runtime reads its own."""

    threads: int = THREADS  # kernel threads
    level: OrtLevel = "all"  # ONNX Runtime's graph optimizations; those of an `.ort` file are in the file
    provider: str = "CPU"  # ONNX Runtime's execution provider without the suffix: "CPU", "CUDA", "OpenVINO"
    # ONNX Runtime's integer products: "exact", as ONNX defines them, or "cpu", by this CPU's kernels, which
    # saturate on x86 without VNNI (exact_integers.py).
    integers: Integers = "exact"
    delegate: Delegate = "xnnpack"  # LiteRT's delegate; "none" runs its built-in kernels
    # Name of the runtime in `registry.KINDS` or of a plugin; "auto" is the format's default.
    runtime: str = AUTO
    units: Units = "all"  # Core ML's compute units
    function: str = ""  # function of a Core ML package; empty for the package's default
    # Names and values of settings that only the runtime knows, sorted by name.
    own: tuple[tuple[str, str], ...] = ()

    def at_level(self, level: OrtLevel) -> RuntimeOptions:
        return replace(self, level=level)
