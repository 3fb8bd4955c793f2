"""Source: a framework's model as the user names it, by a file, a folder or a factory."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import InputError, UsageError
from onnxport.core.missing_paths import missing_path
from onnxport.core.user_modules import find_module
from onnxport.formats.artifact import Stamp, path_of, stamp_of

# Kind of model, as reports name it, to what it is for a user.
KINDS: Mapping[str, str] = {
    "pytorch": "a PyTorch model",
    "tensorflow": "a TensorFlow or Keras model",
    "sklearn": "a scikit-learn estimator",
    "xgboost": "an XGBoost model",
    "lightgbm": "a LightGBM model",
    "catboost": "a CatBoost model",
    "paddle": "a PaddlePaddle model",
    # What these hold is known when they are loaded:
    "python": "a factory",
    "pickle": "a pickle",
    "skops": "a skops file",
}
# Those of which the framework is told by what is in them.
CONTAINERS = frozenset({"python", "pickle", "skops"})

# Kind to the function that loads such a source: framework.py has its contract.
LOADERS: Mapping[str, str] = {
    "pytorch": "onnxport.exporters.pytorch:load",
    "tensorflow": "onnxport.exporters.tensorflow:load",
    **dict.fromkeys(("xgboost", "lightgbm", "catboost"), "onnxport.exporters.classical.boosters:load"),
    "paddle": "onnxport.exporters.paddle:load",
    "python": "onnxport.exporters.factory:from_factory",
    "pickle": "onnxport.exporters.objects:from_pickle",
    "skops": "onnxport.exporters.objects:from_skops",
}

_SUFFIXES: Mapping[str, str] = {
    # All but .pt2 are weights, or TorchScript: the loader says which, and what to give instead.
    **dict.fromkeys((".pt2", ".pt", ".pth", ".ckpt", ".safetensors"), "pytorch"),
    **dict.fromkeys((".keras", ".h5", ".hdf5", ".pb", ".tflite"), "tensorflow"),
    ".skops": "skops",
    **dict.fromkeys((".joblib", ".pkl", ".pickle"), "pickle"),
    **dict.fromkeys((".json", ".ubj"), "xgboost"),
    ".txt": "lightgbm",
    ".cbm": "catboost",
    ".pdmodel": "paddle",
}
# Files that folders of a kind have.
_FOLDERS: Mapping[str, str] = {
    "saved_model.pb": "tensorflow",
    "saved_model.pbtxt": "tensorflow",
    "inference.pdmodel": "paddle",
    "inference.json": "paddle",
}
# What else a user may come with, and what to do instead.
_OTHERWISE: Mapping[str, str] = {
    ".onnx": "it is ONNX already: onnxport optimize brings it to another opset and simplifies it",
    ".bin": "weights alone are not a model: write package.module:function for its code, and give --weights",
    ".py": "write package.module:function, without .py, for what builds the model",
    **dict.fromkeys((".ort", ".mlpackage"), "it was converted from ONNX: export what that was made of"),
}
# How PaddlePaddle's programs begin that are JSON.
_PIR = b'{"base_code":{"magic":"pir"'
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Source:
    """A framework's model."""

    name: str  # as the user gave it
    kind: str  # a key of KINDS
    # What it consists of on disk, the main one first; a factory's module and its weights.
    files: tuple[Path, ...]
    is_factory: bool = False
    # Where modules of the user's are looked for first; the current folder unless given.
    folder: Path | None = None

    @classmethod
    def of(
        cls, given: str | os.PathLike[str], weights: Path | None = None, folder: Path | None = None
    ) -> Source:
        """Return the source that `given` names.

        Raises:
            UsageError: neither a file nor package.module:function, or no path at all.
            InputError: missing, empty, unreadable, or of unknown kind.
        """
        text = os.fspath(path_of(given, "a model", fix="give a path, or package.module:function"))
        if weights is not None and not weights.is_file():
            raise InputError(
                f"the weights {weights} {'are a folder' if weights.is_dir() else 'do not exist'}"
            )
        beside = (weights,) if weights is not None else ()
        if _FACTORY.fullmatch(text) and not Path(text).exists():
            module = _module_file(text.partition(":")[0], folder)
            return cls(text, "python", (module, *beside), is_factory=True, folder=folder)
        path = Path(text)
        return cls(text, _kind_of(path), (*_files(path), *beside), folder=folder)

    @property
    def path(self) -> Path:
        """The path for messages, as an Artifact has one."""
        return Path(self.name)

    @property
    def format(self) -> str:
        return self.kind

    @property
    def stamp(self) -> Stamp:
        """See Artifact.stamp."""
        return stamp_of(self.files)

    @property
    def size(self) -> int:
        """Bytes on disk; 0 for a factory without weights."""
        files = self.files[1:] if self.is_factory else self.files
        return sum(file.stat().st_size for file in files)

    def digest(self) -> str:
        """Return SHA-256 over the files' names and contents, and a factory's name; not over what its module imports."""
        tree = hashlib.sha256(self.name.encode() if self.is_factory else b"")
        for file in self.files:
            with file.open("rb") as stream:
                tree.update(file.name.encode() + b"\0" + hashlib.file_digest(stream, "sha256").digest())
        return tree.hexdigest()


def is_archive(path: Path) -> bool:
    """Return whether a file is a .zip archive; zipfile raises errors for some that are damaged."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:
        return False


def _module_file(name: str, folder: Path | None) -> Path:
    """Return the file of a module without importing it: only its process does that."""
    if file := find_module(name, folder):
        return file
    fix = "run in the folder that holds it" if folder is None else "put it beside the file that names it"
    raise InputError(f"the module {name!r} does not exist", fix=f"{fix}, or its folder on PYTHONPATH")


def _factory_hint(name: str) -> str:
    """Suggest the form for a module without its function, `models` or `models.build`; empty if `name` is neither."""
    if not _DOTTED.fullmatch(name):
        return ""
    module, _, function = name.rpartition(".")
    if find_module(name):
        return f"for a function of that module, write {name}:FUNCTION"
    if module and find_module(module):
        return f"for a function of a module, write {module}:{function}"
    return ""


def _kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if path.exists() and suffix in _OTHERWISE:
        raise UsageError(f"{path} is not a framework's model", fix=_OTHERWISE[suffix])
    if path.is_dir():
        kind = next((kind for name, kind in _FOLDERS.items() if (path / name).is_file()), None)
        if kind is None:
            raise InputError(
                f"{path} is a folder that holds no model we know",
                why=f"none of {', '.join(_FOLDERS)} is in it",
            )
        return kind
    if not path.exists():
        if ":" in str(path) and not path.suffix:
            raise UsageError(f"{path} is neither a file nor a factory", fix="write package.module:function")
        if hint := _factory_hint(str(path)):
            raise InputError(f"{path} does not exist", fix=hint)
        raise missing_path(path)
    if not path.stat().st_size:
        raise InputError(f"{path} is empty")
    if suffix not in _SUFFIXES:
        raise InputError(
            f"{path} has an extension that names no model of a framework",
            fix=f"known are {', '.join(_SUFFIXES)}, folders, and package.module:function",
        )
    if suffix == ".json":
        with path.open("rb") as stream:
            if b"".join(stream.read(256).split()).startswith(_PIR):
                return "paddle"
    return _SUFFIXES[suffix]


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        return tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    weights = path.with_suffix(".pdiparams")  # PaddlePaddle's
    return (path, weights) if path.suffix in (".json", ".pdmodel") and weights.is_file() else (path,)
