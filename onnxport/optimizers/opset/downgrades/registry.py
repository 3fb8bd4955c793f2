"""The registry of lowerings from an operator's newer form to the form before."""

from __future__ import annotations

from collections.abc import Callable

from onnxport.optimizers.opset.node import Node

# Raises NoForm, before any change, for a node that the older form cannot express.
Lowering = Callable[[Node], None]
LOWERINGS: dict[tuple[str, int], Lowering] = {}


def lowers(*op_types: str, version: int) -> Callable[[Lowering], Lowering]:
    """Register the lowering of the operators from the form of `version` to that of the version before.

    It may turn the node into another operator. Otherwise the result is checked against the older schema.
    """

    def register(lowering: Lowering) -> Lowering:
        for op_type in op_types:
            if (op_type, version) in LOWERINGS:
                raise ValueError(f"{op_type} has two lowerings from opset {version}")
            LOWERINGS[op_type, version] = lowering
        return lowering

    return register
