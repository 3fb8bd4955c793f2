"""A quotient of polynomials is taken for the error function where it has its values, and for nothing else."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.validate.translation.heads import Graph

# What LiteRT's compiler writes for Erf (MiniLM in int8): the highest power of x * x first.
UPPER = (
    0.00022905065270606428,
    0.0034082909114658833,
    0.050955694168806076,
    0.18520832061767578,
    1.1283791065216064,
)
LOWER = (
    -1.1791603071742429e-07,
    2.354796561121475e-05,
    0.0010179625824093819,
    0.01407046988606453,
    0.11098504811525345,
    0.4974692463874817,
    1.0,
)
END = 3.8325068950653076


def formula(upper: tuple[float, ...], end: float) -> Model:
    """min(max(x, -end), end) = u; u * upper(u * u) / lower(u * u), between -1 and 1."""
    nodes, constants = [], dict[str, float]()

    def add(op: str, *operands: str | float) -> str:
        names = []
        for each in operands:
            if isinstance(each, float):
                constants[f"c{len(constants)}"] = each
                each = f"c{len(constants) - 1}"
            names.append(each)
        nodes.append(helper.make_node(op, names, [f"v{len(nodes)}"], f"n{len(nodes)}"))
        return f"v{len(nodes) - 1}"

    def polynomial(square: str, factors: tuple[float, ...]) -> str:
        found = add("Mul", square, factors[0])
        for each in factors[1:-1]:
            found = add("Mul", square, add("Add", found, each))
        return add("Add", found, factors[-1])

    bounded = add("Min", add("Max", "x", -end), end)
    square = add("Mul", bounded, bounded)
    quotient = add("Div", add("Mul", bounded, polynomial(square, upper)), polynomial(square, LOWER))
    result = add("Clip", quotient, -1.0, 1.0)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, (2, 4))],
        [numpy_helper.from_array(np.asarray(each, np.float32), name) for name, each in constants.items()],
    )
    return Model(
        ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    )


@pytest.mark.parametrize(
    ("upper", "end", "is_erf"),
    [
        (UPPER, END, True),
        ((*UPPER[:-1], UPPER[-1] * 1.0001), END, False),
        ((UPPER[0] * 1.01, *UPPER[1:]), END, False),
        (UPPER, 2.5, False),
    ],
)
def test_values_tell_what_a_formula_is(upper: tuple[float, ...], end: float, is_erf: bool) -> None:
    graph = Graph(formula(upper, end), {"x": (2, 4)})
    (output,) = graph.outputs.values()
    core = graph.head(output).core
    assert (core.op == "Erf") == is_erf
    if is_erf:
        assert [getattr(each, "name", None) for each in core.operands] == ["x"]
