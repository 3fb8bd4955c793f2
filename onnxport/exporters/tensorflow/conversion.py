"""Convert a traced function with tf2onnx: variables become constants, names the user's."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.exporters.framework import Exported
from onnxport.exporters.tensorflow.canonical import canonicalize, hash_by_number, skip_copies_of_constants
from onnxport.exporters.tensorflow.library import EXPORTER, TENSORFLOW, tf
from onnxport.exporters.tensorflow.operators import HANDLERS
from onnxport.formats.artifact import TensorSpec

NEWEST_OPSET = 18  # that tf2onnx writes (tf2onnx.constants.OPSET_TO_IR_VERSION)


@dataclass(frozen=True)
class TracedFunction:
    """A concrete function from the inputs to the outputs, each in order."""

    function: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    owner: Any  # what holds its variables and tables
    source: str  # its name, for messages


def write(traced: TracedFunction, output: Path, opset: int | None, notes: Sequence[str] = ()) -> Exported:
    """See Framework.export."""
    inputs = [tensor.name for tensor in traced.function.inputs[: len(traced.inputs)]]
    outputs = [tensor.name for tensor in traced.function.outputs]
    names = dict(
        zip((*inputs, *outputs), (spec.name for spec in (*traced.inputs, *traced.outputs)), strict=True)
    )
    with collect_refusals(traced.source) as refusals, tf.device("/cpu:0"):
        graph, tables = _freeze(traced, inputs, outputs)
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(graph, name="")
            model = convert(
                imported,
                opset,
                refusals,
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=names,
                initialized_tables=tables,
            )
    set_ports(model, traced.inputs, traced.outputs)
    onnx.save(model, output)
    return Exported(output, tuple(notes), {"exporter": f"{EXPORTER}, {TENSORFLOW}"})


def _freeze(traced: TracedFunction, inputs: list[str], outputs: list[str]) -> tuple[Any, dict[Any, Any]]:
    """Return the function's graph with constant variables, and the contents of its tables."""
    from tf2onnx import tf_loader

    tables: dict[Any, Any] = {}
    if traced.owner is None:
        graph = tf_loader.from_function(traced.function, inputs, outputs)
    else:
        graph, tables = tf_loader.from_trackable(traced.owner, traced.function, inputs, outputs, False)
    if _inline_xla(graph):
        with tf.Graph().as_default():
            graph = tf_loader.tf_optimize(inputs, outputs, graph)
    return graph, tables


def _inline_xla(graph: Any) -> bool:
    """Inline XLA's functions like others: Keras uses one for grouped convolutions. Return whether there were any."""
    functions = graph.library.function
    found = False
    for each in (*functions, *graph.node, *(node for function in functions for node in function.node_def)):
        for mark in _APART:
            if mark in each.attr:
                del each.attr[mark]
                found = True
    return found


_APART = ("_XlaMustCompile", "_noinline")


def convert(
    graph: Any, opset: int | None, refusals: Mapping[str, Refusal], **options: Any
) -> onnx.ModelProto:
    """Convert a TensorFlow graph, or a .tflite (option `tflite_path`, and no graph), with tf2onnx.

    Args:
        refusals: what collect_refusals collects meanwhile.
    """
    from tf2onnx import optimizer, tfonnx

    hash_by_number()
    skip_copies_of_constants()
    process = partial(
        tfonnx.process_tf_graph,
        graph,
        continue_on_error=True,  # so that every operator it cannot write is told, not the first
        opset=min(opset or NEWEST_OPSET, NEWEST_OPSET),
        custom_op_handlers={op: (handler, []) for op, handler in HANDLERS.items()},
        **options,
    )
    found = process()
    if refusals:
        raise NotImplementedError("collect_refusals tells which operators")
    try:
        optimized = optimizer.optimize_graph(found, catch_errors=False)
    except Exception:
        # Now it copies the graph, with all weights, before each optimizer, and leaves out the one that fails.
        optimized = optimizer.optimize_graph(process())
    model: onnx.ModelProto = optimized.make_model("")
    return model


@contextlib.contextmanager
def collect_refusals(source: str) -> Iterator[Mapping[str, Refusal]]:
    """Turn errors that tf2onnx logs or raises into a CannotConvertError with every operator it names.

    Yields:
        The name of each node that it cannot write so far -> why.
    """
    errors = _Errors()
    logger = logging.getLogger("tf2onnx")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield errors.refusals
    except (ValueError, LookupError, AttributeError, TypeError, AssertionError, NotImplementedError) as error:
        if not errors.refusals:
            raise CannotConvertError(
                f"{source} cannot be exported", why=f"tf2onnx fails: {_line(error)}"
            ) from error
    finally:
        logger.removeHandler(errors)
        logger.propagate = propagate
        logger.setLevel(level)
    if errors.refusals:
        many = f"{len(errors.refusals)} operators have" if len(errors.refusals) > 1 else "an operator has"
        raise CannotConvertError(
            f"{source} cannot be exported, {many} no form in ONNX that tf2onnx knows",
            refusals=errors.refusals.values(),
        )


class _Errors(logging.Handler):
    """Collects the nodes that tf2onnx logs as failed, by the format of its messages."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.refusals: dict[str, Refusal] = {}

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if str(record.msg).startswith("Tensorflow op ["):
            name, op = map(str, arguments)
            self.refusals[name] = Refusal(op, name, "tf2onnx does not know it")
        elif str(record.msg).startswith("Failed to convert node"):
            error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            name = str(arguments[0])
            summary = re.search(r"^\s*OP=(.*)$", str(arguments[-1]).replace("\\n", "\n"), re.MULTILINE)
            op = summary[1].strip() if summary else "?"
            self.refusals[name] = Refusal(op, name, _line(error) if error else "tf2onnx fails on it")


def _line(error: BaseException) -> str:
    lines = str(error).removeprefix("make_sure failure: ").strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def set_ports(model: onnx.ModelProto, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Set the declared inputs and outputs; tf2onnx numbers unknown dimensions (unk__12) and drops unread inputs."""
    graph = model.graph
    for field, specs in ((graph.input, inputs), (graph.output, outputs)):
        del field[:]
        for spec in specs:
            element = onnx.TensorProto.DataType.Value(_ELEMENTS.get(spec.dtype, spec.dtype.upper()))
            field.append(onnx.helper.make_tensor_value_info(spec.name, element, list(spec.shape)))
    del graph.value_info[:]
    canonicalize(graph)
    graph.doc_string = ""
    used = {node.domain for node in _nodes(graph)}
    for opset in [each for each in model.opset_import if each.domain and each.domain not in used]:
        model.opset_import.remove(opset)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


# Where NumPy and ONNX name an element type differently.
_ELEMENTS = {"float32": "FLOAT", "float64": "DOUBLE"}
