"""Store what a graph computes from constants alone, as a compiler does before it stores weights in fewer bits."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.constants import find_constants


def fold_constants(model: Model) -> Model:
    """Copy `model` with the floats stored that its main graph computes from constants alone, as ONNX Runtime does.

    Args:
        model: without model-local functions.

    Raises:
        InputError: ONNX Runtime does not load the part that computes them.
    """
    copy = model.clone()
    # For the element types; files need not declare those of intermediate values.
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(copy.ir)
    folded = [value for value in _last_constants(copy.graph) if value.name]
    if not folded:
        return copy
    answers = _evaluate(model, [value.name or "" for value in folded])
    for value in folded:
        name = value.name or ""
        value.name = f"{name}/computed"
        stored = ir.Value(name=name, const_value=ir.tensor(answers[name], name=name))
        copy.graph.register_initializer(stored)
        for user, position in list(value.uses()):
            user.replace_input_with(position, stored)
    common.RemoveUnusedNodesPass()(copy.ir)
    return copy


def _last_constants(graph: ir.Graph) -> list[ir.Value]:
    """Return the computed constants that nodes read which are none."""
    found = find_constants(graph)
    return [
        value
        for node in graph
        for value in node.outputs
        if value in found
        and node.op_type != "Constant"
        and value.dtype == ir.DataType.FLOAT
        and not value.is_graph_output()
        and any(output not in found for user, _ in value.uses() for output in user.outputs)
    ]


def _evaluate(model: Model, names: list[str]) -> dict[str, Array]:
    part = model.clone()
    values = {value.name: value for node in part.graph for value in node.outputs}
    part.graph.outputs[:] = [values[name] for name in names]
    common.RemoveUnusedNodesPass()(part.ir)
    part.graph.inputs[:] = [value for value in part.graph.inputs if value.name in part.graph.initializers]
    with OrtRuntime.of_model(part) as runtime:
        return runtime.run({})
