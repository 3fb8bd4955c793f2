"""The storage of each weight: operator and grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from onnxport.core.arrays import Array
from onnxport.quantize.params import Precision, QuantizeParams
from onnxport.quantize.weights import gptq, hqq, nbits, rtn
from onnxport.quantize.weights.discovery import Weight
from onnxport.quantize.weights.encoding import Encoding, Grids, Layout
from onnxport.quantize.weights.graph_edits import Shelf
from onnxport.quantize.weights.onnx_operators import dequantize, opset_for, store_table

BITS: Mapping[Precision, int] = {"int8-weights": 8, "int4-weights": 4}
# What four bits, and MatMulNBits, are grouped in unless the user says otherwise; eight bits have a scale a row.
BLOCK = 32
# Of a convolution's input channels at least so many share a scale; with fewer, all weights of an output channel do.
_FEWEST = 16
# The error with zero points, in parts of the error without, from which on they are worth their place.
_WORTH = 0.95

Form = Literal["DequantizeLinear", "contrib", "rows"]


@dataclass(frozen=True)
class PlannedWeight:
    """The planned storage of a weight."""

    weight: Weight  # with the layout that its blocks lie in
    grids: Grids  # without zero points; with them where `may_shift` and the error say so
    # Behind DequantizeLinear, in ONNX Runtime's own operators, or as a table that rows are looked up in.
    form: Form
    may_shift: bool  # whether zero points may be had

    @property
    def opset(self) -> int:
        """The oldest opset with the operators."""
        if self.form != "DequantizeLinear":
            return 1
        return opset_for(self.weight.layout, self.grids, self.weight.dtype)

    def encoding(self, method: str, gram: Array | None) -> Encoding:
        """Return the integers; by GPTQ where the Gram matrix of the inputs is known."""
        rows = self.weight.rows()
        encoded = rtn.round_nearest(rows, self.grids)
        if self.may_shift:
            shifted = rtn.round_nearest(rows, replace(self.grids, symmetric=False))
            encoded = shifted if shifted.error(rows) < _WORTH * encoded.error(rows) else encoded
        if method == "gptq" and gram is not None:
            return gptq.round_gptq(rows, gram, encoded.grids)
        return hqq.round_hqq(rows, encoded.grids) if method == "hqq" else encoded

    def store(self, encoding: Encoding, shelf: Shelf) -> None:
        """Write the integers into the graph."""
        {"DequantizeLinear": dequantize, "contrib": nbits.replace, "rows": store_table}[self.form](
            self.weight, encoding, shelf
        )


def plan_weight(weight: Weight, params: QuantizeParams) -> PlannedWeight:
    """Choose the form and the grids of one weight."""
    bits, row = BITS[params.precision], weight.layout.row
    if params.weights_format == "nbits" and nbits.fits(weight):
        return PlannedWeight(
            weight, Grids(bits, params.block or BLOCK, symmetric=True), "contrib", may_shift=True
        )
    if weight.is_table:
        return PlannedWeight(weight, Grids(8, row, symmetric=True), "rows", may_shift=False)
    block = params.block or (BLOCK if bits == 4 else 0)
    layout = weight.layout
    if block and len(layout.summed) > 1:
        # Blocks lie along one axis, that of the input channels.
        axis = layout.summed[0]
        channels = layout.shape[axis]
        block = min(block, channels) if channels >= _FEWEST else 0
        layout = Layout(layout.shape, (axis,)) if block else layout
    is_row = not block or block >= layout.row
    grids = Grids(bits, layout.row if is_row else block, symmetric=True)
    return PlannedWeight(
        replace(weight, layout=layout), grids, "DequantizeLinear", may_shift=bits == 4 or not is_row
    )
