"""Write an ExportedProgram as an ONNX file: torch.onnx's translation under the user's names."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes import common

from onnxport.exporters.pytorch.attention import guard_masked_attention
from onnxport.exporters.pytorch.dimension_names import DimensionNames, unused_name
from onnxport.exporters.pytorch.errors import translation_error
from onnxport.exporters.pytorch.recurrence import translations
from onnxport.formats.model import Model
from onnxport.optimizers.constant_folding import fold_constants

# The opsets that torch.onnx writes without much converting: its translations are of 18, and some use what 20 brought.
# Newer ones are made by our own lift, whose every step is tested.
OLDEST_OPSET, NEWEST_OPSET = 18, 20
_SCOPES = "pkg.torch.onnx.name_scopes"  # where torch.onnx notes the modules that a node comes from


def write(
    program: torch.export.ExportedProgram,
    output: Path,
    opset: int | None,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dims: DimensionNames,
    name: str,
) -> None:
    """Write `program` to `output`; large weights go beside it, to <output>.data.

    Raises CannotConvertError for operators without an ONNX equivalent, with their places in the user's source.
    """
    model = Model(_translate(program, opset, name))
    graph = model.graph
    if any(node.op_type in ("LSTM", "GRU", "RNN") for node in graph.all_nodes()):
        fold_constants(model)  # weights are given in ONNX's order of gates
        common.RemoveUnusedNodesPass()(model.ir)
    guard_masked_attention(model)
    _name_nodes(graph)
    _name_ports(graph, inputs, outputs)
    _name_dims(model, dims)
    strip_metadata(model)
    model.save(output)


def _translate(program: torch.export.ExportedProgram, opset: int | None, name: str) -> ir.Model:
    _drop_constants(program)
    wanted = NEWEST_OPSET if opset is None else min(max(opset, OLDEST_OPSET), NEWEST_OPSET)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=wanted,
                custom_translation_table={**translations(), **_nms()},
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise translation_error(error, name) from error
    assert made is not None, "torch.onnx.export gives the program where it has no file to write"
    model: ir.Model = made.model
    return model


def _nms() -> dict[Any, Any]:
    """Return torch.onnx's translation of torchvision's nms, which it leaves out if torchvision is not installed."""
    operator = getattr(torch.ops.torchvision, "nms", None)
    if operator is None:
        return {}
    from onnxscript.function_libs.torch_lib.ops.vision import torchvision_nms

    return {operator.default: torchvision_nms}


def _drop_constants(program: torch.export.ExportedProgram) -> None:
    """Replace numbers and texts among the outputs by None: torch.onnx fails on them."""
    constant = torch.export.graph_signature.ConstantArgument
    for spec in program.graph_signature.output_specs:
        if isinstance(spec.arg, constant):
            spec.arg = constant(name=spec.arg.name, value=None)
    last = program.graph.output_node()
    (given,) = last.args
    last.args = (tuple(each if isinstance(each, torch.fx.Node) else None for each in given),)


def _name_nodes(graph: ir.Graph) -> None:
    """Name nodes by their module: "encoder.layers.0.linear1/MatMul"."""
    nodes, wanted = list(graph.all_nodes()), []
    for node in nodes:
        scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
        module = scopes[-2] if len(scopes) > 1 else ""
        wanted.append(f"{module}/{node.op_type}" if module else node.op_type)
    for node, name in zip(nodes, unused_name(wanted, set()), strict=True):
        node.name = name


def _name_ports(graph: ir.Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Name inputs and outputs; an output that is an input, a weight or another output becomes a copy."""
    seen: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
    for number, value in enumerate(list(graph.outputs)):
        if value in seen:
            copy = ir.Node("", "Identity", [value], num_outputs=1, name=f"Identity/{outputs[number]}")
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[number] = copy.outputs[0]
        seen.add(graph.outputs[number])
    ports = [*zip(graph.inputs, inputs, strict=True), *zip(graph.outputs, outputs, strict=True)]
    own = {id(value) for value, _ in ports}
    others = [value for value in _values(graph) if id(value) not in own]
    wanted = [value.name or "value" for value in others]
    for value, _ in ports:
        value.name = None
    for value, new in zip(others, unused_name(wanted, {*inputs, *outputs}), strict=True):
        if value.name != new:
            _rename(graph, value, new)
    for value, new in ports:
        value.name = new


def _rename(graph: ir.Graph, value: ir.Value, name: str) -> None:
    old = value.name or ""
    if graph.initializers.get(old) is value:
        del graph.initializers[old]
        value.name = name
        graph.initializers[name] = value
    else:
        value.name = name


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.all_nodes():
        yield from node.outputs
    for subgraph in graph.subgraphs():
        yield from subgraph.inputs
        yield from subgraph.initializers.values()


def _name_dims(model: Model, dims: DimensionNames) -> None:
    for value in _values(model.graph):
        if value.shape is not None and not value.shape.is_static():
            value.shape = ir.Shape(
                [
                    size if isinstance(size, int) else size.value and dims.renamed(size.value)
                    for size in value.shape
                ]
            )


def strip_metadata(model: Model) -> None:
    """Drop an exporter's notes: stack traces with this machine's paths, its own node names."""
    holders: list[ir.Model | ir.Graph | ir.Node | ir.Value] = [model.ir, *model.graph.all_nodes()]
    for holder in (*holders, *model.ir.graphs(), *_values(model.graph)):
        holder.metadata_props.clear()
        holder.doc_string = None
