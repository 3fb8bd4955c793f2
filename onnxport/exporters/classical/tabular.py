"""TabularModel: an estimator or booster as a Framework.

It takes one tensor [N, C] of all columns, or a tensor [N, 1] per column where their types differ. It reads float64,
even where the ONNX file says float32, and the judge hands each side its own (validate/sessions.py). So the proof
shows where float32 falls on the other side of a threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.exporters.framework import Exported
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.base import RunError
from onnxport.samples.domain import Domain

# The open first dimension of every tensor.
ROWS = "batch"

# Makes the ONNX model at an opset, None for the exporter's own.
Convert = Callable[[int | None], onnx.ModelProto]
# Answers by output name; shapes may lack or have a last axis of 1 that the ONNX output has or lacks.
Answer = Callable[[Feeds], Mapping[str, Any]]


@dataclass(frozen=True)
class Columns:
    """The inputs of the ONNX file."""

    specs: tuple[TensorSpec, ...]  # one tensor [ROWS, C], or one [ROWS, 1] per column
    names: tuple[str, ...] = ()  # the features in their order; empty where nobody named them

    @classmethod
    def one_tensor(cls, name: str, dtype: str, count: int, names: Sequence[str] = ()) -> Columns:
        return cls((TensorSpec(name, dtype, (ROWS, count)),), tuple(names))

    @classmethod
    def each(cls, dtypes: Mapping[str, str]) -> Columns:
        """Return a tensor per column, name to dtype."""
        specs = tuple(TensorSpec(name, dtype, (ROWS, 1)) for name, dtype in dtypes.items())
        return cls(specs, tuple(dtypes))


def widen(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the inputs in float64."""
    return tuple(
        TensorSpec(spec.name, "float64" if spec.dtype == "float32" else spec.dtype, spec.shape)
        for spec in specs
    )


class TabularModel:
    """A Framework of two functions: `convert` and `answer`.

    Args:
        kind: a key of sources.KINDS.
        name: what answers: "scikit-learn 1.9.1".
        exporter: what converts: "skl2onnx 1.20.0".
        inputs: what `answer` takes, in its own types (`widen`).
        other_answer: answers with ties broken otherwise.
        classes: of a classifier, in the order of its probabilities.

    Raises:
        CannotConvertError: `convert` raises it; the outputs are known from a first conversion.
    """

    has_other_kernels: bool = False
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        kind: str,
        name: str,
        exporter: str,
        inputs: Sequence[TensorSpec],
        convert: Convert,
        answer: Answer,
        other_answer: Answer | None = None,
        features: Sequence[str] = (),
        domains: Mapping[str, Domain] | None = None,
        classes: Sequence[int | str] = (),
    ) -> None:
        self._classes = list(classes)
        self.features, self.domains = tuple(features), domains or {}
        self.kind, self.name, self._exporter = kind, name, exporter
        self.inputs = tuple(inputs)
        self._convert, self._answer, self._other_answer = convert, answer, other_answer
        if other_answer is not None:
            self.has_other_kernels = True
        self._model = convert(None)
        self.outputs = tuple(map(_spec, self._model.graph.output))

    def export(self, output: Path, opset: int | None) -> Exported:
        model = self._model if opset is None else self._convert(opset)
        output.write_bytes(model.SerializeToString(deterministic=True))
        facts = {"exporter": self._exporter} | ({"classes": self._classes} if self._classes else {})
        return Exported(output, self.notes, facts)

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        answer = self._other_answer if other_kernels and self._other_answer else self._answer
        try:
            answers = answer(feeds)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise RunError(f"{self.name} refuses these inputs", why=first_line(error)) from error
        return self.shaped(answers)

    def shaped(self, answers: Mapping[str, Any]) -> dict[str, Array]:
        """Return the answers as the ONNX outputs have them."""
        return {spec.name: _cast_answer(spec, answers[spec.name]) for spec in self.outputs}


def _cast_answer(spec: TensorSpec, answer: Any) -> Array:
    """Return the answer in the dtype and rank of the ONNX output."""
    array = np.asarray(answer)
    array = array.astype(str).astype(object) if spec.dtype == "string" else array.astype(spec.dtype)
    if len(spec.shape) == array.ndim + 1:
        return array[:, None]
    if len(spec.shape) == array.ndim - 1 and array.shape[-1] == 1:
        return array[..., 0]
    return array


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    dtype = "string"
    if tensor.elem_type != onnx.TensorProto.STRING:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    dims = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
    )
    return TensorSpec(value.name, dtype, dims)


def first_line(error: BaseException) -> str:
    """Return the first line of a library's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
