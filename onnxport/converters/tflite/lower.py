"""ONNX graph -> a verified MLIR module of the `tfl` dialect, with a tap for each named value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as onnx
from litert_converter import converter_api_ext
from litert_converter.mlir import ir
from litert_converter.mlir.dialects import func

from onnxport.converters.driver import Driver, check_rank, import_lowerings
from onnxport.converters.lowering import NodeView, known_shape
from onnxport.converters.tflite import ops
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.custom_operators import UNKNOWN_DOMAIN, is_custom, lower_custom
from onnxport.converters.tflite.empty_operands import pad_empty_operands
from onnxport.converters.tflite.kernels import NoKernel
from onnxport.converters.tflite.layout import Permutation, Shape, channels_last, identity, permute
from onnxport.converters.tflite.ops.casts import KEEPS_FLOAT64
from onnxport.converters.tflite.quantized.integer_ports import IntegerPorts
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.converters.tflite.settings import Settings
from onnxport.converters.tflite.values import Value, constant
from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.formats.manifest import Port, Tap
from onnxport.formats.model import Model, dtype_name
from onnxport.formats.numbered_texts import read_texts
from onnxport.formats.tflite.tensor_names import INNER, TensorNames
from onnxport.optimizers.group_norm_fusion import fuse_group_norms
from onnxport.optimizers.node_marks import REASON

import_lowerings(ops)

SIGNATURE = "serving_default"

# Ops that work in any axis order, between an input and the first op that needs channels last.
_LAYOUT_AGNOSTIC = frozenset(
    (
        "Add BatchNormalization Cast Clip DequantizeLinear Div Dropout Identity LeakyRelu Mul Neg Pad PRelu "
        "QuantizeLinear Relu Sigmoid Sub Tanh"
    ).split()
)
_WANTS_CHANNELS_LAST = frozenset(
    "Conv ConvTranspose MaxPool AveragePool Resize LRN DepthToSpace SpaceToDepth".split()
)

# Ops that compute sizes from sizes: their results fit int32, as TFLite's sizes must, where all their operands do.
_KEEPS_SIZES = frozenset(
    (
        "Add Cast Concat Div Expand Gather Identity Max Min Mod Mul Reshape Slice Split Squeeze Sub Unsqueeze Where"
    ).split()
)

# Op -> the operands that, if none is negative, make its results so; such an index needs no wrapping.
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
    """A verified module, and what the compiled file's manifest holds."""

    builder: TflBuilder
    module: ir.Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    taps: dict[str, Tap]
    types: dict[str, ir.Type]  # of the taps' tensors, by key
    sequence: dict[str, int]  # every name's position in the order of computation
    notes: tuple[str, ...]  # sentences for the report
    custom: bool  # it has custom operators


def lower_model(model: Model, settings: Settings) -> Lowered:
    """Lower a prepared model.

    Raises:
        CannotConvertError: nodes without an equivalent, all of them listed.
    """
    fuse_group_norms(model)
    pad_empty_operands(model)
    builder = TflBuilder()
    with builder.context, ir.Location.unknown():
        return _Lowering(model, settings, builder).run()


class _Lowering(Driver[Value, TflBuilder]):
    target, unported = "TFLite", "a type"
    errors = (NoKernel, OverflowError, ir.MLIRError)

    def __init__(self, model: Model, settings: Settings, builder: TflBuilder) -> None:
        super().__init__(model.graph, REGISTRY)
        self.custom_ops = settings.allow_custom_ops
        self.layout, self.tfl = settings.layout, builder
        self.ports = IntegerPorts(builder, settings.io)
        self.tensor_keys: dict[ir.Value, str] = {}
        self.sequence: dict[str, int] = {}
        self.keys = TensorNames()
        self.inputs = [v for v in self.graph.inputs if v.name not in self.graph.initializers]
        builder.scope, builder.runs_loops = self, not settings.fit

    def run(self) -> Lowered:
        module = ir.Module.create()
        self.tfl.functions = module.body
        self._refuse_ports()
        inputs = [value for value in self.inputs if _fits_a_port(value)]
        images = {value for value in inputs if self.layout == "nhwc" and _feeds_images(value)}
        orders = [channels_last(4) if v in images else identity(len(known_shape(v))) for v in inputs]
        keys = self.keys.keys(value.name or "" for value in inputs)
        types = [
            self.ports.input_type(value, permute(known_shape(value), order), _dtype(value))
            for value, order in zip(inputs, orders, strict=True)
        ]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ir.FunctionType.get(types, []))
            block = function.add_entry_block([ir.Location.name(key) for key in keys])
        with self.tfl.emitting_into(block):
            for value, order, argument in zip(inputs, orders, block.arguments, strict=True):
                copies = {order: self.ports.input(value, argument)}
                self.values[value] = Value(known_shape(value), _dtype(value), copies=copies)
            self.lower_nodes()
            if not self.refusals:
                results = [self._result(value) for value in self.graph.outputs]
            self.refusals += self.ports.refusals
            self.check_refusals()
            ir.Operation.create("func.return", operands=[tensor for tensor, _, _ in results])
        signature = ir.FunctionType.get(types, [tensor.type for tensor, _, _ in results])
        function.attributes["function_type"] = ir.TypeAttr.get(signature)
        _verify(module)
        out_keys = TensorNames().keys(value.name or "" for value in self.graph.outputs)
        converter_api_ext.set_signature(module.operation, SIGNATURE, keys, out_keys)
        return Lowered(
            self.tfl,
            module,
            tuple(
                self._port(value, key, order, known_shape(value))
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
            self.custom_ops and any(map(is_custom, self.graph.all_nodes())),
        )

    # ---- nodes

    @staticmethod
    def constant(array: Array) -> Value:
        return constant(array)

    def nested_values(self, visible: Mapping[onnx.Value, Value]) -> dict[onnx.Value, Value]:
        return dict(visible)  # initializers apart: every block makes its own constants of them

    def lower_node(self, node: onnx.Node, operands: Sequence[Value | None]) -> None:
        view: NodeView[Value] = NodeView(node, operands)
        # Tensors inside the lowering have the node's name, unless another has it.
        names = (TensorNames.clean(name) + INNER for name in (view.name, node.outputs[0].name or ""))
        name = next((name for name in names if name not in self.sequence), INNER)
        self.sequence[name] = len(self.sequence)
        with ir.Location.name(name):
            self._lower_view(view)
        is_size = view.op in _KEEPS_SIZES and all(o is None or o.is_size for o in operands)
        is_natural = view.op in _GIVES_NATURAL
        if view.op in _KEEPS_NATURAL:
            is_natural = all(o is None or o.is_natural for o in operands[_KEEPS_NATURAL[view.op]])
        for index, result in view.results.items():
            if result.constant is None:
                result.is_size = result.is_size or is_size
                result.is_natural = result.is_natural or (is_natural and result.dtype.kind in "iu")
            self._bind(node.outputs[index], result)

    def reason(self, error: Exception) -> str:
        if isinstance(error, OverflowError):  # NumPy's: TFLite holds sizes and indices in int32
            return _TOO_LARGE
        return _verifier_message(error) if isinstance(error, ir.MLIRError) else str(error)

    def _lower_view(self, view: NodeView[Value]) -> None:
        node = view.node
        if not is_custom(node):
            REGISTRY.run(view, self.tfl)
        elif self.custom_ops:
            lower_custom(view, self.tfl)
        else:
            view.unsupported(node.metadata_props.get(REASON, UNKNOWN_DOMAIN))
        for index, result in view.results.items():
            check_rank(view, index, result.rank)

    def _bind(self, value: onnx.Value, result: Value) -> None:
        """Name the tensors of a result after its ONNX value, so that the artefact has a tap for it."""
        self.values[value] = result
        if value.shape is not None:
            dims = zip(result.shape, known_shape(value), strict=True)
            result.shape = tuple(theirs if ours is None else ours for ours, theirs in dims)
        if not value.name or value.name in self.taps or self.depth:
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

    def stand_in(self, value: onnx.Value) -> Value | None:
        if dtype_name(value.dtype) not in _PORT_DTYPES:
            return None
        shape = known_shape(value)
        try:
            type_ = self.tfl.tensor_type(shape, _dtype(value))
        except NoKernel:
            return None
        cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[])
        return Value(shape, _dtype(value), copies={identity(len(shape)): cast.results[0]})

    # ---- inputs and outputs

    def _refuse_ports(self) -> None:
        ports = [("input", value) for value in self.inputs]
        for kind, value in ports + [("output", value) for value in self.graph.outputs]:
            if isinstance(value.type, onnx.SequenceType | onnx.OptionalType):
                why = "is a sequence or an optional value, and TFLite has tensors only"
            # An output of no known type is one of a node that is refused itself, or known once it is lowered.
            elif not _fits_a_port(value) and (value.dtype is not None or kind == "input"):
                why = f"is of type {dtype_name(value.dtype)}, which TFLite's kernels do not carry"
            elif any((dim or 0) > _LARGEST for dim in known_shape(value)):
                why = _TOO_LARGE
            else:
                continue
            self.refusals.append(Refusal(kind, value.name or "", why))

    def _result(self, value: onnx.Value) -> tuple[ir.Value, Permutation, Shape]:
        """Return an output's tensor, its axis order and its logical shape."""
        result = self.find(value)
        assert result is not None, "an output whose node was refused is reported before"
        is_image = self.layout == "nhwc" and result.rank == 4 and channels_last(4) in result.copies
        order = channels_last(4) if is_image else identity(result.rank)
        return self.ports.output(value, self.tfl.tensor(result, order)), order, result.shape

    def _port(
        self, value: onnx.Value, key: str, order: Permutation, shape: Shape, *, is_output: bool = False
    ) -> Port:
        permutation = () if order == identity(len(order)) else order
        quantized = self.ports.parameters(value, is_output=is_output)
        name, texts = value.name or "", read_texts(value)
        dtype = "string" if texts else dtype_name(value.dtype)
        return Port(name, key, dtype, permute(shape, order), permutation, **quantized, texts=texts)


def _fits_a_port(value: onnx.Value) -> bool:
    # A sequence has the type of its elements.
    return isinstance(value.type, onnx.TensorType) and dtype_name(value.dtype) in _PORT_DTYPES


def _computes_float64(node: onnx.Node) -> bool:
    dtypes = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
    return node.op_type not in KEEPS_FLOAT64 and onnx.DataType.DOUBLE in dtypes


def _feeds_images(value: onnx.Value) -> bool:
    """Return whether an input of four axes reaches an op on channels-last images before any op that fixes its axes."""
    seen: set[onnx.Value] = set()
    waiting = [value] if len(known_shape(value)) == 4 else []
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
    """Raise CannotConvertError, which names the tensor, if a combination of operators is invalid."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        named = re.search(r'error: "([^"]*)"', str(error))
        name = named.group(1).removesuffix(INNER) if named else ""
        refusals = [Refusal("model", name, _verifier_message(error))]
        raise CannotConvertError(
            "a combination of operators is invalid in TFLite", refusals=refusals
        ) from error


def _dtype(value: onnx.Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())


def _verifier_message(error: Exception) -> str:
    """Return the op verifier's message without its locations."""
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
    return re.sub(r"^.*error: ", "", lines[0])[:200] if lines else str(error).splitlines()[0][:200]
