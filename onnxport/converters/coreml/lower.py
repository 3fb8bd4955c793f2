"""ONNX graph -> a MIL program, with a tap for each named value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as onnx

from onnxport.converters.app_metadata import ImageInput
from onnxport.converters.coreml import ops
from onnxport.converters.coreml.builder import Compute, MilBuilder, MilNode, NoMil
from onnxport.converters.coreml.library import Function, Program, targets
from onnxport.converters.coreml.names import INNER, PREDICTED, PROBABILITIES, Keys
from onnxport.converters.coreml.numbers.integer_widths import is_natural
from onnxport.converters.coreml.package.images import check_images
from onnxport.converters.coreml.package.sizes import Sizes, input_sizes
from onnxport.converters.coreml.ports import Ports
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.states import parse_states
from onnxport.converters.coreml.values import Value, empty
from onnxport.converters.driver import Driver, check_rank, import_lowerings
from onnxport.converters.lowering import NodeView, known_shape, qualified_op
from onnxport.converters.params import QUANTIZED, CoremlParams
from onnxport.core.arrays import Array
from onnxport.formats.manifest import Port, Tap
from onnxport.formats.model import Model
from onnxport.optimizers.float16.epsilons import is_delicate
from onnxport.optimizers.node_marks import EXACT

import_lowerings(ops)

# Operators whose results are elements of their first operand.
_MOVES = frozenset("Expand Flatten Gather Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())


@dataclass
class Lowered:
    """A MIL program and the places of the ONNX model's values in it.

    Attributes:
        taps: ONNX name -> variable, for values that have their own.
        sizes: input key -> the sizes that it takes.
        images: input key -> how it takes a picture.
        labels: number of labels of a classifier, else 0.
        states: name of a state's input -> name of the output with its next value.
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
    """Lower a prepared model.

    Args:
        islands: names of values whose nodes compute in float32 in a float16 program.

    Raises:
        CannotConvertError: nodes without an equivalent, all of them listed.
        UsageError: sizes or states that Core ML does not have so.
    """
    states = parse_states(model, params)
    check_images(model.inputs, params.image)
    builder = MilBuilder(targets[params.minimum_target], "fp16" if params.precision == "fp16" else "fp32")
    sizes, notes = input_sizes(model.inputs, params.shape, several_enumerated=builder.at_least("iOS18"))
    lowered = _Lowering(model, params, builder, frozenset(islands), states).run()
    keys = {port.name: port.key for port in lowered.inputs}
    return replace(
        lowered,
        sizes={keys[name]: each for name, each in sizes.items() if name in keys},
        images={keys[name]: each for name, each in params.image.items()},
        notes=(*notes, *builder.notes),
    )


class _Lowering(Driver[Value, MilBuilder]):
    target, unported = "Core ML", "a type or a shape"
    errors = (NoMil,)

    def __init__(
        self,
        model: Model,
        params: CoremlParams,
        builder: MilBuilder,
        islands: frozenset[str],
        states: Mapping[str, str],
    ) -> None:
        super().__init__(model.graph, REGISTRY)
        self.states = states
        self.params, self.mil, self.islands = params, builder, islands
        self.keys = Keys((PREDICTED, PROBABILITIES) if params.labels else ())
        builder.scope = self

    def run(self) -> Lowered:
        ports = Ports(self.graph, self.mil, self.keys, self.states, self.params.image)
        self.refusals += ports.refusals
        self.function = Function(ports.placeholders, opset_version=self.mil.target)
        with self.function:
            self.values |= ports.inputs(self.function)
            self.lower_nodes()
            self.check_refusals()
            results = [self.find(value) for value in self.graph.outputs]
            outputs, described = ports.outputs(results)
            self.refusals = ports.refusals
            self.check_refusals()
            self.function.set_outputs(outputs)
        program = Program()
        program.add_function("main", self.function)
        return Lowered(program, ports.described, described, self.taps, states=self.states)

    # ---- nodes

    @staticmethod
    def constant(array: Array) -> Value:
        return Value(array.shape, array.dtype, constant=array)

    def nested_values(self, visible: Mapping[onnx.Value, Value]) -> dict[onnx.Value, Value]:
        # A copy made in a block is visible in it only.
        return {v: replace(each, copies=dict(each.copies)) for v, each in self.values.items()} | dict(visible)

    def lower(self, graph: onnx.Graph, visible: Mapping[onnx.Value, Value]) -> list[Value | None]:
        compute = self.mil.compute
        try:
            return super().lower(graph, visible)
        finally:
            self.mil.compute = compute

    def lower_node(self, node: onnx.Node, operands: Sequence[Value | None]) -> None:
        self.mil.compute = self._compute(node)
        rows = high_rank.flatten_operands(self.mil, qualified_op(node), operands)
        view: MilNode = NodeView(node, rows or operands)
        REGISTRY.run(view, self.mil)
        for index, result in view.results.items():
            self._bind(view, index, high_rank.restore_shape(self.mil, result, operands) if rows else result)

    def is_bound(self, node: onnx.Node) -> bool:
        """See Driver: tensors without elements are known."""
        named = [value for value in node.outputs if value.name]
        if not named or any(v.dtype is None or v.shape is None or v.is_graph_output() for v in named):
            return False
        if any(0 not in known_shape(value) for value in named):
            return False
        for value in named:
            assert value.dtype is not None
            self.values[value] = empty(known_shape(value), np.dtype(value.dtype.numpy()))
        return True

    def _compute(self, node: onnx.Node) -> Compute:
        """Return the type in which a node computes its floats."""
        if EXACT in node.metadata_props or any(value.name in self.islands for value in node.outputs):
            return "fp32"
        if self.params.precision is not None and self.params.precision not in QUANTIZED:
            halves = self.params.precision in ("fp16", "mixed") and not is_delicate(node)
            return "fp16" if halves else "fp32"
        floats = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype is not None]
        halves = onnx.DataType.FLOAT16 in floats and onnx.DataType.FLOAT not in floats
        return "fp16" if halves else "fp32"

    def _bind(self, view: MilNode, index: int, result: Value) -> None:
        """Give a result its ONNX type and name, so that the artefact has a tap for it."""
        value = view.node.outputs[index]
        check_rank(view, index, result.rank)
        dims = known_shape(value) if value.shape is not None else result.shape
        shape = tuple(a if a is not None else b for a, b in zip(result.shape, dims, strict=True))
        dtype = result.dtype if value.dtype is None else np.dtype(value.dtype.numpy())
        if 0 in shape and (result.constant is None or value.is_graph_output()):
            view.unsupported("gives an empty tensor, and Core ML has no empty tensors")
        natural = result.is_natural or (view.op in _MOVES and is_natural(view.x))
        bound = replace(result, shape=shape, dtype=dtype, copies=dict(result.copies), is_natural=natural)
        self.values[value] = bound
        if not value.name or self.depth or value.is_graph_output() or not bound.copies:
            return  # an output is named when it is returned
        var = bound.var
        if var.op is None or var.op.op_type == "const" or INNER not in var.name:
            return  # an input, a constant, or a variable named after another value
        key = self.keys.key(value.name)
        var.name = key
        if len(var.op.outputs) == 1:
            var.op.name = key
        self.taps[value.name] = Tap(key, ())

    def stand_in(self, value: onnx.Value) -> Value | None:
        return Ports.stand_in(value, self.mil, f"stand_in_{len(self.refusals)}_{value.index()}")
