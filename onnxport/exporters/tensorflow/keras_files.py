"""`.keras` and `.h5` files: inspected before Keras loads them, which may run code in them."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from onnxport.core.archives import DAMAGED_ARCHIVE
from onnxport.core.errors import InputError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source, is_archive
from onnxport.exporters.tensorflow import keras_2
from onnxport.exporters.tensorflow.keras_2 import class_objects
from onnxport.exporters.tensorflow.keras_models import from_model, read_weights_file
from onnxport.exporters.tensorflow.library import tf
from onnxport.exporters.tensorflow.model import TensorflowModel, first_line

_DAMAGED = "copy, download or save it again"


def load(source: Source, params: ExportParams) -> TensorflowModel:
    """Load a file of Keras 3, or an .h5 file of Keras 2.

    Raises InputError if it is damaged, has weights alone, code without --trust, or unknown layers.
    """
    path = Path(source.name)
    config = _config(path)
    code = sorted({_class_name(each) for each in class_objects(config) if _is_code(each)})
    if code and not params.trust:
        raise InputError(
            f"{path} holds Python code, which anybody may have written",
            why=f"in {', '.join(code)}",
            fix="give --trust if you know where it comes from",
        )
    if not params.trust:
        _refuse_files(path, config)
    return from_model(_load_keras_3(path, config, trust=params.trust), source, params)


def _refuse_files(path: Path, config: Any) -> None:
    """Refuse layers that read a vocabulary from a file of this machine (InputError)."""
    for each in class_objects(config):
        settings = each.get("config")
        named = settings.get("vocabulary") if isinstance(settings, dict) else None
        if isinstance(named, str) and named:
            raise InputError(
                f"{path} reads the file {named!r} when it is loaded",
                why=f"{_class_name(each)} takes its vocabulary from there",
                fix="save it with the vocabulary in it, or give --trust if you know where it comes from",
            )


def _load_keras_3(path: Path, config: Any, *, trust: bool) -> Any:
    import keras

    try:
        with compatible_file(path, config) as readable:
            model = keras.models.load_model(readable, compile=False, safe_mode=not trust)
        if is_of_keras_2(path):
            keras_2.restore_activations(model)
        return model
    except _REFUSALS as error:
        custom = sorted({str(each["class_name"]) for each in class_objects(config) if _is_custom(each)})
        of_keras_2 = is_of_keras_2(path)
        if of_keras_2 and find_spec("tf_keras"):
            return _load_keras_2(path, trust=trust)
        if custom and not of_keras_2:
            raise InputError(
                f"{path} needs {', '.join(custom)}, which Keras does not have",
                why="a file holds no code of custom layers",
                fix="give a factory (package.module:function) that imports them and loads the file",
            ) from error
        raise InputError(
            f"Keras {keras.__version__} cannot load {path}",
            why=f"it has no {', '.join(custom)}" if custom else first_line(error),
            fix="Keras 2 wrote it, which can load it: pip install tf_keras" if of_keras_2 else "",
        ) from error


def _load_keras_2(path: Path, *, trust: bool) -> Any:
    import tf_keras

    try:
        return tf_keras.models.load_model(path, compile=False, safe_mode=not trust)
    except _REFUSALS as error:
        raise InputError(
            f"neither Keras 3 nor tf_keras {tf_keras.__version__} can load {path}",
            why=first_line(error),
            fix="give a factory (package.module:function) that imports its custom layers and loads it by tf_keras",
        ) from error


# What Keras raises where it does not know a class or an argument, or misses a weight, or its file is damaged.
_REFUSALS = (*DAMAGED_ARCHIVE, TypeError, AttributeError, ImportError, tf.errors.OpError)


def _config(path: Path) -> Any:
    """Return the model's configuration as JSON."""
    try:
        if not is_archive(path):
            return json.loads(_config_of_h5(path))
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json"))
    except DAMAGED_ARCHIVE as error:
        what = "Keras file" if path.suffix.lower() == ".keras" else "HDF5 file"
        raise InputError(f"{path} is damaged or no {what}", why=first_line(error), fix=_DAMAGED) from error


def _config_of_h5(path: Path) -> str:
    import h5py

    with h5py.File(path, "r") as file:
        text = file.attrs.get("model_config")
    if text is None:
        raise read_weights_file(path)
    return text.decode() if isinstance(text, bytes) else str(text)


def _is_code(each: Mapping[str, Any]) -> bool:
    """Return whether a function is stored as bytecode: `__lambda__` in Keras 3, the function's type in Keras 2."""
    config = each.get("config")
    kinds = [config.get(key) for key in _FUNCTION_TYPES] if isinstance(config, dict) else []
    return each["class_name"] == "__lambda__" or "lambda" in kinds


# What a Lambda layer of Keras 2 says of its functions.
_FUNCTION_TYPES = ("function_type", "output_shape_type", "mask_type")


def _is_custom(each: Mapping[str, Any]) -> bool:
    """Return whether a class is the user's; Keras 3 names its module, Keras 2 does not."""
    import keras

    if "module" in each:
        return str(each["module"]).partition(".")[0] not in ("keras", "builtins")
    rooms = (keras.layers, keras.models, keras.initializers, keras.regularizers, keras.constraints)
    name = each["class_name"]
    return name not in ("Functional", "__tuple__") and not any(hasattr(room, name) for room in rooms)


def _class_name(each: Mapping[str, Any]) -> str:
    config = each.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    return f"{each['class_name']} {name!r}" if name else "a lambda"


def is_of_keras_2(path: Path) -> bool:
    """Return whether an older Keras wrote the file; False where the file does not tell."""
    try:
        if is_archive(path):
            with zipfile.ZipFile(path) as archive:
                told = json.loads(archive.read("metadata.json")).get("keras_version", "")
        else:
            import h5py

            with h5py.File(path, "r") as file:
                told = file.attrs.get("keras_version", "")
    except (*DAMAGED_ARCHIVE, AttributeError):
        return False
    text = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    return text.startswith(("1.", "2."))


@contextlib.contextmanager
def compatible_file(path: Path, config: Any) -> Iterator[Path]:
    """Yield the file, or a temporary copy with the configuration (`config`, changed) that Keras 3 reads."""
    if is_archive(path) or not keras_2.modernize(config):
        yield path
        return
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        with h5py.File(copy, "r+") as file:
            file.attrs["model_config"] = json.dumps(config)
        yield copy
