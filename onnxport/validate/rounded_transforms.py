"""Short-time Fourier transforms with a rounded matrix, as a file of float16 weights holds them.

ONNX computes an STFT inside one node. A converter stores its cosines and sines, which are rounded as weights are. So
the node becomes a convolution of the signal with them here (ONNX STFT-17):

    X[m, k] = sum over n of w[n] x[m step + n] exp(-2 pi i k n / N)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.samples.value_uses import constant

Rounding = Callable[[Array, str], Array]


def round_transforms(model: Model, rounding: Rounding) -> set[str]:
    """Replace every STFT of a real signal by its convolution, in place.

    Args:
        rounding: of a matrix [frame length, bins], with a name for it.

    Returns:
        The names of the kernels, whose window is not rounded.
    """
    kernels = set()
    for node in list(model.graph):
        if node.op_type == "STFT" and not node.domain and (kernel := _kernel(node, rounding)) is not None:
            kernels.add(_replace(model.graph, node, kernel))
    if kernels:
        common.RemoveUnusedNodesPass()(model.ir)
    return kernels


def _kernel(node: ir.Node, rounding: Rounding) -> Array | None:
    """Return the convolution's weights [2 bins, 1, frame length]; None where they or the step are computed."""
    signal, step, window, frame = (*node.inputs, None, None)[:4]
    given, length = constant(window), constant(frame)
    if signal is None or signal.shape is None or constant(step) is None or signal.dtype != ir.DataType.FLOAT:
        return None
    if len(signal.shape) == 3 and signal.shape[2] != 1:
        return None
    if (window is not None and given is None) or (given is None and length is None):
        return None
    size = given.size if given is not None else int(np.asarray(length).item())
    bins = size // 2 + 1 if node.attributes.get_int("onesided", 1) else size
    angles = 2 * np.pi / size * (np.arange(size)[:, None] * np.arange(bins) % size)
    name = node.outputs[0].name or ""
    waves = [rounding(wave.astype(np.float32), f"{name}/{part}") for part, wave in _waves(angles)]
    weighted = [wave * (1 if given is None else given.reshape(-1, 1)) for wave in waves]
    return np.stack([weighted[0], -weighted[1]], -1).reshape(size, 2 * bins).T[:, None].astype(np.float32)


def _waves(angles: Array) -> tuple[tuple[str, Array], tuple[str, Array]]:
    return ("cosine", np.cos(angles)), ("sine", np.sin(angles))


def _replace(graph: ir.Graph, node: ir.Node, kernel: Array) -> str:
    """Put Conv [N, 2 bins, frames] in the place of an STFT [N, frames, bins, 2]; return the kernel's name."""
    signal, result = node.inputs[0], node.outputs[0]
    assert signal is not None
    assert signal.shape is not None
    name = result.name or ""
    step = int(np.asarray(constant(node.inputs[1])).item())

    def stored(part: str, values: Array) -> ir.Value:
        value = ir.Value(name=f"{name}/{part}", const_value=ir.tensor(values, name=f"{name}/{part}"))
        graph.register_initializer(value)
        return value

    weights = stored("kernel", kernel)
    rows = ir.node("Reshape", [signal, stored("row", np.array([0, 1, -1]))])
    conv = ir.node("Conv", [rows.outputs[0], weights], {"strides": [step]})
    pairs = ir.node("Reshape", [conv.outputs[0], stored("pairs", np.array([0, kernel.shape[0] // 2, 2, -1]))])
    turned = ir.node("Transpose", [pairs.outputs[0]], {"perm": [0, 3, 1, 2]})
    made = [rows, conv, pairs, turned]
    for number, each in enumerate(made):
        each.name = each.outputs[0].name = f"{name}/transform_{number}"
    for user, position in list(result.uses()):
        user.replace_input_with(position, turned.outputs[0])
    graph.insert_after(node, made)
    for position, output in enumerate(graph.outputs):
        if output is result:
            result.name, turned.outputs[0].name = f"{name}/exact", name
            turned.outputs[0].type, turned.outputs[0].shape = result.type, result.shape
            graph.outputs[position] = turned.outputs[0]
    return weights.name or ""
