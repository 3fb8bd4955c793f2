"""The content of an `.onnx` file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.formats.artifact import Artifact, Dim
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.onnx import from_ir, functions_from_ir
from onnxport.formats.manifest import KEY
from onnxport.formats.model import Model, dims_of, dtype_name
from onnxport.inspection.report import count, ports
from onnxport.optimizers.shape_inference import drop_declared, infer
from onnxport.optimizers.unused_inputs import prune_inputs

# Older files leave ranks, axes and broadcasting to conventions that converters treat differently.
_OLD_OPSET = 11
_REPEATED = 1024  # bytes; smaller constants may repeat
_START = 4096  # bytes at the start that are compared before the rest
_CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")


def inspect(artifact: Artifact) -> dict[str, Any]:
    model = Model.load(artifact.path)
    graphs = [from_ir(model.ir), *functions_from_ir(model.ir)]
    nodes = [node for graph in graphs for node in graph.all_nodes()]
    inputs = ports(model.inputs)
    return {
        "artifact": model.artifact,
        "producer": f"{model.ir.producer_name or ''} {model.ir.producer_version or ''}".strip(),
        "ir_version": model.ir.ir_version,
        "opsets": {
            domain or "ai.onnx": version for domain, version in sorted(model.ir.opset_imports.items())
        },
        "inputs": inputs,
        "outputs": ports(model.outputs),
        "operators": count(node.qualified for node in nodes),
        "parameters": _count_parameters(graphs),
        "unusual": tuple(_unusual(model, nodes)),
        "manifest": model.ir.metadata_props.get(KEY),
    }


def _count_parameters(graphs: Iterable[OperatorGraph]) -> int:
    """Return the number of elements of all initializers, and of what exporters keep in Constant nodes."""
    inner = [each for graph in graphs for each in graph.graphs()]
    attributes = [value for graph in inner for node in graph.nodes for value in node.attributes.values()]
    stored = [tensor for graph in inner for tensor in graph.constants]
    return sum(each.size for each in (*stored, *attributes) if isinstance(each, Tensor))


def _unusual(model: Model, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a sentence for each property of `model` that often causes trouble in tools."""
    operators = Counter(node.op for node in nodes)
    yield from model.mended
    if model.opset < _OLD_OPSET:
        yield f"opset {model.opset} is old: broadcasting, Pad, Slice and Resize had other rules before {_OLD_OPSET}"
    yield from _foreign(model, nodes)
    if functions := len(model.ir.functions):
        yield f"{functions} model-local functions; conversion inlines them"
    if control := [op for op in _CONTROL_FLOW if operators[op]]:
        yield f"control flow: {', '.join(f'{operators[op]} {op}' for op in control)}"
    if quantized := operators["QuantizeLinear"] + operators["DequantizeLinear"]:
        yield f"quantized: {quantized} QuantizeLinear and DequantizeLinear nodes carry its scales"
    values = [v for graph in model.ir.graphs() for v in (*graph.inputs, *graph.initializers.values())]
    values += [v for graph in model.ir.graphs() for node in graph for v in node.outputs]
    dtypes = Counter(dtype_name(value.dtype) for value in values if value.dtype is not None)
    for dtype, why in (("float64", "most phones compute in float32"), ("string", "few targets have strings")):
        if dtypes[dtype]:
            yield f"{dtypes[dtype]} values are {dtype}: {why}"
    if model.external_files:
        yield f"weights are in {', '.join(file.name for file in model.external_files)}, which must be copied with it"
    if fed := [value.name for value in model.graph.inputs if value.name in model.graph.initializers]:
        yield f"{len(fed)} weights are inputs too, as in files of IR version 3; some tools expect values for them"
    yield from _find_waste(model)
    yield from _stale(model)


def _foreign(model: Model, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield a sentence for each domain with operators that neither ONNX nor the file defines."""
    own = {(domain, name) for domain, name, _ in model.ir.functions}
    domains: dict[str, set[str]] = {}
    for node in nodes:
        if node.domain not in ("", "ai.onnx.ml") and (node.domain, node.op) not in own:
            domains.setdefault(node.domain, set()).add(node.op)
    for domain, operators in sorted(domains.items()):
        yield f"operators of the domain {domain}: {', '.join(sorted(operators))}"


def _stale(model: Model) -> Iterator[str]:
    """Yield a sentence if inference contradicts shapes that the file declares."""
    fresh = model.clone()
    drop_declared(fresh)
    infer(fresh)
    declared, inferred = (
        {v.name: dims_of(v) for node in each.graph for v in node.outputs if v.name and v.shape is not None}
        for each in (model, fresh)
    )
    both = [name for name in declared if name in inferred]
    if wrong := [name for name in both if _contradict(declared[name], inferred[name])]:
        yield f"{len(wrong)} declared shapes contradict the graph, {wrong[0]!r} is the first"


def _contradict(declared: tuple[Dim, ...], inferred: tuple[Dim, ...]) -> bool:
    """Return whether ranks or sizes differ, or a fixed size stands for a dimension that the graph leaves open."""
    if len(declared) != len(inferred):
        return True
    return any(
        isinstance(size, int) and size != true and true is not None
        for size, true in zip(declared, inferred, strict=True)
    )


def _find_waste(model: Model) -> Iterator[str]:
    """Yield a sentence for each kind of thing that the model does not need and `onnxport optimize` removes."""
    rest = model.clone()
    if unread := prune_inputs(rest):
        inputs = f"the input{'s' if len(unread) > 1 else ''} {', '.join(map(repr, unread))}"
        yield f"no output depends on {inputs} (optimize --prune-unused)"
    if idle := sum(1 for _ in model.graph.all_nodes()) - sum(1 for _ in rest.graph.all_nodes()):
        yield f"nodes that no output needs: {idle}"
    twins, size = _find_duplicates(model)
    if twins:
        yield f"duplicate weights: {twins}, {size:,} bytes"


def _find_duplicates(model: Model) -> tuple[int, int]:
    """Return how many initializers equal an earlier one, and their bytes."""
    alike: dict[object, list[np.ndarray[Any, Any]]] = defaultdict(list)
    count = size = 0
    for graph in model.ir.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes < _REPEATED:
                continue
            data = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
            group = alike[tensor.dtype, tuple(tensor.shape.numpy()), data[:_START].tobytes()]
            if any(np.array_equal(data, other) for other in group):
                count, size = count + 1, size + tensor.nbytes
            else:
                group.append(data)
    return count, size
