"""OpenVINO on the CPU: its own frontend reads the ONNX file, sizes stay open.

Where openvino_telemetry is importable, `import openvino` reports to a server of Intel and writes `~/intel`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.lazy_imports import hidden
from onnxport.runtimes.engines.base import EngineRuntime, Refusal, Session, Work

with hidden(["openvino_telemetry"]):
    import openvino


class OpenvinoRuntime(EngineRuntime):
    """A model in OpenVINO's CPU plugin; float32 stays float32, even on CPUs with bfloat16 and beside int8 weights."""

    title = "OpenVINO"
    distribution = "openvino"
    fixes_sizes = False
    types = frozenset(
        (
            *("bool", "float16", "float32", "float64", "string"),
            *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        )
    )

    def _load(self, work: Work) -> Session:
        core = openvino.Core()
        try:
            model = core.read_model(work.file)
            compiled = core.compile_model(model, "CPU", _settings(work.threads))
        except RuntimeError as error:
            raise Refusal(_cause(error)) from error
        return _Session(work.wanted, compiled)


def _settings(threads: int) -> dict[str, object]:
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else it rounds to int8 the activations of weights of fewer bits
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,  # another runtime runs at the same time
        "CACHE_DIR": "",
    }


# "Exception from src/inference/src/cpp/core.cpp:84:", "Check 'false' failed at src/x.cpp:151:"
_PREAMBLE = re.compile(
    r"Exception from \S+:\d+:|Check '.*?' failed at \S+:\d+:|FrontEnd API failed with \w+:"
)


def _cause(error: Exception) -> str:
    """Return OpenVINO's message without its positions in OpenVINO's source."""
    return _PREAMBLE.sub("", " ".join(str(error).split()))


class _Session:
    def __init__(self, wanted: Sequence[str], compiled: Any) -> None:
        self._request = compiled.create_infer_request()
        self._known = {name for port in compiled.inputs for name in port.get_names()}
        self._ports = {name: port for port in compiled.outputs for name in port.get_names()}
        self._wanted = wanted

    def run(self, feeds: Feeds) -> list[Array]:
        known = {name: array for name, array in feeds.items() if name in self._known}
        try:
            found = self._request.infer(known)
        except RuntimeError as error:
            raise Refusal(_cause(error)) from error
        return [np.array(found[self._ports[name]]) for name in self._wanted]
