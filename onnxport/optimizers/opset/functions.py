"""A file's own functions, written out where they are called: only then are the types known on which a form depends."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.optimizers.opset.errors import LiftError
from onnxport.optimizers.opset.schemas import default_domain
from onnxport.optimizers.opset.upgrade import lift, lift_graph


def inline_functions(model: ir.Model) -> list[str]:
    """Replaces every call by the function's body, in place; the model and its functions get one opset, the newest.

    Returns:
        The functions' names, sorted.

    Raises:
        LiftError: a body has no form at the newest opset among them, or versions of another domain differ.
    """
    functions = list(model.functions.values())
    if not functions:
        return []
    imports = [model.opset_imports, *(function.opset_imports for function in functions)]
    newest = max((opset for opset in map(default_domain, imports) if opset is not None), default=None)
    for function in functions:
        own = default_domain(function.opset_imports)
        if own is not None and newest is not None and own < newest:
            lift_graph(ir.Model(function.graph, ir_version=model.ir_version), own, newest, of_function=True)
        if own is not None and newest is not None:
            function.opset_imports.pop("ai.onnx", None)
            function.opset_imports[""] = newest
    if default_domain(model.opset_imports) is not None and newest is not None:
        lift(model, newest)
    try:
        common.InlinePass()(model)
    except (ValueError, ir.passes.PassError) as error:
        raise LiftError(
            "the model's functions cannot be written out where they are called",
            why=str(error.__cause__ or error),
            fix="export the model without functions",
        ) from error
    model.functions.clear()  # those that nobody calls
    return sorted({function.name for function in functions})
