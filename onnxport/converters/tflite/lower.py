"""ONNX graph -> a verified MLIR module of the `tfl` dialect, with every value's place noted by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as onnx
from litert_converter import converter_api_ext
from litert_converter.mlir import ir
from litert_converter.mlir.dialects import func

from onnxport.converters.lowering import NodeView, Reads, UnsupportedOp, node_name, qualified_op, refused
from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite import ops  # noqa: F401 - fills the registry
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.custom_operators import REFUSAL, is_custom, lower_custom
from onnxport.converters.tflite.kernels import NoKernel
from onnxport.converters.tflite.layout import Permutation, Shape, channels_last, identity, permuted
from onnxport.converters.tflite.ops.casts import HANDS_ON
from onnxport.converters.tflite.quantized.integer_ports import IntegerPorts
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.values import Value
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.formats.manifest import Port, Tap
from onnxport.formats.model import Model, dims_of, dtype_name
from onnxport.formats.tflite.tensor_names import INNER, Keys

SIGNATURE = "serving_default"

# Ops through which an input reaches the first op that wants channels last, without caring itself.
_LAYOUT_AGNOSTIC = frozenset(
    (
        "Add BatchNormalization Cast Clip DequantizeLinear Div Dropout Identity LeakyRelu Mul Neg Pad PRelu "
        "QuantizeLinear Relu Sigmoid Sub Tanh"
    ).split()
)
_WANTS_CHANNELS_LAST = frozenset(
    "Conv ConvTranspose MaxPool AveragePool Resize LRN DepthToSpace SpaceToDepth".split()
)

# Ops that make sizes of sizes: their results fit int32 where all their operands do, as TFLite's sizes must.
_KEEPS_SIZES = frozenset(
    (
        "Add Cast Concat Div Expand Gather Identity Max Min Mod Mul Reshape Slice Split Squeeze Sub Unsqueeze Where"
    ).split()
)

# Ops whose results are no negative integers where these operands are none; an index that is none needs no wrapping.
_KEEPS_NATURAL: dict[str, slice] = {
    **dict.fromkeys("Add Cast Concat Identity Max Min Mul".split(), slice(None)),
    **dict.fromkeys("Gather Reshape Slice Squeeze Transpose Unsqueeze".split(), slice(1)),
    "Range": slice(0, 3, 2),
    "Where": slice(1, 3),
}
_GIVES_NATURAL = frozenset("ArgMax ArgMin NonZero Shape Size".split())

# Element types that a TFLite tensor and its kernels carry across the boundary.
_PORT_DTYPES = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 bfloat16 float16 float32 float64".split()
)

_LARGEST = 2**31 - 1
_TOO_LARGE = f"has a size or an index above {_LARGEST}, the largest that TFLite holds"

_FLOAT64 = "float64 is computed in float32, in TFLite the widest type of arithmetic"


@dataclass
class Lowered:
    """The module and what the compiled file must say of itself."""

    builder: TflBuilder
    module: ir.Module
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    taps: dict[str, Tap] = field(default_factory=dict)
    types: dict[str, ir.Type] = field(default_factory=dict)  # of the taps' tensors, by key
    sequence: dict[str, int] = field(default_factory=dict)  # every name's place in the order of computation
    notes: tuple[str, ...] = ()  # what the user's report should say
    custom: bool = False  # whether it holds custom operators


def lower_model(model: Model, params: TfliteParams) -> Lowered:
    """Lowers a prepared model as `params` ask.

    Raises:
        CannotConvertError: nodes without an equivalent, all of them listed.
    """
    builder = TflBuilder()
    with builder.context, ir.Location.unknown():
        return _Lowering(model, params, builder).run()


class _Lowering:
    """One run over the graph; `values` maps each ONNX value to what it became."""

    def __init__(self, model: Model, params: TfliteParams, builder: TflBuilder) -> None:
        self.custom_ops = params.allow_custom_ops
        self.graph, self.layout, self.tfl = model.graph, params.layout, builder
        self.ports = IntegerPorts(builder, params.io)
        self.values: dict[onnx.Value, Value] = {}
        self.refusals: list[Refusal] = []
        self.taps: dict[str, Tap] = {}
        self.tensor_keys: dict[ir.Value, str] = {}
        self.sequence: dict[str, int] = {}
        self.reads = Reads(self.values)
        self.keys = Keys()
        self.inputs = [v for v in self.graph.inputs if v.name not in self.graph.initializers]
        self.is_nested = False
        builder.scope = self

    def run(self) -> Lowered:
        module = ir.Module.create()
        self.tfl.functions = module.body
        self._refuse_ports()
        inputs = [value for value in self.inputs if _fits_a_port(value)]
        orders = [self._input_order(value) for value in inputs]
        keys = self.keys.keys(value.name or "" for value in inputs)
        types = [
            self.ports.input_type(value, permuted(_shape(value), order), _dtype(value))
            for value, order in zip(inputs, orders, strict=True)
        ]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ir.FunctionType.get(types, []))
            block = function.add_entry_block([ir.Location.name(key) for key in keys])
        with self.tfl.emitting_into(block):
            for value, order, argument in zip(inputs, orders, block.arguments, strict=True):
                self.values[value] = Value(
                    _shape(value), _dtype(value), copies={order: self.ports.input(value, argument)}
                )
            for node in self.graph:
                self._lower_node(node)
                self.reads.done(node)
            if not self.refusals:
                results = [self._result(value) for value in self.graph.outputs]
            self.refusals += self.ports.refusals
            if self.refusals:
                raise refused(self.graph, self.refusals, "TFLite", carried="a type")
            ir.Operation.create("func.return", operands=[tensor for tensor, _, _ in results])
        function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(types, [tensor.type for tensor, _, _ in results])
        )
        _verify(module)
        out_keys = Keys().keys(value.name or "" for value in self.graph.outputs)
        converter_api_ext.set_signature(module.operation, SIGNATURE, keys, out_keys)
        return Lowered(
            self.tfl,
            module,
            tuple(
                self._port(value, key, order, _shape(value))
                for value, key, order in zip(inputs, keys, orders, strict=True)
            ),
            tuple(
                self._port(value, key, order, shape, is_output=True)
                for value, key, (_, order, shape) in zip(self.graph.outputs, out_keys, results, strict=True)
            ),
            self.taps,
            {key: tensor.type for tensor, key in self.tensor_keys.items()},
            self.sequence,
            (_FLOAT64,) if any(map(_computes_float64, self.graph.all_nodes())) else (),
            custom=self.custom_ops and any(map(is_custom, self.graph.all_nodes())),
        )

    # ---- nodes

    def find(self, value: onnx.Value) -> Value | None:
        return self._operand(value)

    def lower(self, graph: onnx.Graph, visible: Mapping[onnx.Value, Value]) -> list[Value | None]:
        outer = self.values, self.is_nested
        self.values, self.is_nested = dict(visible), True
        try:
            for node in graph:
                self._lower_node(node)
            return [self._operand(value) for value in graph.outputs]
        finally:
            self.values, self.is_nested = outer

    def _lower_node(self, node: onnx.Node) -> None:
        operands = [None if value is None else self._operand(value) for value in node.inputs]
        if qualified_op(node) in REGISTRY.ops and any(
            o is None and v is not None for o, v in zip(operands, node.inputs, strict=True)
        ):
            return  # downstream of a refused node whose result has no known rank
        view: NodeView[Value] = NodeView(node, operands)
        try:
            with ir.Location.name(self._inner_name(node)):
                self._lower_view(view)
        except UnsupportedOp as error:
            self.refusals.append(error.refusal)
            self._stand_in(node)
            return
        except NoKernel as error:
            self.refusals.append(Refusal(qualified_op(node), node_name(node), str(error)))
            self._stand_in(node)
            return
        except OverflowError:
            # NumPy's, of a size or a place that does not fit the int32 in which TFLite holds them.
            self.refusals.append(Refusal(qualified_op(node), node_name(node), _TOO_LARGE))
            self._stand_in(node)
            return
        except ir.MLIRError as error:
            # The op verifier's own words: an operand type or shape that TFLite does not take.
            self.refusals.append(Refusal(qualified_op(node), node_name(node), _verifier_words(error)))
            self._stand_in(node)
            return
        sized = qualified_op(node) in _KEEPS_SIZES and all(o is None or o.is_size for o in operands)
        natural = _is_natural(qualified_op(node), operands)
        for index, result in view.results.items():
            result.is_size = result.is_size or sized
            result.is_natural = result.is_natural or (natural and result.dtype.kind in "iu")
            self._bind(node.outputs[index], result)

    def _lower_view(self, view: NodeView[Value]) -> None:
        if not is_custom(view.node):
            REGISTRY.run(view, self.tfl)
        elif self.custom_ops:
            lower_custom(view, self.tfl)
        else:
            view.unsupported(REFUSAL)
        for index, result in view.results.items():
            known = view.node.outputs[index].shape
            if known is not None and len(known) != result.rank:
                # A definition of ONNX's own that gives a scalar an axis, as Celu's does.
                view.unsupported(f"gives {result.rank} dimensions where ONNX says {len(known)}")

    def _inner_name(self, node: onnx.Node) -> str:
        """What the tensors inside the node's lowering are called: after the node if no other has its name."""
        names = (Keys.clean(name) + INNER for name in (node_name(node), node.outputs[0].name or ""))
        name = next((name for name in names if name not in self.sequence), INNER)
        self.sequence[name] = len(self.sequence)
        return name

    def _operand(self, value: onnx.Value) -> Value | None:
        if value not in self.values and value.const_value is not None:
            array = value.const_value.numpy()
            self.values[value] = Value(array.shape, array.dtype, constant=array)
        return self.values.get(value)

    def _bind(self, value: onnx.Value, result: Value) -> None:
        """Names the tensors of a result after its ONNX value, so that it can be found in the artefact."""
        self.values[value] = result
        if value.shape is not None:
            known = _shape(value)
            result.shape = tuple(
                ours if ours is not None else theirs for ours, theirs in zip(result.shape, known, strict=True)
            )
        if not value.name or value.name in self.taps or self.is_nested:
            return
        for order, copy in result.copies.items():
            tensor = self.tfl.twins.get(copy, copy)
            if isinstance(tensor.owner, ir.Block):
                continue
            operation = tensor.owner.operation
            if operation.name in ("arith.constant", "tfl.pseudo_const", "tfl.if", "tfl.while"):
                continue  # one name does not tell the results of a loop apart
            if tensor not in self.tensor_keys:
                self.tensor_keys[tensor] = self.keys.key(value.name)
                self.sequence[self.tensor_keys[tensor]] = len(self.sequence)
                operation.location = ir.Location.name(self.tensor_keys[tensor])
            self.taps[value.name] = Tap(self.tensor_keys[tensor], order)
            return

    def _stand_in(self, node: onnx.Node) -> None:
        """Gives a refused node results that exist, so that the nodes after it are looked at as well."""
        for value in node.outputs:
            if value.shape is None or dtype_name(value.dtype) not in _PORT_DTYPES:
                continue
            try:
                type_ = self.tfl.tensor_type(_shape(value), _dtype(value))
            except NoKernel:
                continue  # of a type that no tensor has
            cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[])
            copies = {identity(len(_shape(value))): cast.results[0]}
            self.values[value] = Value(_shape(value), _dtype(value), copies=copies)

    # ---- inputs and outputs

    def _refuse_ports(self) -> None:
        for kind, values in (("input", self.inputs), ("output", self.graph.outputs)):
            for value in values:
                if isinstance(value.type, onnx.SequenceType | onnx.OptionalType):
                    why = "is a sequence or an optional value, and TFLite has tensors only"
                    self.refusals.append(Refusal(kind, value.name or "", why))
                    continue
                # An output of no known type is one of a node that is refused itself, or known once it is lowered.
                if not _fits_a_port(value) and (value.dtype is not None or kind == "input"):
                    why = f"is of type {dtype_name(value.dtype)}, which TFLite's kernels do not carry"
                    self.refusals.append(Refusal(kind, value.name or "", why))
                elif any((dim or 0) > _LARGEST for dim in _shape(value)):
                    self.refusals.append(Refusal(kind, value.name or "", _TOO_LARGE))

    def _input_order(self, value: onnx.Value) -> Permutation:
        rank = len(_shape(value))
        if self.layout == "nhwc" and rank == 4 and _feeds_images(value):
            return channels_last(rank)
        return identity(rank)

    def _result(self, value: onnx.Value) -> tuple[ir.Value, Permutation, Shape]:
        """The tensor to return for an output, its axis order, and its logical shape."""
        result = self._operand(value)
        assert result is not None, "an output whose node was refused is reported before"
        last = channels_last(result.rank) if result.rank == 4 else None
        order = last if self.layout == "nhwc" and last in result.copies else identity(result.rank)
        assert order is not None
        return self.ports.output(value, self.tfl.tensor(result, order)), order, result.shape

    def _port(
        self, value: onnx.Value, key: str, order: Permutation, shape: Shape, *, is_output: bool = False
    ) -> Port:
        permutation = () if order == identity(len(order)) else order
        quantized = self.ports.parameters(value, is_output=is_output)
        return Port(
            value.name or "", key, dtype_name(value.dtype), permuted(shape, order), permutation, **quantized
        )


def _is_natural(op: str, operands: list[Value | None]) -> bool:
    if op in _KEEPS_NATURAL:
        return all(operand is None or operand.is_natural for operand in operands[_KEEPS_NATURAL[op]])
    return op in _GIVES_NATURAL


def _fits_a_port(value: onnx.Value) -> bool:
    # A sequence has the type of its elements.
    return isinstance(value.type, onnx.TensorType) and dtype_name(value.dtype) in _PORT_DTYPES


def _computes_float64(node: onnx.Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return node.op_type not in HANDS_ON and any(value.dtype == onnx.DataType.DOUBLE for value in values)


def _feeds_images(value: onnx.Value) -> bool:
    """Whether an input reaches an op that works on channels-last images before any that fixes its axes."""
    seen: set[onnx.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        for node, index in current.uses():
            if node.op_type in _WANTS_CHANNELS_LAST and index == 0:
                return True
            if node.op_type in _LAYOUT_AGNOSTIC:
                waiting.extend(out for out in node.outputs if out not in seen)
                seen.update(node.outputs)
    return False


def _verify(module: ir.Module) -> None:
    """Refuses what only the finished module shows to be wrong; the message names the tensor it is about."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        named = re.search(r'error: "([^"]*)"', str(error))
        refusal = Refusal(
            "model", named.group(1).removesuffix(INNER) if named else "", _verifier_words(error)
        )
        raise CannotConvertError(
            "a combination of operators is invalid in TFLite", refusals=[refusal]
        ) from error


def _shape(value: onnx.Value) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) else None for dim in dims_of(value))


def _dtype(value: onnx.Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())


def _verifier_words(error: Exception) -> str:
    """What the op verifier says, without the locations around it."""
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
    return re.sub(r"^.*error: ", "", lines[0])[:200] if lines else str(error).splitlines()[0][:200]
