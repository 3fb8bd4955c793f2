"""Parse ONNX Runtime's type names and error messages, without importing it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnxport.formats.artifact import Dim, TensorSpec

# ONNX Runtime's names of element types -> NumPy's, where they differ.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    **{f"float8{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")},
    "float8e8m0": "float8_e8m0fnu",
}


def spec_of(name: str, kind: str, shape: Sequence[object]) -> TensorSpec:
    """Return a tensor's spec; any other value keeps ONNX Runtime's type, "seq(map(int64,tensor(float)))", as dtype."""
    if not kind.startswith("tensor("):
        return TensorSpec(name, kind, ())
    element = kind.removeprefix("tensor(").removesuffix(")")
    return TensorSpec(name, _DTYPES.get(element, element), tuple(_dim(dim) for dim in shape))


def _dim(dim: object) -> Dim:
    """Return a dimension; exporters write -1 and "?" for unknown, and two "?" need not be equal."""
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
    """Return ONNX Runtime's message in one line, without its position in ONNX Runtime's source."""
    text = " ".join(str(error).split())
    return _PREAMBLE.sub("", _NODE.sub(r"\1 '\2': ", text))[:300] or type(error).__name__
