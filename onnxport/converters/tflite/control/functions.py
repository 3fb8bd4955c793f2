"""Branches and loops of a module, in the form that the compiler and its exporter take.

Both are functions that the op's regions call. The exporter cannot write a loop's regions as they are, and out of a
branch's region the compiler moves all constants, which then are operands of the IF: weights that no delegate takes as
weights, and copied at each run. A loop carries what it reads and does not change as well, which costs no copy from
step to step (kernels/while.cc does not copy tensors that the body returns unchanged).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx_ir as onnx
from litert_converter.mlir import ir
from litert_converter.mlir.dialects import func

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder
from onnxport.converters.tflite.values import Value

Step = Callable[[list[Tensor]], list[Tensor]]


def emit_branches(
    tfl: TensorBuilder, condition: Tensor, operands: Sequence[Tensor], then: Step, otherwise: Step
) -> list[Tensor]:
    """Return the results of `then` if `condition`, a bool scalar, holds, else those of `otherwise`.

    Both get the operands, and give tensors of the same ranks and element types; where they differ in a dimension, it
    is open in the results.
    """
    types = [tensor.type for tensor in operands]
    functions = [_function(tfl, name, types, body) for name, body in (("then", then), ("else", otherwise))]
    results = [function.type.results for function in functions]
    operation = ir.Operation.create(
        "tfl.if",
        results=[_union_type(*pair) for pair in zip(*results, strict=True)],
        operands=[condition],
        regions=2,
    )
    for region, function in zip(operation.regions, functions, strict=True):
        _call(region.blocks.append(), function, operands)
    return list(operation.results)


def _union_type(one: ir.Type, other: ir.Type) -> ir.Type:
    dynamic = ir.ShapedType.get_dynamic_size()
    shapes = zip(ir.RankedTensorType(one).shape, ir.RankedTensorType(other).shape, strict=True)
    dims = [ours if ours == theirs else dynamic for ours, theirs in shapes]
    return ir.RankedTensorType.get(dims, ir.RankedTensorType(one).element_type)


def emit_loop(
    tfl: TensorBuilder,
    carried: Sequence[tuple[Tensor, ir.Type]],
    invariant: Sequence[Tensor],
    condition: Step,
    body: Step,
) -> list[Tensor]:
    """Return the carried tensors after `body` ran on them while `condition` gave a true bool scalar.

    Args:
        carried: each tensor before the first step with its type in all steps, in which dimensions that change are
            open. TFLite cannot carry a tensor without elements into a step.
        invariant: tensors that the steps read; both functions get them behind the carried ones.
        body: gives the carried tensors of the next step.
    """
    types = [type_ for _, type_ in carried] + [tensor.type for tensor in invariant]
    continues = _function(tfl, "condition", types, lambda arguments: [condition(arguments)[0]])
    steps = _function(tfl, "body", types, lambda arguments: body(arguments) + arguments[len(carried) :])
    operation = ir.Operation.create(
        "tfl.while",
        results=types,
        operands=[*(tensor for tensor, _ in carried), *invariant],
        regions=2,
        attributes={"is_stateless": ir.BoolAttr.get(True)},
    )
    for region, function in zip(operation.regions, (continues, steps), strict=True):
        block = region.blocks.append(*types)
        _call(block, function, list(block.arguments))
    return list(operation.results)[: len(carried)]


def _call(block: ir.Block, function: func.FuncOp, operands: Sequence[Tensor]) -> None:
    """Emit a region that calls a function."""
    with ir.InsertionPoint(block):
        results = func.CallOp(function, list(operands)).operation.results
        ir.Operation.create("tfl.yield", operands=list(results))


def _function(tfl: TensorBuilder, name: str, types: Sequence[ir.Type], body: Step) -> func.FuncOp:
    assert tfl.functions is not None
    name = f"{name}_{len(list(tfl.functions.operations))}"
    with ir.InsertionPoint(tfl.functions):
        function = func.FuncOp(name, ir.FunctionType.get(list(types), []), visibility="private")
        # Inlined again, the body would be a region, which the exporter fails to write without a word.
        function.attributes["no_inline"] = ir.UnitAttr.get()
    block = function.add_entry_block()
    with tfl.emitting_into(block):
        results = body(list(block.arguments))
        ir.Operation.create("func.return", operands=results)
    signature = ir.FunctionType.get(list(types), [tensor.type for tensor in results])
    function.attributes["function_type"] = ir.TypeAttr.get(signature)
    return function


def find_captures(node: TflNode, tfl: TflBuilder, graphs: Sequence[onnx.Graph]) -> dict[onnx.Value, Value]:
    """Return the values around `node` that its graphs read, each constant or with a tensor, initializers apart."""
    found: dict[onnx.Value, Value] = {}
    for value in dict.fromkeys(value for graph in graphs for value in _free_values(graph)):
        if value.const_value is not None:
            continue  # every block makes its own constants of initializers
        ours = tfl.scope.find(value)
        if ours is None:
            node.unsupported(f"reads {value.name!r}, the result of a node that is refused")
        if ours.constant is None and not ours.copies:
            tfl.tensor(ours)  # made inside, it would not be seen outside
        found[value] = ours
    return found


def nested_value(value: Value, tensor: Tensor | None) -> Value:
    """Return a captured value for a nested function: a constant, or the function's argument for its tensor."""
    copies = {} if tensor is None else {value.order: tensor}
    inner = Value(value.shape, value.dtype, constant=value.constant, copies=copies)
    inner.is_size, inner.is_natural = value.is_size, value.is_natural
    return inner


def _free_values(graph: onnx.Graph) -> Iterator[onnx.Value]:
    """Yield the values that a graph or one inside it reads and does not define; some more than once."""
    own = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        used = [value for value in node.inputs if value is not None]
        for attribute in node.attributes.values():
            if attribute.type == onnx.AttributeType.GRAPH:
                used += _free_values(attribute.as_graph())
        yield from (value for value in used if value not in own)
        own.update(node.outputs)
    yield from (value for value in graph.outputs if value not in own)
