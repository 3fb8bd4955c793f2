"""The content of an `.onnx` file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from onnxport.formats.artifact import Artifact, Dim
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.onnx import from_ir, functions_from_ir
from onnxport.formats.manifest import KEY
from onnxport.formats.model import Model, dims_of, dtype_name
from onnxport.inspection.report import Inspection, count, list_dynamic, own_manifest, ports
from onnxport.inspection.waste import find_waste
from onnxport.optimizers.shape_inference import drop_declared, infer

# Older files leave ranks, axes and broadcasting to conventions that converters treat differently.
_OLD_OPSET = 11
_CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")


def inspect(artifact: Artifact) -> Inspection:
    model = Model.load(artifact.path)
    graphs = [from_ir(model.ir), *functions_from_ir(model.ir)]
    nodes = [node for graph in graphs for node in graph.all_nodes()]
    inputs = ports(model.inputs)
    return Inspection(
        path=str(artifact.path),
        format="onnx",
        size=model.artifact.size,
        files=model.artifact.names,
        producer=f"{model.ir.producer_name or ''} {model.ir.producer_version or ''}".strip(),
        ir_version=model.ir.ir_version,
        opsets={domain or "ai.onnx": version for domain, version in sorted(model.ir.opset_imports.items())},
        inputs=inputs,
        outputs=ports(model.outputs),
        operators=count(node.qualified for node in nodes),
        parameters=_count_parameters(graphs),
        dynamic=list_dynamic(inputs),
        unusual=tuple(_unusual(model, nodes)),
        manifest=own_manifest(model.ir.metadata_props.get(KEY)),
    )


def _count_parameters(graphs: Iterable[OperatorGraph]) -> int:
    """Return the number of elements of all initializers, and of what exporters keep in Constant nodes."""
    inner = [each for graph in graphs for each in graph.graphs()]
    attributes = [value for graph in inner for node in graph.nodes for value in node.attributes.values()]
    stored = [tensor for graph in inner for tensor in graph.constants]
    return sum(each.size for each in (*stored, *attributes) if isinstance(each, Tensor))


def _unusual(model: Model, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a sentence for each property of `model` that often causes trouble in tools."""
    operators = Counter(node.op for node in nodes)
    if model.opset < _OLD_OPSET:
        yield f"opset {model.opset} is old: broadcasting, Pad, Slice and Resize had other rules before {_OLD_OPSET}"
    yield from _foreign(model, nodes)
    if functions := len(model.ir.functions):
        yield f"{functions} model-local functions; conversion inlines them"
    if control := [op for op in _CONTROL_FLOW if operators[op]]:
        yield f"control flow: {', '.join(f'{operators[op]} {op}' for op in control)}"
    if quantized := operators["QuantizeLinear"] + operators["DequantizeLinear"]:
        yield f"quantized: {quantized} QuantizeLinear and DequantizeLinear nodes carry its scales"
    dtypes = Counter(_dtypes(model))
    for dtype, why in (
        ("float64", "most phones compute in float32"),
        ("string", "few targets have strings"),
    ):
        if dtypes[dtype]:
            yield f"{dtypes[dtype]} values are {dtype}: {why}"
    if model.external_files:
        yield f"weights are in {', '.join(file.name for file in model.external_files)}, which must be copied with it"
    if fed := [value.name for value in model.graph.inputs if value.name in model.graph.initializers]:
        yield f"{len(fed)} weights are inputs too, as in files of IR version 3; some tools expect values for them"
    yield from find_waste(model)
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


def _dtypes(model: Model) -> Iterator[str]:
    for graph in model.ir.graphs():
        for value in (
            *graph.inputs,
            *graph.initializers.values(),
            *(v for node in graph for v in node.outputs),
        ):
            if value.dtype is not None:
                yield dtype_name(value.dtype)


def _stale(model: Model) -> Iterator[str]:
    """Yield a sentence if inference contradicts shapes that the file declares."""
    declared = _computed(model)
    fresh = model.clone()
    drop_declared(fresh)
    infer(fresh)
    inferred = _computed(fresh)
    wrong = [
        name
        for name, value in declared.items()
        if value.shape is not None
        and name in inferred
        and inferred[name].shape is not None
        and _contradict(dims_of(value), dims_of(inferred[name]))
    ]
    if wrong:
        yield f"{len(wrong)} declared shapes contradict the graph, {wrong[0]!r} is the first"


def _computed(model: Model) -> dict[str, ir.Value]:
    return {value.name: value for node in model.graph for value in node.outputs if value.name}


def _contradict(declared: tuple[Dim, ...], inferred: tuple[Dim, ...]) -> bool:
    """Return whether ranks or sizes differ, or a fixed size stands for a dimension that the graph leaves open."""
    if len(declared) != len(inferred):
        return True
    return any(
        isinstance(size, int) and size != true and true is not None
        for size, true in zip(declared, inferred, strict=True)
    )
