"""Who can run a model of each runtime: execution providers, delegates, compute units, in lower case.

Without any library, since the measuring process imports this too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

# What ONNX Runtime appends to a provider's name.
SUFFIX = "ExecutionProvider"

# ONNX Runtime's, each with the distribution whose build has it; none where one has to build it oneself.
_ORT: Mapping[str, str] = {
    "cpu": "onnxruntime",
    "azure": "onnxruntime",
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "openvino": "onnxruntime-openvino",
    "dml": "onnxruntime-directml",
    "qnn": "onnxruntime-qnn",
    "coreml": "onnxruntime (on macOS)",
    "webgpu": "",
    "xnnpack": "",
    "nnapi": "",
    "acl": "",
    "armnn": "",
    "cann": "onnxruntime-cann",
    "dnnl": "",
    "js": "",
    "migraphx": "",
    "rocm": "onnxruntime-rocm",
    "snpe": "",
    "vitisai": "",
    "vsinpu": "",
}

# Runtime to what it calls itself, and to the distribution that has it.
TITLES: Mapping[str, str] = {"ort": "ONNX Runtime", "litert": "LiteRT", "predict": "Core ML"}
_DISTRIBUTIONS: Mapping[str, str] = {
    "ort": "onnxruntime",
    "litert": "ai-edge-litert",
    "predict": "coremltools",
}

# Runtime to what it knows; the first is what a row has of which nobody said anything.
PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "ort": tuple(_ORT),
    "litert": ("xnnpack", "cpu"),
    "predict": ("all", "cpu", "cpu-gpu", "cpu-ne"),
}


def remedy(provider: str) -> str:
    """The line that mends an ONNX Runtime without `provider`."""
    distribution = _ORT.get(provider, "")
    if not distribution:
        return f"no package of the index has it: build ONNX Runtime with --use_{provider}"
    return f"put a build in its place that has it: pip uninstall onnxruntime; pip install {distribution}"


def installing(runtime: str) -> str:
    """The line that brings a runtime."""
    return f"run: {sys.executable} -m pip install {_DISTRIBUTIONS[runtime]}"
