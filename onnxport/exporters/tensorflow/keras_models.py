"""Keras models: functional and Sequential ones declare their inputs, subclassed ones need --input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError, UsageError
from onnxport.core.shell_words import quote
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.exporters.tensorflow.library import TENSORFLOW, tf
from onnxport.exporters.tensorflow.model import Callee, TensorflowModel, first_line
from onnxport.exporters.tensorflow.signatures import DeclaredInput, call_by_name, inputs_from_params

_WEIGHTS = (".h5", ".hdf5", ".keras")


def is_keras(model: Any) -> bool:
    """Return whether it is a layer or model of Keras 3, or of tf_keras, which is Keras 2."""
    return any(
        kind.__name__ == "Layer" and kind.__module__.partition(".")[0] in ("keras", "tf_keras")
        for kind in type(model).__mro__
    )


def from_model(model: Any, source: Source, params: ExportParams) -> TensorflowModel:
    """Return a Keras model or layer as a Framework, with `--weights` in it.

    Raises:
        UsageError: the backend is not TensorFlow, or inputs are missing.
        InputError: weights that do not fit.
    """
    if getattr(model, "inputs", None):
        call, declared, outputs = _functional(model)
    else:
        call, declared, outputs = *_from_specs(model, source, params), ()
    engine = f"Keras {_version(model)}, {TENSORFLOW}, eager"
    callee = Callee(
        call, declared, outputs, model, engine, ready=lambda: _load_weights(model, source, params)
    )
    return TensorflowModel(callee, source, params)


def _version(model: Any) -> str:
    """Return the Keras version of the model; refuse another backend than TensorFlow."""
    if not _is_keras_3(model):
        return f"{version('tf-keras')} (tf_keras)"
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UsageError(
            f"Keras computes with {keras.backend.backend()} here",
            why="its models are exported by TensorFlow",
            fix="set KERAS_BACKEND=tensorflow",
        )
    return str(keras.__version__)


def _is_keras_3(model: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__)


def _functional(
    model: Any,
) -> tuple[Callable[[Mapping[str, Any]], Any], tuple[DeclaredInput, ...], tuple[str, ...]]:
    """Load a built model by its symbolic tensors."""
    names = _unique([_input_name(tensor) for tensor in model.inputs])
    declared = tuple(
        DeclaredInput(name, _dtype(tensor.dtype), tuple(tensor.shape))
        for name, tensor in zip(names, model.inputs, strict=True)
    )
    structure = getattr(model, "input", None) if _is_keras_3(model) else None

    def call(tensors: Mapping[str, Any]) -> Any:
        flat = [tensors[name] for name in names]
        return model(_pack(structure, flat), training=False)

    return call, declared, _output_names(model)


def _input_name(tensor: Any) -> str:
    """Return the input layer's name, as a summary shows it."""
    history = getattr(tensor, "_keras_history", None)
    layer = getattr(history, "operation", None) or getattr(history, "layer", None)
    return str(getattr(layer, "name", None) or tensor.name.partition(":")[0])


def _pack(structure: Any, flat: list[Any]) -> Any:
    """Return `flat` in the structure that the model was built with."""
    if isinstance(structure, (dict, list, tuple)):
        import keras

        return keras.tree.pack_sequence_as(structure, flat)
    return flat[0] if len(flat) == 1 else flat


def _output_names(model: Any) -> tuple[str, ...]:
    """Return the names of the output layers; a dict's keys name its outputs (leaves)."""
    if isinstance(getattr(model, "output", None), dict):
        return ()
    names = getattr(model, "output_names", None) or [model.layers[-1].name]
    return tuple(_unique(names)) if len(names) == len(model.outputs) else ()


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    told = []
    for name in names:
        count = seen[name] = seen.get(name, 0) + 1
        told.append(name if count == 1 else f"{name}_{count - 1}")
    return told


def _dtype(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) else str(dtype.name)


def _from_specs(
    model: Any, source: Source, params: ExportParams
) -> tuple[Callable[[Mapping[str, Any]], Any], tuple[DeclaredInput, ...]]:
    """Load a model that declares no inputs: --input does."""
    if not params.input:
        taken = inspect.signature(model.call)
        raise UsageError(
            f"{source.name} is a subclassed model, which does not declare its inputs",
            why=f"its call is {taken}",
            fix="give --input NAME=1,224,224,3 for each tensor, and --dynamic for dimensions that stay open",
        )
    declared = inputs_from_params(params)
    return call_by_name(model, model.call, tuple(each.name for each in declared), training=False), declared


def _load_weights(model: Any, source: Source, params: ExportParams) -> None:
    if params.weights is None:
        return
    if params.weights.suffix.lower() not in _WEIGHTS:
        raise UsageError(
            f"{params.weights} is not a file of Keras weights", fix=f"known are {', '.join(_WEIGHTS)}"
        )
    try:
        model.load_weights(params.weights)
    except (ValueError, KeyError, OSError, TypeError, tf.errors.OpError) as error:
        raise InputError(f"{params.weights} does not fit {source.name}", why=first_line(error)) from error


def read_weights_file(path: Path) -> InputError:
    return InputError(
        f"{path} holds weights without a model",
        fix=f"give a factory that builds the model: onnxport export package.module:function --weights {quote(path)}",
    )
