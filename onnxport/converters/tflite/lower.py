"""ONNX graph -> a verified MLIR module of the `tfl` dialect, with every value's place noted by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as onnx
from litert_converter import converter_api_ext
from litert_converter.mlir import ir
from litert_converter.mlir.dialects import func

from onnxport.converters.lowering import NodeView, UnsupportedOp, node_name, qualified_op
from onnxport.converters.params import Layout
from onnxport.converters.tflite import ops  # noqa: F401 - fills the registry
from onnxport.converters.tflite.builder import TflBuilder, Value
from onnxport.converters.tflite.layout import Permutation, channels_last, identity, permuted
from onnxport.converters.tflite.registry import REGISTRY
from onnxport.errors import CannotConvertError, Refusal
from onnxport.manifest import Port, Tap
from onnxport.model import Model, dims_of, dtype_name

SIGNATURE = "serving_default"

# Ops through which an input reaches the first op that wants channels last, without caring itself.
_LAYOUT_AGNOSTIC = frozenset(
    (
        "Add BatchNormalization Cast Clip Div Dropout Identity LeakyRelu Mul Neg Pad PRelu Relu Sigmoid Sub Tanh"
    ).split()
)
_WANTS_CHANNELS_LAST = frozenset(
    "Conv ConvTranspose MaxPool AveragePool Resize LRN DepthToSpace SpaceToDepth".split()
)

# Element types that a TFLite tensor and its kernels carry across the boundary.
_PORT_DTYPES = frozenset("bool int8 uint8 int16 int32 int64 float16 float32".split())


@dataclass
class Lowered:
    """The module and what the compiled file must say of itself."""

    builder: TflBuilder
    module: ir.Module
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    taps: dict[str, Tap] = field(default_factory=dict)


def lower_model(model: Model, layout: Layout) -> Lowered:
    """Lowers a prepared model.

    Raises:
        CannotConvertError: nodes without an equivalent, all of them listed.
    """
    builder = TflBuilder()
    with builder.context, ir.Location.unknown():
        return _Lowering(model, layout, builder).run()


class _Lowering:
    """One run over the graph; `values` maps each ONNX value to what it became."""

    def __init__(self, model: Model, layout: Layout, builder: TflBuilder) -> None:
        self.graph, self.layout, self.tfl = model.graph, layout, builder
        self.values: dict[onnx.Value, Value] = {}
        self.refusals: list[Refusal] = []
        self.taps: dict[str, Tap] = {}
        self.keys = _Keys()
        self.inputs = [v for v in self.graph.inputs if v.name not in self.graph.initializers]

    def run(self) -> Lowered:
        module = ir.Module.create()
        self._refuse_ports()
        inputs = [value for value in self.inputs if _fits_a_port(value)]
        orders = [self._input_order(value) for value in inputs]
        keys = [self.keys.key(value.name or "") for value in inputs]
        types = [
            self.tfl.tensor_type(permuted(_shape(value), order), _dtype(value))
            for value, order in zip(inputs, orders, strict=True)
        ]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ir.FunctionType.get(types, []))
            block = function.add_entry_block([ir.Location.name(key) for key in keys])
        with self.tfl.emitting_into(block):
            for value, order, argument in zip(inputs, orders, block.arguments, strict=True):
                self.values[value] = Value(_shape(value), _dtype(value), copies={order: argument})
            for node in self.graph:
                self._lower_node(node)
            if self.refusals:
                raise self._refused()
            results = [self._result(value) for value in self.graph.outputs]
            ir.Operation.create("func.return", operands=[tensor for tensor, _ in results])
        function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(types, [tensor.type for tensor, _ in results])
        )
        module.operation.verify()
        out_keys = [_Keys.clean(value.name or "") for value in self.graph.outputs]
        converter_api_ext.set_signature(module.operation, SIGNATURE, keys, out_keys)
        return Lowered(
            self.tfl,
            module,
            tuple(_port(*each) for each in zip(inputs, keys, orders, strict=True)),
            tuple(
                _port(value, key, order)
                for value, key, (_, order) in zip(self.graph.outputs, out_keys, results, strict=True)
            ),
            self.taps,
        )

    def _refused(self) -> CannotConvertError:
        ports = sum(refusal.op in ("input", "output") for refusal in self.refusals)
        nodes = len(self.refusals) - ports
        what = f"{nodes} of {len(self.graph)} nodes have no equivalent in TFLite" if nodes else ""
        if ports:
            what = (what and what + " and ") + f"{ports} inputs or outputs have types that it does not carry"
        return CannotConvertError(what, refusals=self.refusals)

    # ---- nodes

    def _lower_node(self, node: onnx.Node) -> None:
        operands = [None if value is None else self._operand(value) for value in node.inputs]
        if qualified_op(node) in REGISTRY.ops and any(
            o is None and v is not None for o, v in zip(operands, node.inputs, strict=True)
        ):
            return  # downstream of a refused node whose result has no known rank
        view: NodeView[Value] = NodeView(node, operands)
        try:
            REGISTRY.run(view, self.tfl)
        except UnsupportedOp as error:
            self.refusals.append(error.refusal)
            self._stand_in(node)
            return
        except ir.MLIRError as error:
            # The op verifier's own words: an operand type or shape that TFLite does not take.
            self.refusals.append(Refusal(qualified_op(node), node_name(node), _verifier_words(error)))
            self._stand_in(node)
            return
        for index, result in view.results.items():
            self._bind(node.outputs[index], result)

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
        if not value.name or value.name in self.taps:
            return
        for order, tensor in result.copies.items():
            if isinstance(tensor.owner, ir.Block):
                continue
            operation = tensor.owner.operation
            if operation.name == "arith.constant":
                continue
            named = re.match(r'loc\("(.*)"\)$', str(operation.location))
            key = named.group(1) if named else self.keys.key(value.name)
            if not named:
                operation.location = ir.Location.name(key)
            self.taps[value.name] = Tap(key, order)
            return

    def _stand_in(self, node: onnx.Node) -> None:
        """Gives a refused node results that exist, so that the nodes after it are looked at as well."""
        for value in node.outputs:
            if value.shape is None or value.dtype in (None, onnx.DataType.STRING):
                continue
            type_ = self.tfl.tensor_type(_shape(value), _dtype(value))
            cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[])
            copies = {identity(len(_shape(value))): cast.results[0]}
            self.values[value] = Value(_shape(value), _dtype(value), copies=copies)

    # ---- inputs and outputs

    def _refuse_ports(self) -> None:
        for kind, values in (("input", self.inputs), ("output", self.graph.outputs)):
            for value in values:
                if not _fits_a_port(value):
                    why = f"is of type {dtype_name(value.dtype)}, which TFLite's kernels do not carry"
                    self.refusals.append(Refusal(kind, value.name or "", why))

    def _input_order(self, value: onnx.Value) -> Permutation:
        rank = len(_shape(value))
        if self.layout == "nhwc" and rank == 4 and _feeds_images(value):
            return channels_last(rank)
        return identity(rank)

    def _result(self, value: onnx.Value) -> tuple[ir.Value, Permutation]:
        """The tensor to return for an output, and its axis order."""
        result = self._operand(value)
        assert result is not None, "an output whose node was refused is reported before"
        last = channels_last(result.rank) if result.rank == 4 else None
        order = last if self.layout == "nhwc" and last in result.copies else identity(result.rank)
        assert order is not None
        return self.tfl.tensor(result, order), order


def _fits_a_port(value: onnx.Value) -> bool:
    return dtype_name(value.dtype) in _PORT_DTYPES


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


class _Keys:
    """Names that MLIR and the TFLite exporter carry unharmed, each used once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    @staticmethod
    def clean(name: str) -> str:
        # The exporter joins names by commas (a comma loses the signature) and fused names by semicolons.
        return re.sub(r'[,;"\\\s]', "_", name)

    def key(self, name: str) -> str:
        key = base = self.clean(name)
        count = 1
        while key in self._used:
            key, count = f"{base}_{count}", count + 1
        self._used.add(key)
        return key


def _port(value: onnx.Value, key: str, order: Permutation) -> Port:
    permutation = () if order == identity(len(order)) else order
    return Port(value.name or "", key, dtype_name(value.dtype), permuted(_shape(value), order), permutation)


def _shape(value: onnx.Value) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) else None for dim in dims_of(value))


def _dtype(value: onnx.Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())


def _verifier_words(error: Exception) -> str:
    """What the op verifier says, without the locations around it."""
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
    return re.sub(r"^.*error: ", "", lines[0])[:200] if lines else str(error).splitlines()[0][:200]
