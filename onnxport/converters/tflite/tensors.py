"""A builder of ops of the `tfl` MLIR dialect on physical tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from litert_converter import converter_api_ext
from litert_converter.mlir import ir

from onnxport.converters.tflite.kernels import HOLDERS, KERNELS, Carrier, NoKernel, carrier
from onnxport.converters.tflite.layout import Permutation, Shape, identity, moves_no_data, permute
from onnxport.converters.tflite.numbers import conversions
from onnxport.converters.tflite.quantized.quantization import QuantizedTensors
from onnxport.core.arrays import Array

Tensor: TypeAlias = ir.Value  # a physical tensor in the module
DtypeLike: TypeAlias = np.dtype[Any] | type
# The shape and the element type of each result of an op.
Results: TypeAlias = Sequence[tuple[Sequence[int | None], np.dtype[Any]]]
# Start, end and step along an axis as NumPy counts them; None runs through the last element.
Bounds: TypeAlias = tuple[int, int | None, int]

# Constants of fewer elements are written once however often they are used.
_SHARED_CONSTANT_ELEMENTS = 64

# Ops with a slot for the activation after them, which the compiler fills.
_FUSES = frozenset("add sub mul div concatenation conv_2d conv_3d depthwise_conv_2d".split()) | frozenset(
    "fully_connected max_pool_2d average_pool_2d conv_3d_transpose transpose_conv".split()
)

_FLOAT_TYPES = {"float16": ir.F16Type, "bfloat16": ir.BF16Type, "float32": ir.F32Type, "float64": ir.F64Type}


class TensorBuilder:
    """The module under construction; every method emits at the end of the open block.

    Attributes:
        functions: the module's body, to which control flow adds functions.
        twins: float64 and float16 tensors -> the float32 tensors that they were made of.
        doubles: float64 constants.
    """

    def __init__(self) -> None:
        self.context = ir.Context()
        converter_api_ext.prepare_mlir_context(self.context)
        self.functions: ir.Block | None = None
        self._block: ir.Block | None = None
        self._shared: dict[tuple[bytes, tuple[int, ...], str], Tensor] = {}
        self._zeros: set[Tensor] = set()
        self.twins: dict[Tensor, Tensor] = {}
        self.doubles: dict[Tensor, Array] = {}
        self.quantized = QuantizedTensors()

    @contextlib.contextmanager
    def emitting_into(self, block: ir.Block) -> Iterator[None]:
        """Emit into `block` within; constants are shared in one block only."""
        outer = self._block, self._shared
        self._block, self._shared = block, {}
        try:
            with ir.InsertionPoint(block):
                yield
        finally:
            self._block, self._shared = outer

    # ---- types and attributes

    def element_type(self, dtype: np.dtype[Any]) -> ir.Type:
        dtype = np.dtype(dtype)
        if dtype.name in _FLOAT_TYPES:
            return _FLOAT_TYPES[dtype.name].get()
        if dtype.kind == "b":
            return ir.IntegerType.get_signless(1)
        if dtype.kind not in "iu":
            raise NoKernel(f"TFLite has no tensors of {dtype.name}")
        make = ir.IntegerType.get_unsigned if dtype.kind == "u" else ir.IntegerType.get_signless
        return make(dtype.itemsize * 8)

    def tensor_type(self, shape: Sequence[int | None], dtype: np.dtype[Any]) -> ir.Type:
        dynamic = ir.ShapedType.get_dynamic_size()
        dims = [dynamic if dim is None else int(dim) for dim in shape]
        return ir.RankedTensorType.get(dims, self.element_type(dtype))

    def dtype_of(self, tensor: Tensor) -> np.dtype[Any]:
        """Return the element type; void for the absent operand (no_value)."""
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

    def type_attribute(self, dtype: DtypeLike) -> ir.Attribute:
        return ir.TypeAttr.get(self.element_type(np.dtype(dtype)))

    # ---- ops on physical tensors

    def op(
        self,
        name: str,
        operands: Sequence[Tensor],
        shape: Sequence[int | None],
        dtype: DtypeLike | None = None,
        /,
        **attributes: object,
    ) -> Tensor:
        """Emit `tfl.<name>` with one result of `shape` and `dtype`, that of its data by default."""
        if dtype is None:
            dtype = self.dtype_of(operands[KERNELS[name].data_operands(len(operands))[0]])
        return self.ops(name, operands, [(shape, np.dtype(dtype))], **attributes)[0]

    def ops(
        self, name: str, operands: Sequence[Tensor], results: Results, **attributes: object
    ) -> list[Tensor]:
        """Emit `tfl.<name>`, with its data carried in a wider type where the kernel has none for theirs.

        Raises:
            NoKernel: no type that the kernel computes on holds the data.
        """
        places = KERNELS[name].data_operands(len(operands))
        present = [i for i in places if isinstance(operands[i].type, ir.RankedTensorType)]
        dtypes = [self.dtype_of(operands[i]) for i in present]
        if name != "bitcast" and self._has_twins([operands[i] for i in present]):
            wider: Carrier | None = Carrier("float32")
        else:
            wider = carrier(name, dtypes)
        if wider is None:
            return self._emit(name, operands, results, attributes)
        carried = [self._carry(each, wider) if i in present else each for i, each in enumerate(operands)]
        own = [dtype == dtypes[0] for _, dtype in results]
        wide = [
            (shape, np.dtype(wider.dtype) if o else dtype)
            for o, (shape, dtype) in zip(own, results, strict=True)
        ]
        outcome = zip(own, self._emit(name, carried, wide, attributes), strict=True)
        return [self._restore(tensor, wider, dtypes[0]) if o else tensor for o, tensor in outcome]

    def _has_twins(self, operands: Sequence[Tensor]) -> bool:
        """Return whether operands have float32 twins; float64 operands all of them, constants aside."""
        known = [operand in self.twins for operand in operands]
        return any(known) and all(
            twin or operand in self.doubles or self.dtype_of(operand) == np.float16
            for twin, operand in zip(known, operands, strict=True)
        )

    def _carry(self, tensor: Tensor, wider: Carrier) -> Tensor:
        if wider.how == "value":
            return self.cast(tensor, np.dtype(wider.dtype))
        bits = self.bitcast(tensor, np.dtype(wider.dtype))
        return bits if wider.how == "bits" else self._flip_sign(bits)

    def _restore(self, tensor: Tensor, wider: Carrier, dtype: np.dtype[Any]) -> Tensor:
        if wider.how == "value":
            return self.cast(tensor, dtype)
        return self.bitcast(tensor if wider.how == "bits" else self._flip_sign(tensor), dtype)

    def _flip_sign(self, bits: Tensor) -> Tensor:
        """Map the bits of unsigned integers to signed integers in the same order, and back."""
        lowest = self.constant(np.iinfo(self.dtype_of(bits)).min, self.dtype_of(bits))
        return self.op("add", [bits, lowest], self.shape_of(bits))

    def _emit(
        self, name: str, operands: Sequence[Tensor], results: Results, attributes: Mapping[str, object]
    ) -> list[Tensor]:
        zeros = next((operand for operand in operands if operand in self._zeros), None)
        if name == "mul" and zeros is not None and None in results[0][0]:
            # The compiler folds this into a constant of the result's shape, and takes open dimensions for 0.
            # x - x + 0 instead: zeros, NaN where the other operand is infinite.
            (other,) = [operand for operand in operands if operand is not zeros] or [zeros]
            nothing = self.op("sub", [other, other], self.shape_of(other), results[0][1])
            return [self.op("add", [nothing, zeros], *results[0])]
        if name in _FUSES:
            attributes = {"fused_activation_function": "NONE", **attributes}
        places = KERNELS[name].data_operands(len(operands))
        if self.quantized.present:
            data = self.quantized.operands(name, [operands[i] for i in places])
            given = dict(zip(places, data, strict=True))
            operands = [given.get(i, operand) for i, operand in enumerate(operands)]
        operation = ir.Operation.create(
            f"tfl.{name}",
            results=[self.tensor_type(shape, dtype) for shape, dtype in results],
            operands=list(operands),
            attributes={key: _attribute(value) for key, value in attributes.items()},
        )
        data = [operands[i] for i in places]
        return self.quantized.propagate_grid(name, data, list(operation.results))

    def cast(self, tensor: Tensor, dtype: DtypeLike) -> Tensor:
        """See conversions.cast; remembers which tensors are all zeros."""
        result = conversions.cast(self, tensor, np.dtype(dtype))
        if tensor in self._zeros:
            self._zeros.add(result)
        return result

    def round_half(self, tensor: Tensor) -> Tensor:
        """Return a float16 tensor in float32, rounded in spite of its twin."""
        return self._emit("cast", [tensor], [(self.shape_of(tensor), np.dtype(np.float32))], {})[0]

    def bitcast(self, tensor: Tensor, dtype: DtypeLike) -> Tensor:
        """Read a tensor's elements as another type of the same width."""
        if self.dtype_of(tensor) == np.dtype(dtype):
            return tensor
        return self.op("bitcast", [tensor], self.shape_of(tensor), dtype)

    def constant(
        self, array: Array | np.generic | float | Sequence[int], dtype: DtypeLike | None = None
    ) -> Tensor:
        """Return a constant tensor; small ones are shared. Keeps rank 0, as np.ascontiguousarray would not."""
        data = np.asarray(array, dtype).copy(order="C")
        if data.dtype.name in HOLDERS:
            data = data.astype(HOLDERS[data.dtype.name])
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
        if not data.any():
            self._zeros.add(tensor)
        if data.dtype == np.float64:
            self.doubles[tensor] = data
        if key is not None:
            self._shared[key] = tensor
        return tensor

    def int32(self, values: Sequence[int] | Array | int) -> Tensor:
        return self.constant(np.asarray(values, np.int32))

    def no_value(self) -> Tensor:
        """Return TFLite's absent optional operand."""
        operation = ir.Operation.create(
            "tfl.no_value", results=[ir.NoneType.get()], attributes={"value": ir.UnitAttr.get()}
        )
        tensor: Tensor = operation.results[0]
        return tensor

    def reshape(self, tensor: Tensor, shape: Sequence[int | None]) -> Tensor:
        """Reshape to dimensions of which at most one is open."""
        if tuple(shape) == self.shape_of(tensor) and None not in shape:
            return tensor
        wanted = self.int32([-1 if dim is None else dim for dim in shape])
        return self.op("reshape", [tensor, wanted], shape)

    def with_unit_axis(self, tensor: Tensor, axis: int) -> Tensor:
        """Insert an axis of size 1 before physical axis `axis`."""
        shape = self.shape_of(tensor)
        result = (*shape[:axis], 1, *shape[axis:])
        if result.count(None) > 1:
            return self.op("expand_dims", [tensor, self.int32(axis)], result)
        return self.reshape(tensor, result)

    def without_unit_axis(self, tensor: Tensor, axis: int) -> Tensor:
        """Remove physical axis `axis`, which must be of size 1."""
        shape = self.shape_of(tensor)
        result = (*shape[:axis], *shape[axis + 1 :])
        if result.count(None) > 1:
            return self.op("squeeze", [tensor], result, squeeze_dims=(axis,))
        return self.reshape(tensor, result)

    def transpose(self, tensor: Tensor, perm: Permutation) -> Tensor:
        """Transpose; reshape where only axes of size 1 move."""
        if perm == identity(len(perm)):
            return tensor
        shape = self.shape_of(tensor)
        result = permute(shape, perm)
        if moves_no_data(shape, perm) and result.count(None) <= 1:
            return self.reshape(tensor, result)
        return self.op("transpose", [tensor, self.int32(perm)], result)

    def pad(
        self, tensor: Tensor, before: Sequence[int], after: Sequence[int], fill: float | Tensor | None = None
    ) -> Tensor:
        """Pad every physical axis with `fill`, 0 if None."""
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
        """Return `size` elements from `begin` on each axis; an open size runs to the end."""
        sizes = self.int32([-1 if dim is None else dim for dim in size])
        return self.op("slice", [tensor, self.int32(begin), sizes], size)

    def size(self, tensor: Tensor, axis: int) -> Tensor:
        """Return the size of a physical axis at run time, as int32 [1]."""
        return self.slice(self.sizes(tensor), [axis], [1])

    def sizes(self, tensor: Tensor) -> Tensor:
        """Return the physical sizes at run time, as int32 [rank]."""
        return self.op("shape", [tensor], [len(self.shape_of(tensor))], np.int32)

    def gather(
        self, tensor: Tensor, indices: Tensor, axis: int = 0, shape: Sequence[int | None] | None = None
    ) -> Tensor:
        """Return the elements at `indices` along a physical axis; `shape` is known from both by default."""
        if shape is None:
            own = self.shape_of(tensor)
            shape = (*own[:axis], *self.shape_of(indices), *own[axis + 1 :])
        return self.op("gather", [tensor, indices], shape, axis=axis, batch_dims=0)

    def concatenate(self, parts: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Join tensors along a physical axis; one alone is the result."""
        if len(parts) == 1:
            return parts[0]
        sizes = [self.shape_of(part)[axis] for part in parts]
        shape = list(self.shape_of(parts[0]))
        shape[axis] = None if None in sizes else sum(size or 0 for size in sizes)
        return self.op("concatenation", parts, shape, axis=axis)

    def strided_slice(
        self, tensor: Tensor, bounds: Sequence[Bounds], shape: Shape, run_time_ends: Tensor | None = None
    ) -> Tensor:
        """Slice each axis by its bounds; `run_time_ends` replaces the ends that are not None."""
        mask = sum(1 << axis for axis, (_, end, _) in enumerate(bounds) if end is None)
        begin, fixed, steps = ([bound[i] or 0 for bound in bounds] for i in range(3))
        ends = self.int32(fixed) if run_time_ends is None else run_time_ends
        operands = [tensor, self.int32(begin), ends, self.int32(steps)]
        return self.slice_by_tensors(operands, shape, 0, mask)

    def slice_by_tensors(
        self, operands: Sequence[Tensor], shape: Sequence[int | None], begin_mask: int, end_mask: int
    ) -> Tensor:
        """Slice by tensors of starts, ends and steps; axes in a mask begin or end at their limits."""
        masks = {"ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0, "offset": False}
        return self.op("strided_slice", operands, shape, begin_mask=begin_mask, end_mask=end_mask, **masks)

    def crop(
        self, tensor: Tensor, before: Sequence[int], after: Sequence[int], shape: Sequence[int | None]
    ) -> Tensor:
        """Drop the first `before` and the last `after` elements of each axis; `shape` is what remains."""
        bounds = [(first, -last or None, 1) for first, last in zip(before, after, strict=True)]
        return self.strided_slice(tensor, bounds, tuple(shape))


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
