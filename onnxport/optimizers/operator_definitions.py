"""Definitions of the user's own operators as ONNX functions (`--operators`), for a model that lacks them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import google.protobuf.message
import onnx
import onnx.parser
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.errors import InputError, UsageError
from onnxport.core.missing_paths import unreadable_path
from onnxport.core.regular_file import read_regular
from onnxport.formats.model import Model
from onnxport.optimizers.opset import inline_functions

# onnx.parser reads functions behind a graph only.
_GRAPH = '<ir_version: 10, opset_import: ["": 21]> none () => () {} '
_FORM = 'write <domain: "acme", opset_import: ["": 21]> myop <alpha: float = 1.0> (x) => (y) { y = Relu (x) }'


_MOST = 1 << 30  # bytes


def read_definitions(path: Path) -> list[ir.Function]:
    """Read the functions of an `.onnx` file, or of a text file in ONNX's text form.

    Raises:
        InputError: the file is missing, cannot be parsed, or defines nothing.
    """
    try:
        data = read_regular(path, _MOST)
    except OSError as error:
        raise unreadable_path(path, error) from error
    except ValueError as error:
        raise InputError(f"{path} cannot be read", why=str(error)) from error
    try:
        if path.suffix.lower() == ".onnx":
            proto = onnx.ModelProto.FromString(data)
        else:
            proto = onnx.parser.parse_model(_GRAPH + data.decode())
        functions = [ir.serde.deserialize_function(function) for function in proto.functions]
    except onnx.parser.ParseError as error:
        raise InputError(f"{path} is no list of ONNX functions", why=_message(error), fix=_FORM) from error
    except (UnicodeDecodeError, google.protobuf.message.DecodeError, ir.serde.SerdeError) as error:
        raise InputError(f"{path} cannot be read", why="it is neither text nor ONNX", fix=_FORM) from error
    if not functions:
        raise InputError(f"{path} defines no operator", fix=_FORM)
    return functions


def _message(error: onnx.parser.ParseError) -> str:
    """Return the parser's message in one line; it comes as bytes."""
    first = error.args[0] if error.args else ""
    text = first.decode(errors="replace") if isinstance(first, bytes) else str(first)
    return " ".join(text.replace(_GRAPH.strip(), "").split())[:300]


def define_operators(model: Model, path: Path) -> tuple[Model, tuple[str, ...]]:
    """Return a copy of `model` whose own operators are defined by the functions in `path`, with notes on them.

    A function of the model's own keeps its definition.

    Raises:
        InputError: see `read_definitions`.
        UsageError: the model has none of the operators.
    """
    given = {function.identifier(): function for function in read_definitions(path)}
    defined = model.clone()
    functions = defined.ir.functions
    lacking = {key: function for key, function in given.items() if key not in functions}
    used = Counter(
        node.op_identifier() for node in defined.graph.all_nodes() if node.op_identifier() in lacking
    )
    if not used:
        names = ", ".join(f"{domain}::{name}" for domain, name, _ in given)
        raise UsageError(f"{model.path} has no node that {path} defines", why=f"it defines {names}")
    functions.update(lacking)
    common.RemoveUnusedFunctionsPass()(defined.ir)  # type: ignore[no-untyped-call]
    for function in lacking.values():
        defined.ir.opset_imports.setdefault(function.domain, 1)
    counts = ", ".join(f"{domain}::{name} ({count})" for (domain, name, _), count in sorted(used.items()))
    return defined, (f"nodes are computed as {path.name} defines them: {counts}",)


def inline_definitions(model: Model) -> Model:
    """Return a copy of `model` with its functions inlined; LiftError where a body has no form at the newest opset."""
    copy = model.clone()
    inline_functions(copy.ir)
    return copy
