"""The roundings of the two files, and their effect on one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.debug.graph import Network
from onnxport.validate.report import Precision
from onnxport.validate.rounded_model import ROUNDINGS, round_model, to_dtype
from onnxport.validate.tolerance import RULES

# These give codes: whole numbers that are one off where a number is rounded the other way.
_CODES = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_QUANTIZED = "QLinear"
# These pass codes and multiples of a step on unchanged.
_MOVES = frozenset(
    "Identity Reshape Transpose Squeeze Unsqueeze Flatten Slice Concat Split Gather Relu".split()
)


@dataclass(frozen=True)
class Rounds:
    """The roundings for the reference's single nodes.

    Attributes:
        precision: whose tolerance applies (tolerance.RULES); "float32" for the usual one.
        made: whether to round the reference's nodes first, since only the candidate rounds.
        kept: the values that the candidate computes in float32 nevertheless.
        least: elements; the candidate holds smaller constants in float32 nevertheless.
    """

    precision: Precision = "float32"
    made: bool = False
    kept: frozenset[str] = frozenset()
    least: int = 0

    @classmethod
    def of(
        cls,
        reference: Precision,
        candidate: Precision,
        kept: frozenset[str] = frozenset(),
        least: int = 0,
    ) -> Rounds:
        if reference == "float32" and candidate in ROUNDINGS:
            return cls(candidate, made=True, kept=kept, least=least)
        return cls(reference) if reference in RULES else cls()

    def model(self, proto: onnx.ModelProto, folder: Path | None, dither: int | None) -> Model | None:
        """Return a part of the reference with the roundings and its weights; None where ONNX has no Cast for them.

        Args:
            dither: see round_model.
        """
        copy = onnx.ModelProto.FromString(proto.SerializeToString())
        if folder is not None:
            onnx.load_external_data_for_model(copy, str(folder))
        model = Model(ir.from_proto(copy))
        return round_model(model, self.precision, dither=dither, keep=self.kept, least=self.least)

    def stored(self, values: Array) -> Array:
        """Round float32 values as weights of this precision."""
        return to_dtype(values, ROUNDINGS[self.precision][0].numpy())


def step(network: Network, value: str, group: Sequence[int]) -> float:
    """Return how much one rounding the other way changes `value`, the last of `group`; 0 where it is not quantized.

    A group with several roundings may be that many steps off.
    """
    own, within = network.producers[value], set(group)
    while (
        network.nodes[own].op_type in _MOVES and network.producers.get(network.nodes[own].input[0]) in within
    ):
        own = network.producers[network.nodes[own].input[0]]
    count = max(1, sum(_gives_codes(network.nodes[index]) for index in group))
    if _gives_codes(network.nodes[own]):
        return float(count)
    if network.nodes[own].op_type != "DequantizeLinear":
        return 0.0
    inside = network.producers.get(network.nodes[own].input[0]) in within
    scale = network.constant(network.nodes[own].input[1])
    return count * float(scale.max()) if inside and scale is not None and scale.size else 0.0


def _gives_codes(node: onnx.NodeProto) -> bool:
    return node.op_type in _CODES or node.op_type.startswith(_QUANTIZED)
