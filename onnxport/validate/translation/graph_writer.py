"""Write the operators of another format as an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model

OPSET, _IR_VERSION = 21, 10
# They stand around an operator, whose name a report shows.
_AROUND = frozenset("Transpose Reshape QuantizeLinear DequantizeLinear Identity Cast".split())


class NotLifted(Exception):
    """An operator whose form is not known here; the text says which."""


class GraphWriter:
    """A graph under construction.

    Args:
        domain: of operators that are not known.

    Attributes:
        label: of the operator at hand; nodes are named after it.
    """

    def __init__(self, domain: str) -> None:
        self.nodes: list[ir.Node] = []
        self.label = ""
        self._domain = domain
        self._initializers: dict[str, ir.Value] = {}
        self._named: set[str] = set()

    def add(
        self, op: str, operands: Sequence[ir.Value | None], *, outputs: int = 1, **attributes: Any
    ) -> ir.Value:
        return self.add_all(op, operands, outputs=outputs, **attributes)[0]

    def add_all(
        self,
        op: str,
        operands: Sequence[ir.Value | None],
        *,
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        node = ir.node(op, operands, attributes, domain=domain, num_outputs=outputs)
        is_main = op not in _AROUND and self.label not in self._named
        node.name = self.label if is_main else f"{self.label}/{op}.{len(self.nodes)}"
        self._named |= {self.label} if is_main else set()
        for place, each in enumerate(node.outputs):
            each.name = f"{self.label}/{op}.{len(self.nodes)}.{place}"
        if op == "Cast":
            node.outputs[0].type = ir.TensorType(ir.DataType(attributes["to"]))
        self.nodes.append(node)
        return node.outputs

    def store(self, array: Array, name: str) -> ir.Value:
        """Add an initializer."""
        if name not in self._initializers:
            dtype = ir.DataType.from_numpy(array.dtype)
            self._initializers[name] = ir.Value(
                name=name,
                type=ir.TensorType(dtype),
                shape=ir.Shape(array.shape),
                const_value=ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), dtype=dtype),
            )
        return self._initializers[name]

    def number(self, array: Any, what: str = "number") -> ir.Value:
        """Add a constant of this operator's own."""
        return self.store(
            np.asarray(array), f"{self.label}/{what}.{len(self.nodes)}.{len(self._initializers)}"
        )

    def finish(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> Model:
        """Return the model of all nodes."""
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self.nodes,
            initializers=list(self._initializers.values()),
            opset_imports={"": OPSET, self._domain: 1},
            name="lifted",
        )
        return Model(ir.Model(graph, ir_version=_IR_VERSION))


def data_type(dtype: str) -> ir.DataType:
    return ir.DataType[{"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())]
