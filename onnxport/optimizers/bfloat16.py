"""BF16: weights stored as bfloat16 behind a Cast to float32, and computed in float32.

Weights only: ONNX Runtime's CPU (1.31) has no Add, MatMul or Conv in bfloat16, and ONNX has no Conv, pooling or
LSTM in it before opset 22. The file is half as large and as fast as before: ONNX Runtime folds the Casts on load.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.opset import lift
from onnxport.optimizers.passes import Rewritten

# Constants of fewer elements save nothing.
_WEIGHTS = 256
# Since when Cast knows bfloat16.
_CASTABLE = 13
_LARGEST = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)  # type: ignore[no-untyped-call]


def to_bfloat16(model: Model) -> Rewritten:
    """Return a copy of `model`, at opset 13 or newer, with its float32 weights in bfloat16; saving rounds them.

    Raises:
        CannotConvertError: it has no float32 weights, or an operator that cannot be lifted.
    """
    copy = model.clone()
    common.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=_WEIGHTS)(copy.ir)
    common.RemoveInitializersFromInputsPass()(copy.ir)
    found = [
        (graph, value)
        for graph in copy.ir.graphs()
        for value in graph.initializers.values()
        if (tensor := value.const_value) is not None
        and tensor.dtype == ir.DataType.FLOAT
        and tensor.size >= _WEIGHTS
        and not value.is_graph_output()
    ]
    if not found:
        raise CannotConvertError(
            f"{model.path} has no float32 weights to convert to bfloat16",
            why=f"no float32 constant of it has {_WEIGHTS} elements or more",
            fix="use it as it is",
        )
    notes = [
        f"{len(found)} weights are stored as bfloat16 and computed in float32: "
        "ONNX Runtime's CPU has no arithmetic in bfloat16"
    ]
    if copy.opset < _CASTABLE:
        notes.append(f"opset {copy.opset} was lifted to {_CASTABLE}, whose Cast supports bfloat16")
        shape_inference.infer(copy)
        lift(copy.ir, _CASTABLE)
    for graph, value in found:
        _store(graph, value)
    facts = {
        "bfloat16 weights": len(found),
        "weights": {"before": model.weight_bytes, "after": copy.weight_bytes},
    }
    return Rewritten(copy, tuple(notes), facts)


def _store(graph: ir.Graph, value: ir.Value) -> None:
    """Replace a weight by a Cast of its rounded elements, under its name; finite numbers stay finite."""
    name, tensor = value.name, value.const_value
    assert name is not None
    assert tensor is not None
    assert isinstance(tensor.shape, ir.Shape)
    stored_name = f"{name}/bfloat16"

    def round_tensor() -> ir.TensorProtocol:
        values = tensor.numpy()
        finite = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
        return ir.tensor(finite.astype(ml_dtypes.bfloat16), dtype=ir.DataType.BFLOAT16, name=stored_name)

    lazy = ir.LazyTensor(round_tensor, dtype=ir.DataType.BFLOAT16, shape=tensor.shape, name=stored_name)
    stored = ir.val(stored_name, const_value=lazy)
    cast = ir.node("Cast", [stored], {"to": int(ir.DataType.FLOAT)}, name=f"{name}/widened")
    cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), tensor.shape
    value.replace_all_uses_with(cast.outputs[0])
    del graph.initializers[name]
    cast.outputs[0].name = name
    graph.register_initializer(stored)
    graph.insert_before(graph[0], cast)
