"""`extract`: the part of a model between values of its main graph."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnx.utils
import onnx_ir as ir
from onnx_ir import serde
from onnx_ir.passes import common

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.optimizers.dataflow import Dataflow
from onnxport.optimizers.shape_inference import drop_declared, infer

End = Literal["inputs", "outputs"]
_FEW = 4  # names in a sentence


@dataclass(frozen=True)
class Cut:
    """The names of the values at which a part begins and ends, in the order of its inputs and outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def find_cut(model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> Cut:
    """Return the cut that the user asks for.

    Args:
        inputs: names of values, also several as "a,b"; empty for the model's inputs that the part needs.
        outputs: likewise; empty for the model's outputs.

    Raises:
        UsageError: an unknown name, a constant, a value without use for the part, or values that leave the part
            connected with the rest; the error names the further values that it needs.
    """
    flow = Dataflow(model)
    ends = [flow.values[name] for name in _names(flow, outputs, "outputs")] or list(model.graph.outputs)
    begins = [flow.values[name] for name in _names(flow, inputs, "inputs")] or list(flow.inputs)
    for value in ends:
        if inputs and value in begins:
            raise UsageError(f"{value.name!r} is an input and an output of the part", fix="name it once")
        if value not in flow.varying:
            raise UsageError(
                f"the output {value.name!r} of the part is a constant",
                why="it depends on no input of the model",
                fix="leave it out",
            )
    _check_separated(flow, begins, ends)
    nodes = flow.ancestors(ends, begins)
    needed = {value for node in nodes for value in flow.reads(node)} | set(ends)
    for value in begins if inputs else ():
        if value not in needed:
            raise UsageError(f"no output of the part depends on its input {value.name!r}", fix="leave it out")
    return Cut(
        tuple(value.name or "" for value in begins if value in needed),
        tuple(value.name or "" for value in ends),
    )


def extract(model: Model, cut: Cut) -> Model:
    """Return the part of `model` at `cut`, with types, and with the initializers and functions that it needs.

    Weights are shared with `model`. Opsets and metadata are those of the model.

    Raises:
        UsageError: a value at the cut is no tensor, or its type or rank is unknown.
    """
    types = _infer_types(model, (*cut.inputs, *cut.outputs))
    part = _extract(model, cut)
    for value in (*part.graph.inputs, *part.graph.outputs):
        value.type, value.shape = types[value.name or ""]
    return part


def front_of(model: Model, values: Sequence[str]) -> Model:
    """Return the part of `model` from all of its inputs to `values`."""
    return _extract(model, Cut(tuple(value.name or "" for value in Dataflow(model).inputs), tuple(values)))


def _extract(model: Model, cut: Cut) -> Model:
    """Return the part with the types that the model declares."""
    part = model.clone()
    part.ir.graph = ir.convenience.extract(part.graph, cut.inputs, cut.outputs)
    common.RemoveUnusedFunctionsPass()(part.ir)  # type: ignore[no-untyped-call]
    part.labels = {name: labels for name, labels in model.labels.items() if name in cut.outputs}
    return part


def _names(flow: Dataflow, given: Sequence[str], end: End) -> list[str]:
    """Return the names of known values that varying data reaches, each once."""
    names = list(
        dict.fromkeys(
            name for text in given for name in ([text] if text in flow.values else _split(text)) if name
        )
    )
    for name in names:
        value = flow.values.get(name)
        if value is None:
            raise _unknown(flow, name, end)
        if end == "inputs" and value not in flow.varying:
            what = f"{name!r} is a constant, which stays in the part"
            raise UsageError(what, fix="leave it out of --inputs")
    return names


def _some(flow: Dataflow, end: End) -> str:
    """Name values next to the ends of the model, where most cuts are."""
    ends = {value.name for value in (*flow.graph.inputs, *flow.graph.outputs)}
    names = [name for name, value in flow.values.items() if value in flow.varying and name not in ends]
    some = names[:_FEW] if end == "inputs" else names[: -_FEW - 1 : -1]
    which = "first" if end == "inputs" else "last"
    return (
        f"its {which} values are {', '.join(map(repr, some))}" if some else "it has inputs and outputs only"
    )


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _unknown(flow: Dataflow, name: str, end: End) -> UsageError:
    """Return the error for a name that no value of the main graph has."""
    nodes = {node.name: node for node in flow.graph if node.name}
    if name in nodes:
        results = ", ".join(repr(value.name) for value in nodes[name].outputs if value.name)
        return UsageError(f"--{end}: {name!r} is a node, not a value", fix=f"its results are {results}")
    for node in flow.graph.all_nodes():
        if node.graph is not flow.graph and any(value.name == name for value in node.outputs):
            return UsageError(
                f"--{end}: {name!r} lies inside a branch or a loop body",
                why="only the main graph can be cut",
                fix="name values in front of or behind the If, Loop or Scan",
            )
    close = difflib.get_close_matches(name, [*flow.values, *nodes], n=1)
    if close and close[0] in nodes:
        close = [nodes[close[0]].outputs[0].name or ""]
    fix = f"did you mean {close[0]!r}?" if close else _some(flow, end)
    return UsageError(f"--{end}: the model has no value {name!r}", fix=fix)


def _check_separated(flow: Dataflow, begins: Sequence[ir.Value], ends: Sequence[ir.Value]) -> None:
    """Raise UsageError, with the further values that are needed, where an output depends on more than `begins`."""
    upstream = flow.ancestors(begins)
    further = dict[str, str]()  # a value that is needed, and the output that needs it
    for end in ends:
        for value in sorted(_leaks(flow, end, begins, upstream), key=lambda value: value.name or ""):
            further.setdefault(value.name or "", end.name or "")
    if not further:
        return
    name, end_name = next(iter(further.items()))
    more = f" and {len(further) - 1} more" if len(further) > 1 else ""
    complete = ",".join([*(value.name or "" for value in begins), *further])
    raise UsageError(
        "these inputs do not separate the part from the rest of the model",
        why=f"the output {end_name!r} also depends on {name!r}{more}",
        fix=f"give {quote_option('--inputs', complete)}",
    )


def _leaks(
    flow: Dataflow, end: ir.Value, begins: Collection[ir.Value], upstream: Collection[ir.Node]
) -> set[ir.Value]:
    """Return the values beside `begins` on which `end` depends: what nodes that `begins` need hand to others."""
    nodes = flow.ancestors([end], begins)
    read = {value for node in nodes for value in flow.reads(node)} | {end}
    entries = read & set(flow.inputs) - set(begins)
    if not entries or end.producer() in upstream:
        return entries
    read = {value for node in nodes - set(upstream) for value in flow.reads(node)} | {end}
    return {
        value
        for value in read & flow.varying - set(begins)
        if value.producer() is None or value.producer() in upstream
    }


def cut_again(path: Path, part: Model) -> onnx.ModelProto:
    """Return the part of the model at `path` between the ends of `part`, cut by onnx.utils.Extractor."""
    extractor = onnx.utils.Extractor(onnx.load(path))
    ends = [
        [serde.serialize_value(value) for value in side] for side in (part.graph.inputs, part.graph.outputs)
    ]
    extractor.value_infos.update((info.name, info) for side in ends for info in side)
    return extractor.extract_model(*([info.name for info in side] for side in ends))


_Typed = tuple[ir.TypeProtocol | None, ir.Shape | None]


def _infer_types(model: Model, names: Collection[str]) -> dict[str, _Typed]:
    """Return the type and shape of values: as inputs and outputs declare them, else inferred anew."""
    declared = ir.convenience.create_value_mapping(model.graph, include_subgraphs=False)
    work = model.clone()
    drop_declared(work)
    infer(work)
    inferred = ir.convenience.create_value_mapping(work.graph, include_subgraphs=False)
    ports = {value.name for value in (*model.graph.inputs, *model.graph.outputs)}
    types: dict[str, _Typed] = {}
    for name in names:
        first, second = declared[name], inferred[name]
        if name not in ports or first.type is None or first.shape is None:
            first, second = second, first
        types[name] = first.type or second.type, second.shape if first.shape is None else first.shape
    unknown = [name for name, (type_, shape) in types.items() if type_ is None or shape is None]
    if unknown:
        types |= _ask_runtime(model, unknown)
    for name, (type_, shape) in types.items():
        if not isinstance(type_, ir.TensorType):
            what = f"{name!r} is no tensor" if type_ is not None else f"the type of {name!r} is unknown"
            raise UsageError(what, fix="cut the model at another value")
        if shape is None:
            what = f"the number of dimensions of {name!r} is known only at run time"
            raise UsageError(what, fix="cut the model at another value")
    return types


def _ask_runtime(model: Model, names: Sequence[str]) -> dict[str, _Typed]:
    """Return what ONNX Runtime infers of values behind operators that ONNX's inference lacks."""
    from onnxport.runtimes.ort.runtime import OrtRuntime

    with OrtRuntime.of_model(front_of(model, names)) as runtime:
        specs = runtime.outputs
    return {
        spec.name: (_type(spec), ir.Shape(spec.shape) if spec.shape else None)
        for spec in specs
        if "(" not in spec.dtype
    }


def _type(spec: TensorSpec) -> ir.TensorType:
    is_text = spec.dtype == "string"
    return ir.TensorType(ir.DataType.STRING if is_text else ir.DataType.from_numpy(np.dtype(spec.dtype)))
