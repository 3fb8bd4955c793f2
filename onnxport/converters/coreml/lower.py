"""ONNX graph -> a MIL program, with every value's place noted by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as onnx

from onnxport.converters.app_metadata import ImageInput
from onnxport.converters.coreml import ops  # noqa: F401 - fills the registry
from onnxport.converters.coreml.builder import Compute, MilBuilder, NoMil
from onnxport.converters.coreml.library import Function, Program, Var, targets
from onnxport.converters.coreml.names import INNER, PREDICTED, PROBABILITIES, Keys
from onnxport.converters.coreml.numbers.integer_widths import is_natural
from onnxport.converters.coreml.package.images import check_images
from onnxport.converters.coreml.package.sizes import Sizes, input_sizes
from onnxport.converters.coreml.ports import Ports
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.states import checked_states
from onnxport.converters.coreml.values import Value, nothing
from onnxport.converters.lowering import NodeView, Reads, UnsupportedOp, node_name, qualified_op, refused
from onnxport.converters.params import QUANTIZED, CoremlParams
from onnxport.core.errors import Refusal
from onnxport.formats.manifest import Port, Tap
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.float16.epsilons import is_delicate
from onnxport.optimizers.rewrites.registry import EXACT

_WORTH_FREEING = 2**20  # bytes
# Operators whose results are elements of their first operand.
_MOVES = frozenset("Expand Flatten Gather Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())


@dataclass
class Lowered:
    """A MIL program and where the ONNX model's values are in it.

    Attributes:
        taps: ONNX name of each value that has a variable of its own, to the name of that.
        sizes: key of each input to the sizes that it takes.
        images: key of each input that is given as a picture.
        labels: how many labels its scores have; 0 for no classifier.
        states: name of each input that is a state to the name of the output that is its next value.
    """

    program: Program
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    taps: dict[str, Tap] = field(default_factory=dict)
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, ImageInput] = field(default_factory=dict)
    labels: int = 0
    notes: tuple[str, ...] = ()


def lower_model(model: Model, params: CoremlParams, islands: Collection[str] = ()) -> Lowered:
    """Lowers a prepared model as `params` ask.

    Args:
        islands: names of values whose nodes compute in float32 in a float16 program.

    Raises:
        CannotConvertError: nodes without an equivalent, all of them listed.
        UsageError: sizes or states that Core ML does not have so.
    """
    states = checked_states(model, params)
    check_images(model.inputs, params.image)
    builder = MilBuilder(targets[params.minimum_target], "fp16" if params.precision == "fp16" else "fp32")
    sizes, notes = input_sizes(model.inputs, params.shape, several_enumerated=builder.at_least("iOS18"))
    lowered = _Lowering(model, params, builder, frozenset(islands), states).run()
    keys = {port.name: port.key for port in lowered.inputs}
    return replace(
        lowered,
        sizes={keys[name]: each for name, each in sizes.items() if name in keys},
        images={keys[name]: each for name, each in params.image.items()},
        notes=notes,
    )


class _Lowering:
    """One run over the graph; `values` maps each ONNX value to what it became."""

    def __init__(
        self,
        model: Model,
        params: CoremlParams,
        builder: MilBuilder,
        islands: frozenset[str],
        states: Mapping[str, str],
    ) -> None:
        self.states = states
        self.graph, self.params, self.mil, self.islands = model.graph, params, builder, islands
        self.values: dict[onnx.Value, Value] = {}
        self.refusals: list[Refusal] = []
        self.taps: dict[str, Tap] = {}
        self.reads = Reads(self.values)
        self.keys = Keys((PREDICTED, PROBABILITIES) if params.labels else ())
        self.depth = 0
        builder.scope = self

    def run(self) -> Lowered:
        ports = Ports(self.graph, self.mil, self.keys, self.states, self.params.image)
        self.refusals += ports.refusals
        self.function = Function(ports.placeholders, opset_version=self.mil.target)
        with self.function:
            self.values |= ports.inputs(self.function)
            for node in self.graph:
                self._lower_node(node)
                self.reads.done(node)
            if self.refusals:
                raise refused(self.graph, self.refusals, "Core ML", carried="a type or a shape")
            results = [self._operand(value) for value in self.graph.outputs]
            outputs, described = ports.outputs(results)
            if ports.refusals:
                raise refused(self.graph, ports.refusals, "Core ML", carried="a type or a shape")
            self.function.set_outputs(outputs)
        program = Program()
        program.add_function("main", self.function)
        return Lowered(program, ports.described, described, self.taps, states=self.states)

    # ---- nodes

    def find(self, value: onnx.Value) -> Value | None:
        return self._operand(value)

    def lower(self, graph: onnx.Graph, inputs: Mapping[onnx.Value, Value]) -> list[Value | None]:
        """See builder.Scope."""
        outer, compute = self.values, self.mil.compute
        # Copies made in a block are visible in it only: each block starts with what was there before it.
        self.values = {value: _frozen(each) for value, each in outer.items()} | dict(inputs)
        self.depth += 1
        try:
            for node in graph:
                self._lower_node(node)
            return [self._operand(value) for value in graph.outputs]
        finally:
            self.values, self.mil.compute = outer, compute
            self.depth -= 1

    def _lower_node(self, node: onnx.Node) -> None:
        if self._is_nothing(node):
            return
        operands = [None if value is None else self._operand(value) for value in node.inputs]
        if qualified_op(node) in REGISTRY.ops and any(
            o is None and v is not None for o, v in zip(operands, node.inputs, strict=True)
        ):
            return  # downstream of a refused node whose result has no known rank
        self.mil.compute = self._compute(node)
        rows = high_rank.rows_of(self.mil, qualified_op(node), operands)
        view: NodeView[Value] = NodeView(node, rows or operands)
        try:
            REGISTRY.run(view, self.mil)
            for index, result in view.results.items():
                self._bind(view, index, high_rank.raised(self.mil, result, operands) if rows else result)
        except UnsupportedOp as error:
            self.refusals.append(error.refusal)
            self._stand_in(node)
        except NoMil as error:
            self.refusals.append(Refusal(qualified_op(node), node_name(node), str(error)))
            self._stand_in(node)

    def _is_nothing(self, node: onnx.Node) -> bool:
        """Notes the results of a node that gives tensors without elements only: what they hold is known."""
        shapes = [_shape(value) if value.shape is not None else () for value in node.outputs if value.name]
        if not shapes or any(0 not in shape for shape in shapes):
            return False
        if any(value.is_graph_output() or value.dtype is None for value in node.outputs if value.name):
            return False
        for value in node.outputs:
            if value.name and value.dtype is not None:
                self.values[value] = nothing(_shape(value), np.dtype(value.dtype.numpy()))
        return True

    def _compute(self, node: onnx.Node) -> Compute:
        """The type in which a node computes its floats."""
        if EXACT in node.metadata_props or any(value.name in self.islands for value in node.outputs):
            return "fp32"
        if self.params.precision is not None and self.params.precision not in QUANTIZED:
            halves = self.params.precision in ("fp16", "mixed") and not is_delicate(node)
            return "fp16" if halves else "fp32"
        floats = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype is not None]
        halves = onnx.DataType.FLOAT16 in floats and onnx.DataType.FLOAT not in floats
        return "fp16" if halves else "fp32"

    def _operand(self, value: onnx.Value) -> Value | None:
        if value not in self.values and value.const_value is not None:
            array = value.const_value.numpy()
            self.values[value] = Value(array.shape, array.dtype, constant=array)
        return self.values.get(value)

    def _bind(self, view: NodeView[Value], index: int, result: Value) -> None:
        """Gives a result its ONNX type and name, so that it can be found in the artefact."""
        value = view.node.outputs[index]
        known = value.shape
        if known is not None and len(known) != result.rank:
            view.unsupported(f"gives {result.rank} dimensions where ONNX says {len(known)}")
        dims = _shape(value) if known is not None else result.shape
        shape = tuple(a if a is not None else b for a, b in zip(result.shape, dims, strict=True))
        dtype = result.dtype if value.dtype is None else np.dtype(value.dtype.numpy())
        if 0 in shape and (result.constant is None or value.is_graph_output()):
            view.unsupported("gives a tensor without elements, which Core ML does not hold")
        bound = Value(
            shape,
            dtype,
            result.constant,
            dict(result.copies),
            result.is_natural or (view.op in _MOVES and is_natural(view.x)),
            result.quantized,
            result.row,
        )
        self.values[value] = bound
        var = next(iter(bound.copies.values()), None)
        if not value.name or self.depth or value.is_graph_output() or var is None or not _can_be_named(var):
            return  # an output is named when it is returned
        key = self.keys.key(value.name)
        var.name = key
        if len(var.op.outputs) == 1:
            var.op.name = key
        self.taps[value.name] = Tap(key, ())

    def _stand_in(self, node: onnx.Node) -> None:
        """Gives a refused node results that exist, so that the nodes after it are looked at as well."""
        for value in node.outputs:
            if value.shape is None or value.dtype is None:
                continue
            made = Ports.stand_in(value, self.mil, f"stand_in_{len(self.refusals)}_{value.index()}")
            if made is not None:
                self.values[value] = made


def _frozen(value: Value) -> Value:
    return Value(
        value.shape,
        value.dtype,
        value.constant,
        dict(value.copies),
        value.is_natural,
        value.quantized,
        value.row,
    )


def _can_be_named(var: Var) -> bool:
    """Whether the variable is a node's own: not an input, not a constant, not named after another value."""
    return var.op is not None and var.op.op_type != "const" and INNER in var.name


def _shape(value: onnx.Value) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) else None for dim in dims_of(value))
