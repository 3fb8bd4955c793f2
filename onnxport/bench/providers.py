"""The execution providers, delegates or compute units of each runtime, in lower case.

No library is imported, since the measuring process imports this module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

# ONNX Runtime appends it to a provider's name.
SUFFIX = "ExecutionProvider"

# Providers of ONNX Runtime and the distribution that has each; empty where users have to build it.
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

# Runtime to its title and its distribution.
TITLES: Mapping[str, str] = {"ort": "ONNX Runtime", "litert": "LiteRT", "predict": "Core ML"}
_DISTRIBUTIONS: Mapping[str, str] = {
    "ort": "onnxruntime",
    "litert": "ai-edge-litert",
    "predict": "coremltools",
}

# Runtime to its providers; the first is the default.
PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "ort": tuple(_ORT),
    "litert": ("xnnpack", "cpu"),
    "predict": ("all", "cpu", "cpu-gpu", "cpu-ne"),
}


def install_provider(provider: str) -> str:
    """Say how to install an ONNX Runtime with `provider`."""
    distribution = _ORT.get(provider, "")
    if not distribution:
        return f"no package on PyPI has it: build ONNX Runtime with --use_{provider}"
    return f"install a build that has it: pip uninstall onnxruntime; pip install {distribution}"


def install_command(runtime: str) -> str:
    """Say how to install a runtime."""
    return f"run: {sys.executable} -m pip install {_DISTRIBUTIONS[runtime]}"
