"""Configurations in `.h5` files of Keras 2 that Keras 3 refuses, or reads as something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Argument of a layer in Keras 2 that Keras 3 refuses: the value at which it does nothing, and the layers, by a part of
# their name.
_GONE: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "time_major": (False, ("LSTM", "GRU", "RNN")),
    "groups": (1, ("Depthwise", "Separable", "Transpose")),
}
# Arguments of wrappers that are layers.
_WRAPPED = ("layer", "backward_layer")


def class_objects(config: Any) -> Iterator[dict[str, Any]]:
    """Return every object in a configuration that names a class."""
    if isinstance(config, dict):
        if isinstance(config.get("class_name"), str):
            yield config
        for value in config.values():
            yield from class_objects(value)
    elif isinstance(config, list):
        for value in config:
            yield from class_objects(value)


def modernize(config: Any) -> bool:
    """Change a configuration of Keras 2 into one that Keras 3 reads; return whether anything changed.

    - The arguments of _GONE go.
    - A Sequential model of Keras 2.0 is a list of layers.
    - A GRU of Keras 2.0 does not say that it resets the state before the product, and Keras 3 does it after.
    - A layer in a wrapper (Bidirectional) has no module, without which Keras 3 looks for a class of the user's.
    - The first layer of a Sequential model states its input's shape, which Keras 3's Embedding misreads.
    """
    changes = [
        change(each)
        for each in list(class_objects(config))
        for change in (_list_layers, _drop_removed, _tell_reset, _name_module, _state_input)
    ]
    return any(changes)


def _list_layers(each: dict[str, Any]) -> bool:
    if each["class_name"] != "Sequential" or not isinstance(each.get("config"), list):
        return False
    each["config"] = {"name": "sequential", "layers": each["config"]}
    return True


def _drop_removed(each: dict[str, Any]) -> bool:
    arguments, found = each.get("config"), False
    for name, (idle, layers) in _GONE.items():
        is_of = any(layer in each["class_name"] for layer in layers)
        if is_of and isinstance(arguments, dict) and arguments.get(name) == idle:
            del arguments[name]
            found = True
    return found


def _tell_reset(each: dict[str, Any]) -> bool:
    arguments = each.get("config")
    if each["class_name"] != "GRU" or not isinstance(arguments, dict) or "reset_after" in arguments:
        return False
    arguments["reset_after"] = False
    return True


def _name_module(each: dict[str, Any]) -> bool:
    arguments = each.get("config")
    inner = [arguments.get(name) for name in _WRAPPED] if isinstance(arguments, dict) else []
    named = [_is_named_now(layer) for layer in inner if isinstance(layer, dict)]
    return any(named)


def _is_named_now(layer: dict[str, Any]) -> bool:
    """Name the module of one of Keras's layers; return whether it had none."""
    import keras

    if "module" in layer or not hasattr(keras.layers, str(layer.get("class_name"))):
        return False
    layer |= {"module": "keras.layers", "registered_name": None}
    return True


def _state_input(each: dict[str, Any]) -> bool:
    arguments = each.get("config")
    layers = arguments.get("layers") if isinstance(arguments, dict) else None
    if each["class_name"] != "Sequential" or not isinstance(layers, list) or not layers:
        return False
    first = layers[0]
    is_embedding = isinstance(first, dict) and first.get("class_name") == "Embedding"
    settings = first.get("config") if is_embedding else None
    if not isinstance(settings, dict) or "batch_input_shape" not in settings:
        return False
    shape = settings.pop("batch_input_shape")
    settings.pop("input_length", None)
    entry = {"name": f"{settings.get('name', 'embedding')}_input", "dtype": "float32", "batch_shape": shape}
    layers.insert(0, {"class_name": "InputLayer", "config": entry})
    return True


def hard_sigmoid(x: Any) -> Any:
    """Return Keras 2's hard sigmoid, clip(0.2 x + 0.5, 0, 1); that of Keras 3 is relu6(x + 3) / 6."""
    import keras

    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def restore_activations(model: Any) -> None:
    """Give the layers of a model that Keras 2 trained its hard sigmoid, which was the gates' default until 2.3."""
    import keras

    for layer in model._flatten_layers():
        for name in ("activation", "recurrent_activation"):
            # A recurrent layer's own is a property that reads its cell's.
            if vars(layer).get(name) is keras.activations.hard_sigmoid:
                setattr(layer, name, hard_sigmoid)
