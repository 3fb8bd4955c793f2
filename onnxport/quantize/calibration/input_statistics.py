"""Statistics that a network's first layer implies about its training inputs, compared with the given inputs.

A BatchNormalization keeps the mean and variance of each channel in training. Where it was folded away, the
convolution's bias is about as large as the spread of its results. Both are measured by running the model's first
nodes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxport.core.arrays import Array, median
from onnxport.formats.model import Model
from onnxport.quantize.calibration.subnormal_weights import flush_subnormals
from onnxport.quantize.float_graph import REFUSALS
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.value_uses import constant

Floats = np.ndarray[Any, np.dtype[np.float64]]

_FEW = 12  # nodes that the first layer may have before it
_DEAD = 1e-3  # of the median variance: a channel that says nothing


@dataclass
class Moments:
    """Count, sum and sum of squares per channel (axis 1)."""

    count: int = 0
    total: Floats | float = 0.0
    squares: Floats | float = 0.0

    def add(self, values: Array) -> None:
        flat = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1).astype(np.float64)
        self.count += flat.shape[1]
        self.total = self.total + flat.sum(axis=1)
        self.squares = self.squares + np.square(flat).sum(axis=1)

    @property
    def mean(self) -> Floats:
        return np.asarray(self.total / self.count)

    @property
    def variance(self) -> Floats:
        return np.maximum(np.asarray(self.squares / self.count) - self.mean**2, 0)


@dataclass(frozen=True)
class ExpectedStatistics:
    """The expected distribution of one value of the model."""

    node: str  # the name of the node that tells
    input: str  # the model's input that the value is computed from
    value: str
    session: onnxruntime.InferenceSession = field(repr=False)
    # mean, variance: float64[channels], of training; None where only `bias` tells.
    mean: Floats | None = None
    variance: Floats | None = None
    bias: Floats | None = None  # float64[channels], that of a convolution

    @classmethod
    def of(cls, model: Model) -> Self | None:
        """Read it from the first BatchNormalization, else the first convolution; None if neither is near an input."""
        told = [node for node in model.graph if node.op_type in ("BatchNormalization", "Conv")]
        norm = next((node for node in told if node.op_type == "BatchNormalization"), None)
        found = None if norm is None else cls._by_norm(model, norm)
        return found or (None if norm is not None or not told else cls._by_conv(model, told[0]))

    @classmethod
    def _by_norm(cls, model: Model, node: ir.Node) -> Self | None:
        if len(node.inputs) < 5 or node.inputs[0] is None:
            return None
        mean, variance = (constant(node.inputs[index]) for index in (3, 4))
        if mean is None or variance is None or not median(variance) > 0:
            return None
        start = _start(model, node.inputs[0])
        if start is None:
            return None
        return cls(node.name or "", *start, mean.astype(np.float64), variance.astype(np.float64))

    @classmethod
    def _by_conv(cls, model: Model, node: ir.Node) -> Self | None:
        bias = constant(node.inputs[2]) if len(node.inputs) > 2 else None
        start = None if bias is None else _start(model, node.outputs[0])
        if bias is None or start is None:
            return None
        return cls(node.name or "", *start, bias=bias.astype(np.float64))

    def measure(self, moments: Moments, array: Array) -> None:
        """Add the value that the input `array` produces; nothing where the model does not run on it."""
        with suppress(*REFUSALS):
            (values,) = self.session.run([self.value], {self.input: array})
            moments.add(values)

    def spread(self, moments: Moments) -> float | None:
        """Return the spread of the values relative to training, or to the bias; None if all channels are dead."""
        expected = self.variance if self.variance is not None else np.square(np.asarray(self.bias))
        live = (expected > _DEAD * median(expected)) & (moments.variance > 0)
        if not live.any():
            return None
        return median(np.sqrt(moments.variance[live] / expected[live]))

    def divergence(self, moments: Moments) -> float | None:
        """Return the mean KL divergence, in nats, of live channels from training, both taken as normal."""
        if self.mean is None or self.variance is None:
            return None
        live = self.variance > _DEAD * median(self.variance)
        ratio = (moments.variance[live] + 1e-12) / self.variance[live]
        shift = np.square(moments.mean[live] - self.mean[live]) / self.variance[live]
        return float(np.mean(0.5 * (ratio + shift - 1 - np.log(ratio))))


def _start(model: Model, value: ir.Value) -> tuple[str, str, onnxruntime.InferenceSession] | None:
    """Return the input that `value` depends on, its name and a session of the nodes between; None if there are many."""
    wanted = {node for node, _ in zip(_ancestors(value), range(_FEW + 1), strict=False)}
    read = {each for node in wanted for each in node.inputs if each is not None}
    given = [each for each in (*read, value) if each in model.graph.inputs and each.const_value is None]
    if len(wanted) > _FEW or len(set(given)) != 1:
        return None
    tensors = [
        onnx.numpy_helper.from_array(each.const_value.numpy(), each.name)
        for each in read
        if each.const_value is not None and each.producer() is None
    ]
    output = onnx.ValueInfoProto(name=value.name)
    nodes = [ir.to_proto(node) for node in model.graph if node in wanted]
    if not nodes:  # the input itself is what is normalized
        nodes = [onnx.helper.make_node("Identity", [value.name or ""], ["itself"])]
        output = onnx.ValueInfoProto(name="itself")
    graph = onnx.helper.make_graph(nodes, "start", [ir.to_proto(given[0])], [output], tensors)
    flush_subnormals(graph)
    imports = [onnx.helper.make_opsetid(*each) for each in model.ir.opset_imports.items()]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=model.ir.ir_version)
    try:
        session = open_session(proto.SerializeToString(), threads=1)  # several spin longer than they compute
    except REFUSALS:  # a domain that is not known here; whoever runs the whole model says so
        return None
    return given[0].name or "", output.name, session


def _ancestors(value: ir.Value) -> Iterator[ir.Node]:
    """Return the nodes that `value` is computed by, each once."""
    pending, seen = [value], set()
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer in seen:
            continue
        seen.add(producer)
        yield producer
        pending += [each for each in producer.inputs if each is not None]
