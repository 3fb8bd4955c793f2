"""Storage of finished weights until the model is saved: small ones in memory, large ones in a file."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array

# A file of its own for less than this would cost more than it saves.
_LARGE = 2**20  # bytes
# What four bits are called in NumPy; held in a byte each, they are packed when they are written.
_PACKED = {(4, True): ml_dtypes.int4, (4, False): ml_dtypes.uint4}


class Shelf:
    """Makes tensors of arrays."""

    def __init__(self, folder: Path) -> None:
        """`folder` has to outlive the tensors."""
        self._file = folder / "weights.data"

    def numbers(self, array: Array, bits: int) -> ir.TensorProtocol:
        """Store int8 or uint8 integers of `bits` bits."""
        packed = _PACKED.get((bits, array.dtype == np.int8))
        return self.tensor(array if packed is None else array.astype(packed))

    def tensor(self, array: Array) -> ir.TensorProtocol:
        made = ir.tensor(array)
        if made.nbytes < _LARGE:
            return made
        with self._file.open("ab") as file:
            offset = file.tell()
            file.write(made.tobytes())
        return ir.ExternalTensor(
            self._file.name,
            offset,
            made.nbytes,
            made.dtype,
            shape=ir.Shape(array.shape),
            name="",
            base_dir=self._file.parent,
        )
