"""A TensorFlow model as a Framework: one function of tensors by name, run as it is and traced for export."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, UsageError
from onnxport.exporters.framework import Exported
from onnxport.exporters.params import DTYPES, ExportParams
from onnxport.exporters.sources import Source
from onnxport.exporters.tensorflow.conversion import TracedFunction, write
from onnxport.exporters.tensorflow.library import TENSORFLOW, dtype_name, tf
from onnxport.exporters.tensorflow.signatures import DeclaredInput, bind_inputs, leaves
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.runtimes.base import MemoryFullError, RunError


@dataclass(frozen=True)
class Callee:
    """The function to run."""

    call: Callable[[Mapping[str, Any]], Any]  # tensors by name -> what the model gives, in any structure
    inputs: tuple[DeclaredInput, ...]  # in the model's order
    # Its names for what it gives, in the order of `leaves`; () where it has none of its own.
    outputs: tuple[str, ...] = ()
    owner: Any = None  # what holds its variables and tables
    engine: str = TENSORFLOW
    notes: tuple[str, ...] = ()
    # Called once it has been traced, which builds a Keras model: its weights can be loaded then.
    ready: Callable[[], None] = field(default=lambda: None)


class TensorflowModel:
    """See Framework."""

    kind = "tensorflow"
    has_other_kernels = True

    def __init__(self, callee: Callee, source: Source, params: ExportParams) -> None:
        self._callee, self._source = callee, source
        self.name = f"{callee.engine}, CPU"
        self.inputs = bind_inputs(callee.inputs, params, source.name)
        self._paths: tuple[str, ...] = ()
        traced = self._trace()
        callee.ready()
        self.outputs = tuple(map(self._output, self._names(params), traced.outputs[: len(self._paths)]))
        self._traced = traced
        # Not the traced one: tf2onnx takes its tables away from it.
        self._compiled, self._optimized = self._function(jit_compile=True), self._function()

    def export(self, output: Path, opset: int | None) -> Exported:
        """See Framework.export."""
        traced = TracedFunction(
            self._traced, self.inputs, self.outputs, self._callee.owner, self._source.name
        )
        return write(traced, output, opset, self._callee.notes)

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        """See Framework.run; other kernels are XLA's, or the unoptimized graph's for operators that XLA lacks."""
        tensors = [tf.convert_to_tensor(feeds[spec.name]) for spec in self.inputs]
        try:
            answers = self._by_others(tensors) if other_kernels else self._flat(self._callee.call, *tensors)
            arrays = [np.asarray(answer) for answer in answers]
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryFullError(
                f"{self._source.name} needs more memory than there is", why=first_line(error)
            ) from error
        except (tf.errors.OpError, ValueError, TypeError) as error:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            raise RunError(
                f"TensorFlow cannot run {self._source.name} on {shapes}", why=first_line(error)
            ) from error
        return {
            spec.name: array if spec.dtype == "string" else array.astype(spec.dtype, copy=False)
            for spec, array in zip(self.outputs, arrays, strict=True)
        }

    def _by_others(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Run XLA's kernels, which take seconds for each new shape; else those of the unoptimized graph.

        The graph optimizer changes only convolutions: it shows nothing of basic-pitch, which divides rounding errors.
        """
        try:
            compiled: Sequence[Any] = self._compiled(*tensors)
        except (tf.errors.OpError, ValueError, TypeError):
            compiled = self._optimized(*tensors)
        return compiled

    def _flat(self, call: Callable[[Mapping[str, Any]], Any], *tensors: Any) -> list[Any]:
        """Return the function from tensors to tensors; record the paths of the results."""
        named = {spec.name: tensor for spec, tensor in zip(self.inputs, tensors, strict=True)}
        found = list(leaves(call(named)))
        self._paths = tuple(path for path, _ in found)
        return [tf.identity(each) for _, each in found]

    def _function(self, **options: Any) -> Any:
        """Return the function as a graph; Python ifs and loops over tensors become the graph's."""
        converted = tf.function(self._callee.call)
        return tf.function(partial(self._flat, converted), autograph=False, **options)

    def _trace(self) -> Any:
        try:  # sizes may be below 0 in a damaged file
            signature = [
                tf.TensorSpec(
                    [dim if isinstance(dim, int) else None for dim in spec.shape],
                    spec.dtype,
                    name=f"input_{n}",
                )
                for n, spec in enumerate(self.inputs)
            ]
            return self._function().get_concrete_function(*signature)
        except (tf.errors.OpError, ValueError, TypeError, KeyError, AttributeError) as error:
            taken = ", ".join(map(str, self.inputs))
            raise InputError(f"{self._source.name} raises on {taken}", why=first_line(error)) from error

    def _names(self, params: ExportParams) -> tuple[str, ...]:
        names = params.output_names or self._callee.outputs or self._paths
        if len(names) != len(self._paths):
            raise UsageError(
                f"{self._source.name} gives {len(self._paths)} outputs, --output-names names {len(names)}",
                fix=f"name each of {', '.join(self._callee.outputs or self._paths)}",
            )
        clash = {spec.name for spec in self.inputs} & set(names)
        return tuple(f"{name}_out" if name in clash else name for name in names)

    def _output(self, name: str, tensor: Any) -> TensorSpec:
        dtype = dtype_name(tensor.dtype)
        if dtype not in DTYPES:
            raise UsageError(f"output {name!r} is {dtype}, which ONNX files do not give")
        if tensor.shape.rank is None:
            raise UsageError(f"output {name!r} has no fixed rank, which an ONNX file cannot describe")
        return TensorSpec(name, dtype, tuple(self._output_dims(tensor.shape.as_list())))

    def _output_dims(self, shape: Sequence[int | None]) -> list[Dim]:
        """Name the first open dimension "batch" where it is the first of all inputs."""
        firsts = {spec.shape[0] for spec in self.inputs if spec.shape}
        first = firsts.pop() if len(firsts) == 1 else None
        return [
            (first if isinstance(first, str) and axis == 0 else None) if dim is None else dim
            for axis, dim in enumerate(shape)
        ]


def first_line(error: BaseException) -> str:
    """Return a message on one line, without colours, tracebacks and dumps of arguments."""
    text = _COLOURS.sub("", str(getattr(error, "message", "") or error)).partition("Arguments received by")[0]
    text = text.partition("Exception encountered when")[2].partition("\n")[2] or text
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and not line.startswith(_PLACES)]
    return f"{type(error).__name__}: {' '.join(telling)[:400]}" if telling else type(error).__name__


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLACES = ("File ", "Traceback", "Detected at node", "Stack trace", "[[", "in user code", "~", "^")
