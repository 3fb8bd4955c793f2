"""Names of tensors in a `.tflite` file."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Suffix of tensors inside a node's lowering, which are no ONNX values.
INNER = "/inner"


class TensorNames:
    """Unique names that MLIR and the TFLite exporter leave unchanged."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    @staticmethod
    def clean(name: str) -> str:
        # The exporter joins names by commas, where a comma loses the signature, and fused names by semicolons.
        return re.sub(r'[,;"\\\s]', "_", name)

    def keys(self, names: Iterable[str]) -> list[str]:
        return [self.key(name) for name in names]

    def key(self, name: str) -> str:
        key = base = self.clean(name)
        count = 1
        while key in self._used:
            key, count = f"{base}_{count}", count + 1
        self._used.add(key)
        return key
