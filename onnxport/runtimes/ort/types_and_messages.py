"""What ONNX Runtime's types and messages mean, without importing it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnxport.formats.artifact import Dim, TensorSpec

# ONNX Runtime's names of element types, where they are not NumPy's.
_DTYPES = {"float": "float32", "double": "float64"}


def spec_of(name: str, kind: str, shape: Sequence[object]) -> TensorSpec:
    """A tensor's spec; what is no tensor keeps ONNX Runtime's type ("seq(map(int64,tensor(float)))") as dtype."""
    if not kind.startswith("tensor("):
        return TensorSpec(name, kind, ())
    element = kind.removeprefix("tensor(").removesuffix(")")
    return TensorSpec(name, _DTYPES.get(element, element), tuple(_dim(dim) for dim in shape))


def _dim(dim: object) -> Dim:
    """Exporters write -1 and "?" for "unknown"; neither is a size, and two "?" are not the same dimension."""
    if isinstance(dim, int) and dim >= 0:
        return dim
    return dim if isinstance(dim, str) and dim not in ("", "?") else None


# "[ONNXRuntimeError] : 1 : FAIL : ", "Load model from m.onnx failed:", "/onnxruntime_src/x.h:46 void f(int, char) "
_PREAMBLE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|"
    r"/onnxruntime_src/\S+:\d+ [^()]*\((?:[^()]|\([^()]*\))*\) (?:const )?|\b\w+\.(?:cc|h):\d+ \S+ "
)
_NODE = re.compile(
    r"Non-zero status code returned while running (\w+) node\. ?Name:'([^']*)' Status Message: "
)


def cause(error: Exception) -> str:
    """ONNX Runtime's message in one line, without where in ONNX Runtime it arose."""
    text = " ".join(str(error).split())
    return _PREAMBLE.sub("", _NODE.sub(r"\1 '\2': ", text))[:300] or type(error).__name__
