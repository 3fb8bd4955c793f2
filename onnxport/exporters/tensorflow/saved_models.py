"""SavedModel folders, through one of their signatures."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError, UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.exporters.tensorflow.file_access import check_file_access
from onnxport.exporters.tensorflow.library import TENSORFLOW, dtype_name, shape_of, tf
from onnxport.exporters.tensorflow.model import Callee, TensorflowModel, first_line
from onnxport.exporters.tensorflow.signatures import DeclaredInput

_DEFAULT = "serving_default"
# Collections of TensorFlow 1's files that name what loading runs.
_INITIALIZERS = ("saved_model_main_op", "legacy_init_op")


class _Optimizer(tf.Module):
    """A saved optimizer, which TensorFlow cannot restore without `add_slot` since Keras 3; nothing here reads it."""

    def add_slot(self, var: Any, slot_name: str) -> Any:
        return tf.Variable(tf.zeros_like(var), trainable=False)


for _identifier in ("optimizer", "experimentalOptimizer"):
    with contextlib.suppress(AssertionError):  # tf_keras has put its own there
        _load = tf.__internal__.saved_model.load
        _version = _load.VersionedTypeRegistration(
            object_factory=lambda proto: _Optimizer(),
            version=2,
            min_producer_version=1,
            min_consumer_version=1,
        )
        _load.register_revived_type(
            _identifier, lambda each: isinstance(each, _Optimizer), versions=[_version]
        )


def load(source: Source, params: ExportParams) -> TensorflowModel:
    """Load the model in a SavedModel folder.

    Raises:
        InputError: damaged, or without signatures.
        UsageError: an unknown signature, or several of which none is chosen.
    """
    path = Path(source.name)
    _check_files(path, trust=params.trust)
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception as error:  # of a damaged file TensorFlow raises anything
        raise InputError(f"TensorFlow cannot load the SavedModel {path}", why=first_line(error)) from error
    signatures = _signatures(path, loaded)
    key = _choose_signature(path, signatures, params.signature)
    return from_signature(signatures[key], loaded, f"{TENSORFLOW}, signature {key}", source, params)


def _check_files(path: Path, *, trust: bool) -> None:
    """Refuse a SavedModel whose graphs open files, before loading runs their initializers (InputError)."""
    from google.protobuf import message, text_format
    from tensorflow.core.protobuf import saved_model_pb2

    if trust:
        return
    file = path / "saved_model.pb"
    try:
        if file.is_file():  # TensorFlow reads the text only without it
            graphs = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
        else:
            text = file.with_suffix(".pbtxt").read_bytes()
            graphs = text_format.Parse(text, saved_model_pb2.SavedModel()).meta_graphs
    except (message.DecodeError, text_format.ParseError, ValueError, RecursionError, OSError) as error:
        raise InputError(f"TensorFlow cannot load the SavedModel {path}", why=first_line(error)) from error
    for meta in graphs:
        # What can be called: functions of the object graph; in TensorFlow 1's files, the ends of the signatures, and
        # the operators that loading runs.
        ends = [each.name for told in meta.signature_def.values() for each in told.outputs.values()]
        ends += [name for key in _INITIALIZERS for name in meta.collection_def[key].node_list.value]
        roots = [*meta.object_graph_def.concrete_functions, *(end.partition(":")[0] for end in ends)]
        restores = [meta.saver_def.restore_op_name]
        check_file_access(path, meta.graph_def, trust=False, roots=roots, restores=restores)


def from_signature(
    signature: Any, owner: Any, engine: str, source: Source, params: ExportParams
) -> TensorflowModel:
    """Load a concrete function with named inputs and outputs; InputError if an input is no tensor."""
    positional, named = signature.structured_input_signature
    if not all(isinstance(each, tf.TypeSpec) for each in tf.nest.flatten((positional, named))):
        raise InputError(
            f"TensorFlow cannot load the SavedModel {source.name}",
            why="an input of its signature is no tensor",
            fix="save the model again",
        )
    specs = {spec.name: spec for spec in tf.nest.flatten(positional)} | dict(sorted(named.items()))
    declared = tuple(
        DeclaredInput(name, dtype_name(spec.dtype), shape_of(spec)) for name, spec in specs.items()
    )

    def call(tensors: Mapping[str, Any]) -> Any:
        return dict(sorted(signature(**tensors).items()))  # the file keeps no order of them

    return TensorflowModel(Callee(call, declared, (), owner, engine), source, params)


def _signatures(path: Path, loaded: Any) -> Mapping[str, Any]:
    """Return the signatures of a loaded SavedModel; InputError where a damaged file has something else there."""
    found = getattr(loaded, "signatures", None)
    if isinstance(found, Mapping) and all(
        hasattr(each, "structured_input_signature") for each in found.values()
    ):
        return found
    raise InputError(
        f"TensorFlow cannot load the SavedModel {path}",
        why="what it names signatures are no functions",
        fix="save the model again",
    )


def _choose_signature(path: Path, signatures: Mapping[str, Any], wanted: str | None) -> str:
    keys = [key for key in signatures if not key.startswith("_")]
    if not keys:
        raise InputError(
            f"{path} has no signature",
            why="it says no inputs and outputs by name",
            fix="save it with signatures=..., or give a factory that returns a tf.function of it",
        )
    listed = ", ".join(keys)
    if wanted is not None and wanted not in keys:
        raise UsageError(f"{path} has no signature {wanted!r}", fix=f"--signature takes one of {listed}")
    if wanted is None and _DEFAULT not in keys and len(keys) > 1:
        raise UsageError(f"{path} has several signatures", fix=f"choose one with --signature: {listed}")
    return wanted or (_DEFAULT if _DEFAULT in keys else keys[0])
