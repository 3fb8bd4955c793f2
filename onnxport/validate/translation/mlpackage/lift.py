"""Write an ML program as an ONNX model: each operator as the one that ONNX has, weights with their grids.

    constexpr_affine_dequantize(quantized_data, zero_point, scale, axis)  ->  DequantizeLinear
    integers of 16 bits, which MIL computes as floats  ->  QuantizeLinear, DequantizeLinear (wide_grids.py)

MIL's tensors have ONNX's order of axes. Arithmetic is that of float32; results that are declared as float16 pass a Cast
to it and back, as in the evaluator, unless `rounds` is false.
An operator that operators.py does not know becomes one of the domain "mil", which equals nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.manifest import Port
from onnxport.formats.mlpackage.program import Constant, Function, Operation, Type
from onnxport.formats.model import Model
from onnxport.validate.translation.graph_writer import GraphWriter, NotLifted, data_type
from onnxport.validate.translation.mlpackage.wide_grids import read_wide_grids

DOMAIN = "mil"
_FLOATS = ("float16", "float32", "bfloat16")
_NARROW = ("float16", "bfloat16")
# Their results are among the numbers that they read.
_MOVES = frozenset(
    (
        "identity reshape transpose squeeze expand_dims slice_by_index slice_by_size split concat stack gather tile "
        "pad max_pool relu maximum minimum select upsample_nearest_neighbor pixel_shuffle depth_to_space space_to_depth"
    ).split()
)


@dataclass
class Lifted:
    """A function as an ONNX model.

    Attributes:
        model: inputs and outputs have the source's names, other values the program's.
        grids: names of the integers of grids, with their types.
        labels: operator and name, by the name of the result.
        unknown: an operator's result -> why it was not lifted.
    """

    model: Model
    grids: Mapping[str, np.dtype[Any]]
    labels: Mapping[str, str]
    unknown: dict[str, str] = field(default_factory=dict)


class Lifting(GraphWriter):
    """The graph under construction.

    Args:
        inputs, outputs: the source's names of the function's, by the manifest.
        rounds: whether results are rounded to their declared type.
    """

    def __init__(
        self, function: Function, inputs: Sequence[Port], outputs: Sequence[Port], *, rounds: bool = True
    ) -> None:
        super().__init__(DOMAIN)
        self._rounds = rounds
        self._function, self._inputs, self._outputs = function, inputs, outputs
        self._values: dict[str, ir.Value] = {}
        self._constants: dict[str, Constant] = {}
        self.types: dict[str, Type] = dict(function.inputs)
        self.grids: dict[str, np.dtype[Any]] = {}
        self._unknown: dict[str, str] = {}
        self._moves = False  # whether the operator at hand rounds nothing

    def run(
        self, operators: Mapping[str, Callable[[OperatorView], None]], sizes: Mapping[str, Sequence[int]]
    ) -> Lifted:
        """Write the graph.

        Args:
            operators: a function for each operator that is known, which emits its results.
            sizes: of the inputs, by the source's names.
        """
        inputs = [self._input(port, sizes[port.name]) for port in self._inputs]
        labels: dict[str, str] = {}
        for operation in self._function.block.operations:
            self.types |= dict(operation.outputs)
            if operation.type == "const":
                self._constants[operation.outputs[0][0]] = operation.attributes["val"]
                continue
            self.label = operation.outputs[0][0] if operation.outputs else operation.name
            labels[self.label] = f"{operation.type} {self.label!r}"
            before, self._moves = len(self.nodes), operation.type in _MOVES
            try:
                lift = operators.get(operation.type)
                if lift is None or operation.blocks:
                    raise NotLifted(f"{operation.type} is not known here")
                lift(OperatorView(self, operation))
            except NotLifted as error:
                del self.nodes[before:]
                self._opaque(operation, str(error))
        outputs = [self._output(port) for port in self._outputs]
        model = self.finish(inputs, outputs)
        return Lifted(model, self.grids | read_wide_grids(model.graph), labels, self._unknown)

    def constant(self, bound: str | Constant) -> Constant | None:
        return bound if isinstance(bound, Constant) else self._constants.get(bound)

    def value(self, bound: str | Constant) -> ir.Value:
        """Return what a name or a constant stands for."""
        stored = self.constant(bound)
        if stored is None:
            assert isinstance(bound, str)
            if bound not in self._values:
                raise NotLifted(f"{bound!r} is a state")
            return self._values[bound]
        array = np.asarray(stored.value)
        name = bound if isinstance(bound, str) else f"{self.label}/constant.{len(self.nodes)}.{id(bound)}"
        if array.dtype.name == "float16":
            # A float32 with the half step of what it was rounded to.
            return self.add("Cast", [self.store(array, name)], to=int(ir.DataType.FLOAT))
        return self.store(array, name)

    def define(self, name: str, value: ir.Value) -> None:
        """Make `value` the one of this name, rounded to the type that is declared."""
        declared = self.types[name].dtype
        if self._rounds and declared in _NARROW and not self._moves:
            value = self._narrowed(value, declared)
        if value.producer() is None or value in self._values.values():
            value = self.add("Identity", [value])
        value.name = name
        if declared == "bool":
            value.type = ir.TensorType(ir.DataType.BOOL)
        self._values[name] = value

    def _narrowed(self, value: ir.Value, dtype: str) -> ir.Value:
        return self.add(
            "Cast", [self.add("Cast", [value], to=int(data_type(dtype)))], to=int(ir.DataType.FLOAT)
        )

    def _opaque(self, operation: Operation, why: str) -> None:
        names = [each for bound in operation.inputs.values() for each in bound if isinstance(each, str)]
        operands = [self._values[each] for each in names if each in self._values]
        results = self.add_all(operation.type, operands, outputs=len(operation.outputs), domain=DOMAIN)
        for (name, type_), value in zip(operation.outputs, results, strict=True):
            value.name = name
            if type_.dtype not in ("str", "list", "dictionary"):
                value.type = ir.TensorType(data_type("float32" if type_.dtype in _FLOATS else type_.dtype))
            if type_.shape is not None and None not in type_.shape:
                value.shape = ir.Shape(list(type_.shape))
            self._values[name] = value
            self._unknown[name] = why

    def _input(self, port: Port, sizes: Sequence[int]) -> ir.Value:
        value = ir.Value(
            name=port.name, type=ir.TensorType(data_type(port.dtype)), shape=ir.Shape(list(sizes))
        )
        self.label, wanted = port.name, self.types[port.key].dtype
        found = value
        if wanted not in _FLOATS and wanted != port.dtype:
            found = self.add("Cast", [found], to=int(data_type(wanted)))
        if wanted in _NARROW:
            found = self._narrowed(found, wanted)
        self._values[port.key] = found
        return value

    def _output(self, port: Port) -> ir.Value:
        self.label = port.name
        dtype = data_type(port.dtype)
        declared = self.types[port.key].dtype
        found = self._values[port.key]
        if port.dtype != declared and not (port.dtype in _FLOATS and declared in _FLOATS):
            found = self.add("Cast", [found], to=int(dtype))
        found = self.add("Identity", [found])
        if port.key == port.name and self._values[port.key].name == port.name:
            self._values[port.key].name = f"{port.name}/program"
        found.name, found.type = port.name, ir.TensorType(dtype)
        return found


class OperatorView:
    """An operator with its parameters, for the functions of operators.py."""

    def __init__(self, lifting: Lifting, operation: Operation) -> None:
        self.lifting, self.operation = lifting, operation
        self.add, self.number = lifting.add, lifting.number

    def has(self, name: str) -> bool:
        return name in self.operation.inputs or name in self.operation.attributes

    def _bound(self, name: str) -> str | Constant:
        if name in self.operation.attributes:
            return self.operation.attributes[name]
        if not self.has(name):
            raise NotLifted(f"{self.operation.type} without {name}")
        (bound,) = self.operation.inputs[name]
        return bound

    def value(self, name: str) -> ir.Value:
        return self.lifting.value(self._bound(name))

    def values(self, name: str) -> list[ir.Value]:
        return [self.lifting.value(each) for each in self.operation.inputs[name]]

    def constant(self, name: str, default: Any = None) -> Any:
        """Return a parameter that is no tensor of the network.

        Raises:
            NotLifted: it is computed, or missing and has no default.
        """
        if not self.has(name):
            if default is None:
                raise NotLifted(f"{self.operation.type} without {name}")
            return default
        found = self.lifting.constant(self._bound(name))
        if found is None:
            raise NotLifted(f"{name} of {self.operation.type} is computed")
        return found.value

    def integers(self, name: str, default: Sequence[int] = ()) -> list[int]:
        return [int(each) for each in np.asarray(self.constant(name, default)).reshape(-1)]

    def array(self, name: str) -> Array:
        return np.asarray(self.constant(name))

    def codes(self, name: str) -> Array:
        """Return stored integers in their own type: the reader keeps those of 4 bits in 8."""
        found = self.lifting.constant(self._bound(name))
        if found is None:
            raise NotLifted(f"{name} of {self.operation.type} is computed")
        array = np.asarray(found.value)
        return array.astype(getattr(ml_dtypes, found.dtype)) if found.dtype in ("int4", "uint4") else array

    @property
    def result(self) -> str:
        """The name of the first result."""
        return self.operation.outputs[0][0]

    def dtype(self, name: str) -> str:
        bound = self._bound(name)
        stored = self.lifting.constant(bound)
        if stored is not None:
            return str(np.asarray(stored.value).dtype)
        assert isinstance(bound, str)
        return self.lifting.types[bound].dtype

    @property
    def rank(self) -> int:
        """The rank of the first result."""
        shape = self.operation.outputs[0][1].shape
        if shape is None:
            raise NotLifted(f"{self.operation.type} of unknown rank")
        return len(shape)

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Return the declared sizes of an operand."""
        bound = self._bound(name)
        stored = self.lifting.constant(bound)
        if stored is not None:
            return tuple(np.shape(stored.value))
        assert isinstance(bound, str)
        found = self.lifting.types[bound].shape
        if found is None:
            raise NotLifted(f"{self.operation.type} of unknown rank")
        return found

    def emit(self, value: ir.Value, place: int = 0) -> None:
        self.lifting.define(self.operation.outputs[place][0], value)
