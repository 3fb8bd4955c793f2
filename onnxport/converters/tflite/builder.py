"""Builds a module of the `tfl` MLIR dialect: typed ops, constants, and values that know their axis order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from litert_converter import converter_api_ext
from litert_converter.mlir import ir

from onnxport.converters.lowering import NodeView
from onnxport.converters.tflite.kernels import KERNELS, MOVES_BITS, carrier
from onnxport.converters.tflite.layout import (
    Permutation,
    Shape,
    between,
    identity,
    moves_no_data,
    permuted,
)

Array = np.ndarray[Any, np.dtype[Any]]
Tensor: TypeAlias = ir.Value  # a physical tensor in the module

# Constants of fewer elements are written once however often they are used.
_SHARED_CONSTANT_ELEMENTS = 64

# Ops with a slot for the activation after them, which the compiler fills.
_FUSES = frozenset("add sub mul div concatenation conv_2d conv_3d depthwise_conv_2d".split()) | frozenset(
    "fully_connected max_pool_2d average_pool_2d conv_3d_transpose transpose_conv".split()
)

_INT32_MAX = np.iinfo(np.int32).max
_FLOAT_TYPES = {"float16": ir.F16Type, "bfloat16": ir.BF16Type, "float32": ir.F32Type, "float64": ir.F64Type}


class Value:
    """An ONNX value during lowering.

    Attributes:
        shape: logical (ONNX) dimensions, None where open.
        dtype: element type.
        constant: the array in logical order if the value is known at conversion.
        copies: the physical tensors made so far, by axis order; for a value that is not constant at least
            one, unless `make` is given.
        make: makes the tensor in logical order when someone first asks for it.
        scrambled: see Scrambled.
        is_size: its elements are sizes of tensors or follow from such, which TFLite keeps in int32.
    """

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: np.dtype[Any] | type,
        *,
        constant: Array | None = None,
        copies: dict[Permutation, Tensor] | None = None,
        make: Callable[[], Tensor] | None = None,
        scrambled: Scrambled | None = None,
    ) -> None:
        self.shape: Shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.constant = constant
        self.copies = copies if copies is not None else {}
        self.make = make
        self.scrambled = scrambled
        self._is_size = False

    @property
    def is_size(self) -> bool:
        if self.constant is not None:
            return self.dtype.kind in "iu" and bool((np.abs(self.constant) <= _INT32_MAX).all())
        return self._is_size

    @is_size.setter
    def is_size(self, value: bool) -> None:
        self._is_size = value

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def order(self) -> Permutation:
        """The axis order that the value was computed in."""
        return next(iter(self.copies), identity(self.rank))


def scalar(number: float, dtype: np.dtype[Any] | type) -> Value:
    """A constant of rank 0."""
    return Value((), dtype, constant=np.array(number, dtype))


class Scrambled:
    """A [N, K] tensor whose columns are the wanted ones in another order: column j holds column `index[j]`.

    A channels-last feature map flattened for a fully connected layer is one: permuting the layer's weights
    at conversion is free, transposing the features at run time is not.
    """

    def __init__(self, tensor: Tensor, index: Array) -> None:
        self.tensor, self.index = tensor, index


class TflBuilder:
    """The module under construction and the function `main` in it; every method emits at its end."""

    def __init__(self) -> None:
        self.context = ir.Context()
        converter_api_ext.prepare_mlir_context(self.context)
        self.opset = 0
        self._block: ir.Block | None = None
        self._shared: dict[tuple[bytes, tuple[int, ...], str], Tensor] = {}

    @contextlib.contextmanager
    def emitting_into(self, block: ir.Block) -> Iterator[None]:
        self._block = block
        with ir.InsertionPoint(block):
            yield

    # ---- types and attributes

    def element_type(self, dtype: np.dtype[Any]) -> ir.Type:
        dtype = np.dtype(dtype)
        if dtype.name in _FLOAT_TYPES:
            return _FLOAT_TYPES[dtype.name].get()
        if dtype.kind == "b":
            return ir.IntegerType.get_signless(1)
        make = ir.IntegerType.get_unsigned if dtype.kind == "u" else ir.IntegerType.get_signless
        return make(dtype.itemsize * 8)

    def tensor_type(self, shape: Sequence[int | None], dtype: np.dtype[Any]) -> ir.Type:
        dynamic = ir.ShapedType.get_dynamic_size()
        dims = [dynamic if dim is None else int(dim) for dim in shape]
        return ir.RankedTensorType.get(dims, self.element_type(dtype))

    def dtype_of(self, tensor: Tensor) -> np.dtype[Any]:
        """The element type; that of the absent operand (no_value) is void."""
        if not isinstance(tensor.type, ir.RankedTensorType):
            return np.dtype(np.void)
        element = tensor.type.element_type
        if not isinstance(element, ir.IntegerType):
            return np.dtype(next(name for name, type_ in _FLOAT_TYPES.items() if isinstance(element, type_)))
        if element.width == 1:
            return np.dtype(bool)
        return np.dtype(f"{'u' if element.is_unsigned else ''}int{element.width}")

    def shape_of(self, tensor: Tensor) -> Shape:
        dynamic = ir.ShapedType.get_dynamic_size()
        return tuple(None if dim == dynamic else dim for dim in ir.RankedTensorType(tensor.type).shape)

    def type_attribute(self, dtype: np.dtype[Any] | type) -> ir.Attribute:
        return ir.TypeAttr.get(self.element_type(np.dtype(dtype)))

    # ---- ops on physical tensors

    def op(
        self,
        name: str,
        operands: Sequence[Tensor],
        shape: Sequence[int | None],
        dtype: np.dtype[Any] | type | None = None,
        /,
        **attributes: object,
    ) -> Tensor:
        """Emits `tfl.<name>` with one result of `shape` and `dtype`, that of its data by default."""
        if dtype is None:
            dtype = self.dtype_of(operands[KERNELS[name].data_operands(len(operands))[0]])
        return self.ops(name, operands, [(shape, np.dtype(dtype))], **attributes)[0]

    def ops(
        self,
        name: str,
        operands: Sequence[Tensor],
        results: Sequence[tuple[Sequence[int | None], np.dtype[Any]]],
        **attributes: object,
    ) -> list[Tensor]:
        """Emits `tfl.<name>`, with its data carried in a wider type where the kernel has none for theirs.

        Raises:
            NoKernel: no type that the kernel computes on holds the data.
        """
        present = [
            i for i in KERNELS[name].data_operands(len(operands)) if self.dtype_of(operands[i]).kind != "V"
        ]
        dtypes = [self.dtype_of(operands[i]) for i in present]
        wider = carrier(name, dtypes)
        if wider is None:
            return self._emit(name, operands, results, attributes)
        carry = self.bitcast if name in MOVES_BITS else self.cast
        carried = [carry(operand, wider) if i in present else operand for i, operand in enumerate(operands)]
        wide = [(shape, wider if dtype == dtypes[0] else dtype) for shape, dtype in results]
        outcome = self._emit(name, carried, wide, attributes)
        return [carry(tensor, dtype) for tensor, (_, dtype) in zip(outcome, results, strict=True)]

    def _emit(
        self,
        name: str,
        operands: Sequence[Tensor],
        results: Sequence[tuple[Sequence[int | None], np.dtype[Any]]],
        attributes: Mapping[str, object],
    ) -> list[Tensor]:
        if name in _FUSES:
            attributes = {"fused_activation_function": "NONE", **attributes}
        operation = ir.Operation.create(
            f"tfl.{name}",
            results=[self.tensor_type(shape, dtype) for shape, dtype in results],
            operands=list(operands),
            attributes={key: _attribute(value) for key, value in attributes.items()},
        )
        return list(operation.results)

    def cast(self, tensor: Tensor, dtype: np.dtype[Any] | type) -> Tensor:
        """The tensor's elements converted to another type."""
        if self.dtype_of(tensor) == np.dtype(dtype):
            return tensor
        return self.op("cast", [tensor], self.shape_of(tensor), dtype)

    def bitcast(self, tensor: Tensor, dtype: np.dtype[Any] | type) -> Tensor:
        """The tensor's elements read as another type of the same width."""
        if self.dtype_of(tensor) == np.dtype(dtype):
            return tensor
        return self.op("bitcast", [tensor], self.shape_of(tensor), dtype)

    def constant(
        self, array: Array | np.generic | float | Sequence[int], dtype: np.dtype[Any] | type | None = None
    ) -> Tensor:
        """A constant tensor; small ones are shared. Keeps rank 0 (np.ascontiguousarray would not)."""
        data = np.asarray(array, dtype).copy(order="C")
        key = (data.tobytes(), data.shape, data.dtype.str) if data.size < _SHARED_CONSTANT_ELEMENTS else None
        if key is not None and key in self._shared:
            return self._shared[key]
        type_ = self.tensor_type(data.shape, data.dtype)
        assert self._block is not None
        with ir.InsertionPoint.at_block_begin(self._block):
            operation = ir.Operation.create(
                # arith knows no unsigned integers.
                "tfl.pseudo_const" if data.dtype.kind == "u" else "arith.constant",
                results=[type_],
                attributes={"value": ir.DenseElementsAttr.get(data, type=type_)},
            )
        tensor: Tensor = operation.results[0]
        if key is not None:
            self._shared[key] = tensor
        return tensor

    def int32(self, values: Sequence[int] | Array | int) -> Tensor:
        return self.constant(np.asarray(values, np.int32))

    def no_value(self) -> Tensor:
        """TFLite's absent optional operand."""
        operation = ir.Operation.create(
            "tfl.no_value", results=[ir.NoneType.get()], attributes={"value": ir.UnitAttr.get()}
        )
        tensor: Tensor = operation.results[0]
        return tensor

    def reshape(self, tensor: Tensor, shape: Sequence[int | None]) -> Tensor:
        """A reshape to dimensions of which at most one is open."""
        if tuple(shape) == self.shape_of(tensor) and None not in shape:
            return tensor
        wanted = self.int32([-1 if dim is None else dim for dim in shape])
        return self.op("reshape", [tensor, wanted], shape)

    def with_unit_axis(self, tensor: Tensor, axis: int) -> Tensor:
        """An axis of size 1 put in before physical axis `axis`."""
        shape = self.shape_of(tensor)
        result = (*shape[:axis], 1, *shape[axis:])
        if result.count(None) <= 1:
            return self.reshape(tensor, result)
        return self.op("expand_dims", [tensor, self.int32(axis)], result)

    def without_unit_axis(self, tensor: Tensor, axis: int) -> Tensor:
        """Physical axis `axis`, which must be of size 1, taken out."""
        shape = self.shape_of(tensor)
        result = (*shape[:axis], *shape[axis + 1 :])
        if result.count(None) <= 1:
            return self.reshape(tensor, result)
        return self.op("squeeze", [tensor], result, squeeze_dims=(axis,))

    def transpose(self, tensor: Tensor, perm: Permutation) -> Tensor:
        """A transpose, or the reshape that does the same when only axes of size 1 move."""
        if perm == identity(len(perm)):
            return tensor
        shape = self.shape_of(tensor)
        result = permuted(shape, perm)
        if moves_no_data(shape, perm) and result.count(None) <= 1:
            return self.reshape(tensor, result)
        return self.op("transpose", [tensor, self.int32(perm)], result)

    def pad(
        self,
        tensor: Tensor,
        before: Sequence[int],
        after: Sequence[int],
        fill: float | Tensor | None = None,
    ) -> Tensor:
        """Pads every physical axis with `fill`, 0 if None."""
        if not any(before) and not any(after):
            return tensor
        shape = self.shape_of(tensor)
        result = [
            None if dim is None else dim + b + a for dim, b, a in zip(shape, before, after, strict=True)
        ]
        amounts = self.int32(np.stack([before, after], axis=1))
        if fill is None:
            return self.op("pad", [tensor, amounts], result)
        if isinstance(fill, float):
            fill = self.constant(fill, self.dtype_of(tensor))
        return self.op("padv2", [tensor, amounts, fill], result)

    def slice(self, tensor: Tensor, begin: Sequence[int], size: Sequence[int | None]) -> Tensor:
        """`size` elements from `begin` on each axis; an open size runs to the end."""
        sizes = self.int32([-1 if dim is None else dim for dim in size])
        return self.op("slice", [tensor, self.int32(begin), sizes], size)

    def size(self, tensor: Tensor, axis: int) -> Tensor:
        """The size of a physical axis at run time, as int32 [1]."""
        return self.slice(self.op("shape", [tensor], [len(self.shape_of(tensor))], np.int32), [axis], [1])

    def strided_slice(
        self,
        tensor: Tensor,
        *,
        begin: Sequence[int],
        end: Sequence[int | None],
        strides: Sequence[int],
        shape: Sequence[int | None],
        run_time_end: Tensor | None = None,
    ) -> Tensor:
        """Every `strides`-th element from `begin` up to `end`, as NumPy counts; None runs through the last one.

        `run_time_end` replaces the ends that are not None.
        """
        mask = sum(1 << axis for axis, last in enumerate(end) if last is None)
        ends = self.int32([last or 0 for last in end]) if run_time_end is None else run_time_end
        return self.op(
            "strided_slice",
            [tensor, self.int32(begin), ends, self.int32(strides)],
            shape,
            begin_mask=0,
            end_mask=mask,
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=0,
            offset=False,
        )

    # ---- values

    def tensor(self, value: Value, perm: Permutation | None = None) -> Tensor:
        """The value's physical tensor in axis order `perm` (ONNX's own by default), made when first asked for."""
        perm = identity(value.rank) if perm is None else perm
        if perm not in value.copies:
            value.copies[perm] = self._arranged(value, perm)
        return value.copies[perm]

    def _arranged(self, value: Value, perm: Permutation) -> Tensor:
        if value.constant is not None:
            return self.constant(np.transpose(value.constant, perm))
        if not value.copies:
            assert value.make is not None, "a value is constant, computed, or can be made"
            value.copies[identity(value.rank)] = value.make()
            return self.tensor(value, perm)
        order = value.order
        return self.transpose(value.copies[order], between(order, perm))

    def computed(self, tensor: Tensor, order: Permutation | None = None) -> Value:
        """The value whose physical tensor in axis order `order` is `tensor`; shape and type are the tensor's."""
        physical = self.shape_of(tensor)
        order = identity(len(physical)) if order is None else order
        shape = permuted(physical, between(order, identity(len(order))))
        return Value(shape, self.dtype_of(tensor), copies={order: tensor})

    def run_time_shape(self, value: Value, dtype: np.dtype[Any] | type = np.int32) -> Tensor:
        """The value's dimensions in ONNX's order, [rank] of int32 or int64; moves none of its data."""
        order = value.order if value.copies else identity(value.rank)
        attributes = {} if np.dtype(dtype) == np.int32 else {"out_type": self.type_attribute(dtype)}
        shape = self.op("shape", [self.tensor(value, order)], [value.rank], dtype, **attributes)
        if order == identity(value.rank):
            return shape
        places = self.int32(between(order, identity(value.rank)))
        return self.op("gather", [shape, places], [value.rank], dtype, axis=0, batch_dims=0)

    def converted(self, value: Value, dtype: np.dtype[Any] | type) -> Value:
        """The value's elements in another type."""
        if value.dtype == np.dtype(dtype):
            return value
        if value.constant is not None:
            return Value(value.shape, dtype, constant=value.constant.astype(dtype))
        order = self.common_order(value)
        converted = self.computed(self.cast(self.tensor(value, order), dtype), order)
        converted.is_size = value.is_size
        return converted

    def aligned(self, value: Value, order: Permutation, *, shrinks: bool = True) -> Tensor:
        """The value as an operand of an op that broadcasts to a result of axis order `order`.

        A constant of one element becomes a scalar if it `shrinks`, which it must not where no other operand
        gives the result its rank.
        """
        rank = len(order)
        missing = rank - value.rank
        if value.constant is not None:
            if value.constant.size == 1 and shrinks:
                return self.constant(value.constant.reshape(()))
            return self.constant(
                np.transpose(value.constant.reshape((1,) * missing + value.constant.shape), order)
            )
        if value.rank == rank:
            return self.tensor(value, order)
        if order == identity(rank) or all(dim == 1 for dim in value.shape):
            return self.tensor(value)  # TFLite broadcasts missing leading axes as ONNX does
        return self.transpose(self.reshape(self.tensor(value), [*[1] * missing, *value.shape]), order)

    def common_order(self, *values: Value) -> Permutation:
        """The order for an op that does not care: that of its largest operand, one in channels-last first."""
        rank = max(value.rank for value in values)
        full = [value for value in values if value.constant is None and value.rank == rank]
        if not full:
            return identity(rank)
        largest = max(full, key=lambda v: (v.order != identity(rank), prod(dim or 1 for dim in v.shape)))
        return largest.order


TflNode = NodeView[Value]


def _attribute(value: object) -> ir.Attribute:
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool | np.bool_):
        return ir.BoolAttr.get(bool(value))
    if isinstance(value, int | np.integer):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), int(value))
    if isinstance(value, float | np.floating):
        return ir.FloatAttr.get_f32(float(value))
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, tuple):
        int64 = ir.IntegerType.get_signless(64)
        return ir.ArrayAttr.get([ir.IntegerAttr.get(int64, int(item)) for item in value])
    raise TypeError(f"no MLIR attribute for {value!r}")


def constant_of(node: TflNode, index: int, what: str) -> Array:
    """The constant operand at `index`; refuses the node where it is computed at run time."""
    value = node.input(index)
    if value.constant is None:
        node.unsupported(
            f"{what} (input {index}) is computed at run time and TFLite needs a constant; "
            "fix the input's size with --shape NAME=... if it follows from that"
        )
    return value.constant


def optional_constant(node: TflNode, index: int, what: str) -> Array | None:
    """constant_of for an input that may be absent."""
    return constant_of(node, index, what) if node.has_input(index) else None
