"""tf.Module, tf.function, concrete functions and loaded SavedModels from a factory."""

from __future__ import annotations

from typing import Any

from onnxport.core.errors import UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.exporters.tensorflow.library import TENSORFLOW, dtype_name, shape_of, tf
from onnxport.exporters.tensorflow.model import Callee, TensorflowModel
from onnxport.exporters.tensorflow.signatures import DeclaredInput, call_by_name, inputs_from_params


def of_object(model: Any, source: Source, params: ExportParams) -> TensorflowModel:
    """Load anything that can be called with tensors; UsageError if it cannot, or if its inputs are unknown."""
    if params.weights is not None:
        raise UsageError(
            f"{source.name} takes no --weights",
            why="they are for Keras models",
            fix="load them in the factory",
        )
    if not callable(model):
        raise UsageError(
            f"{source.name} gives {type(model).__name__}, which cannot be called",
            fix="give it a __call__, or return the tf.function itself",
        )
    function = model if hasattr(model, "function_spec") else model.__call__
    declared = _declared(function) or inputs_from_params(params)
    if not declared:
        raise UsageError(
            f"{source.name} does not declare its inputs",
            fix="give --input NAME=1,224,224,3 for each tensor, and --dynamic for dimensions that stay open",
        )
    described = getattr(function, "python_function", function)
    call = call_by_name(model, described, tuple(each.name for each in declared))
    return TensorflowModel(Callee(call, declared, (), model, f"{TENSORFLOW}, eager"), source, params)


def _declared(function: Any) -> tuple[DeclaredInput, ...]:
    """Return the inputs of a tf.function with an input_signature, under its parameters' names."""
    signature = getattr(function, "input_signature", None)
    if not signature:
        return ()
    names = list(function.function_spec.arg_names)
    names = names[1:] if names[:1] == ["self"] and len(names) > len(signature) else names
    return tuple(
        DeclaredInput(
            spec.name or names[n] if n < len(names) else f"input_{n}", dtype_name(spec.dtype), shape_of(spec)
        )
        for n, spec in enumerate(tf.nest.flatten(signature))
    )
