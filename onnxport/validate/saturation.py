"""The loss of a quantized ONNX model on x86 CPUs without VNNI, computed on any machine.

There ONNX Runtime adds products of uint8 activations and int8 weights in pairs of neighbours along the depth, and each
sum saturates at 16 bits (runtimes/ort/integer_products.py). A pair can saturate if 255 times the sum of its weights
leaves 16 bits. Nodes added to the graph compute the loss of such pairs from the activation's codes and subtract it
from the product's result:

    lost[n] = sum over pairs (i, i + 1) of v - clip(v, -2^15, 2^15 - 1),   v = x[i] w[i, n] + x[i + 1] w[i + 1, n]

The order along the depth is that of ONNX Runtime's kernels: input channels innermost, then columns, then rows of the
window. Depthwise convolutions and ConvInteger do not saturate; a convolution whose result is not quantized runs in
float. Stacks of matrices, transposed activations and padding by name are left out. A chain of products then answers
like such a CPU to float32's last bits (tests/validate/test_saturation.py); a deep model may round differently, since
its products run in float here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.runtimes.ort.integer_products import holds_integer_products
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.report import SaturatingNode, Saturation

if TYPE_CHECKING:
    from onnxport.validate.reference import Reference

_LOW, _HIGH = -(2**15), 2**15 - 1
_CODE = 255
# A pair whose sum is larger saturates when both activations have their largest code.
MOST = _HIGH // _CODE
# Elements of one product's correction weights; beyond, only the strongest pairs count.
_MOST_ELEMENTS = 32 * 2**20
_UINT8, _FLOAT = ir.DataType.UINT8, ir.DataType.FLOAT
_SUFFIX = "/lost to saturation"


@dataclass(frozen=True)
class Product:
    """A product of uint8 activations and constant int8 weights whose pairs of sums may leave 16 bits.

    Attributes:
        codes: the uint8 activation.
        zero_point: its code of 0, used for padding.
        scale: of one unit of the sum in the result: per output channel, or one number.
        stored: its int8 weights as the model has them.
        weights: the same as [channels, depth], in the order in which kernels add.
        pairs: int[pairs, 2], output channel and depth of the pair's first product; the strongest first.
    """

    node: ir.Node
    codes: ir.Value
    zero_point: int
    scale: Array
    stored: Array
    weights: Array
    pairs: Array

    @property
    def name(self) -> str:
        return self.node.name or self.node.outputs[0].name or ""


def depth_first(weights: Array, op: str, *, transposed: bool = False) -> Array:
    """Return a product's weights as [channels, depth], in the order in which ONNX Runtime's kernels add."""
    if op.startswith("Conv"):
        return weights.transpose(0, *range(2, weights.ndim), 1).reshape(len(weights), -1)
    matrix = weights if transposed else np.swapaxes(weights, -1, -2)
    return matrix.reshape(-1, matrix.shape[-1])


def pair_sums(weights: Array) -> Array:
    """Return int32[channels, pairs], the sums of neighbours along the depth; an odd last one is alone."""
    wide = weights.astype(np.int32)
    if wide.shape[1] % 2:
        wide = np.pad(wide, ((0, 0), (0, 1)))
    return np.asarray(wide[:, 0::2] + wide[:, 1::2])


def products(model: Model) -> list[Product]:
    """Return the products that may saturate; the model's element types must be inferred."""
    return [each for node in model.graph if (each := _product(node)) is not None and len(each.pairs)]


def emulate(model: Model) -> tuple[Model, list[Product]] | None:
    """Copy a model so that it answers as on a CPU without VNNI; None if no product can saturate.

    Returns:
        The copy, and its products that may saturate.
    """
    copy = model.clone()
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(copy.ir)
    found = products(copy)
    for each in found:
        _subtract_lost(each)
    return (copy, found) if found else None


def measure_losses(model: Model, found: Sequence[Product], sets: Sequence[Feeds]) -> list[SaturatingNode]:
    """Measure what every product of an emulated model loses on these inputs, the largest loss first."""
    taps = [name for each in found for name in (each.name + _SUFFIX, each.name + _SUFFIX + "/right")]
    lost = {each.name: [0, 0, 0.0, 0.0] for each in found}
    with OrtRuntime.of_model(model) as runtime:
        for feeds in sets:
            values = runtime.run(feeds, taps=taps)
            for name, sums in lost.items():
                off, right = (values[name + _SUFFIX + each].astype(np.float64) for each in ("", "/right"))
                sums[0] += int(np.count_nonzero(off))
                sums[1] += off.size
                sums[2] += float(np.square(off).sum())
                sums[3] += float(np.square(right).sum())
    nodes = [
        SaturatingNode(
            node=each.name,
            op=each.node.op_type,
            share=count / total,
            sqnr_db=10 * float(np.log10(signal / noise)),
        )
        for each in found
        for count, total, noise, signal in [lost[each.name]]
        if noise and signal
    ]
    return sorted(nodes, key=lambda each: each.sqnr_db)


def _product(node: ir.Node) -> Product | None:
    if node.op_type == "MatMulInteger":
        return _integer_product(node)
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.domain or _int_attribute(node, "transA", 0):
        return None
    activation, weight = (_dequantized(node.inputs[place]) for place in (0, 1))
    if activation is None or weight is None:
        return None
    operands = _mixed_operands(node, activation.inputs[0], _constant(weight.inputs[0]))
    if operands is None:
        return None
    codes, numbers = operands
    if node.op_type == "Conv" and not (_is_emulated(node, numbers) and _is_quantized(node.outputs[0])):
        return None
    x_scale, w_scale = _constant(activation.inputs[1]), _constant(weight.inputs[1])
    if x_scale is None or w_scale is None:
        return None
    weights = depth_first(numbers, node.op_type, transposed=_int_attribute(node, "transB", 0) == 1)
    scale = np.asarray(x_scale * w_scale * _alpha(node), np.float32).reshape(-1)
    return Product(node, codes, _zero_point(activation), scale, numbers, weights, _pairs(weights, numbers))


def _integer_product(node: ir.Node) -> Product | None:
    operands = _mixed_operands(node, node.inputs[0], _constant(node.inputs[1]))
    if operands is None:
        return None
    codes, numbers = operands
    weights = depth_first(numbers, node.op_type)
    return Product(node, codes, 0, np.ones(1, np.float32), numbers, weights, _pairs(weights, numbers))


def _mixed_operands(
    node: ir.Node, codes: ir.Value | None, numbers: Array | None
) -> tuple[ir.Value, Array] | None:
    """Return the operands if they are uint8, and an int8 matrix or int8 windows; else None."""
    if codes is None or codes.dtype != _UINT8 or numbers is None or numbers.dtype != np.int8:
        return None
    return (codes, numbers) if node.op_type == "Conv" or numbers.ndim == 2 else None


def _alpha(node: ir.Node) -> float:
    return node.attributes["alpha"].as_float() if "alpha" in node.attributes else 1.0


def _int_attribute(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _is_emulated(node: ir.Node, weights: Array) -> bool:
    """Return whether a convolution can saturate and is emulated here."""
    is_depthwise = weights.shape[1] == 1 and _int_attribute(node, "group", 1) > 1
    padded = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    return padded in ("NOTSET", "VALID") and not is_depthwise


def _is_quantized(value: ir.Value) -> bool:
    """Return whether a convolution's result is quantized; else it runs in float."""
    users = [user for user, _ in value.uses()]
    if len(users) == 1 and users[0].op_type in ("Relu", "Clip"):
        users = [user for user, _ in users[0].outputs[0].uses()]
    return bool(users) and all(user.op_type == "QuantizeLinear" for user in users)


def _dequantized(value: ir.Value | None) -> ir.Node | None:
    producer = value.producer() if value is not None else None
    return producer if producer is not None and producer.op_type == "DequantizeLinear" else None


def _constant(value: ir.Value | None) -> Array | None:
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def _zero_point(dequantize: ir.Node) -> int:
    point = _constant(dequantize.inputs[2]) if len(dequantize.inputs) > 2 else None
    return 0 if point is None else int(point)


def _pairs(weights: Array, stored: Array) -> Array:
    """Return Product.pairs, up to the largest size of the correction."""
    sums = np.abs(pair_sums(weights))
    channels, places = np.nonzero(sums > MOST)
    order = np.argsort(-sums[channels, places], kind="stable")
    per_pair = stored[0].size if stored.ndim > 2 else 1
    kept = order[: max(1, _MOST_ELEMENTS // (per_pair + len(weights)))]
    return np.stack([channels[kept], 2 * places[kept]], axis=1)


def _subtract_lost(product: Product) -> None:
    """Insert the correction behind a product."""
    node = product.node
    assert isinstance(node.graph, ir.Graph)
    build = _Builder(node.graph, product.name)
    codes = build.node("Cast", [product.codes], {"to": int(_FLOAT)})
    is_window = node.op_type == "Conv"
    sums = _window_sums(build, product, codes) if is_window else _row_sums(build, product, codes)
    limits = [build.constant(np.float32(each)) for each in (_LOW, _HIGH)]
    excess = build.node("Sub", [sums, build.node("Clip", [sums, *limits])])
    where = np.zeros((len(product.pairs), len(product.weights)), np.float32)
    where[np.arange(len(where)), product.pairs[:, 0]] = 1
    # float32 holds sums of that size; MatMulInteger's unit is 1.
    where *= np.broadcast_to(product.scale, len(product.weights))
    if is_window:
        ones = (1,) * (product.stored.ndim - 2)
        lost = build.node("Conv", [excess, build.constant(where.T.reshape(*where.T.shape, *ones))])
    else:
        lost = build.node("MatMul", [excess, build.constant(where)])
    lost.name = product.name + _SUFFIX
    right = node.outputs[0]
    uses = list(right.uses())
    correction: ir.Value = lost
    if node.op_type == "MatMulInteger":
        rounded = build.node("Round", [lost])
        correction = build.node("Cast", [rounded], {"to": int(ir.DataType.INT32)})
        shown = build.node("Cast", [right], {"to": int(_FLOAT)})
    else:
        shown = build.node("Identity", [right])
    shown.name = product.name + _SUFFIX + "/right"
    left = build.node("Sub", [right, correction])
    for user, place in uses:
        user.replace_input_with(place, left)
    for place, output in enumerate(node.graph.outputs):
        if output is right:
            name = right.name
            right.name, left.name = f"{name}/exact", name
            left.type, left.shape = right.type, right.shape
            node.graph.outputs[place] = left
    build.insert(node)


def _row_sums(build: _Builder, product: Product, codes: ir.Value) -> ir.Value:
    """Add the sum of each pair of a matrix product, float[..., pairs]."""
    channels, first = product.pairs.T
    depth = product.weights.shape[1]
    second = np.minimum(first + 1, depth - 1)
    weights = [
        product.weights[channels, first].astype(np.float32),
        np.where(first + 1 < depth, product.weights[channels, second], 0).astype(np.float32),
    ]
    terms = [
        build.node(
            "Mul",
            [
                build.node("Gather", [codes, build.constant(places.astype(np.int64))], {"axis": -1}),
                build.constant(values),
            ],
        )
        for places, values in zip((first, second), weights, strict=True)
    ]
    return build.node("Add", terms)


def _window_sums(build: _Builder, product: Product, codes: ir.Value) -> ir.Value:
    """Add the sum of each pair of a convolution at every place, float[batch, pairs, ...]."""
    node = product.node
    groups, (outputs, inputs, *window) = _int_attribute(node, "group", 1), product.stored.shape
    taps = np.zeros((len(product.pairs), inputs * groups, *window), np.float32)
    for row, (channel, first) in enumerate(product.pairs):
        base = channel // (outputs // groups) * inputs
        for place in (first, first + 1):
            if place < product.weights.shape[1]:
                *at, own = np.unravel_index(place, (*window, inputs))
                taps[(row, base + int(own), *(int(each) for each in at))] = product.weights[channel, place]
    spatial = len(window)
    pads = node.attributes["pads"].as_ints() if "pads" in node.attributes else [0] * (2 * spatial)
    if any(pads):
        ends = [0, 0, *pads[:spatial], 0, 0, *pads[spatial:]]
        fill = build.constant(np.float32(product.zero_point))
        codes = build.node("Pad", [codes, build.constant(np.array(ends, np.int64)), fill])
    kept = {name: node.attributes[name] for name in ("strides", "dilations") if name in node.attributes}
    return build.node("Conv", [codes, build.constant(taps)], kept)


class _Builder:
    """Makes nodes with unique names, and inserts them behind another node."""

    def __init__(self, graph: ir.Graph, prefix: str) -> None:
        self._graph, self._prefix, self._count = graph, prefix, 0
        self._made: list[ir.Node] = []

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}/saturation/{self._count}"

    def constant(self, values: Any) -> ir.Value:
        return add_initializer(self._graph, self._name(), np.asarray(values))

    def node(
        self, op: str, inputs: Sequence[ir.Value], attributes: Mapping[str, Any] | None = None
    ) -> ir.Value:
        made = ir.node(op, inputs, attributes, name=self._name())
        made.outputs[0].name = made.name
        self._made.append(made)
        return made.outputs[0]

    def insert(self, node: ir.Node) -> None:
        self._graph.insert_after(node, self._made)


_REPORTED = 0.5  # dB
_SETS = 4  # of inputs


def measure_saturation(reference: Reference, candidate: Artifact) -> Saturation | None:
    """Work out what a quantized ONNX candidate with the reference's names loses on x86 CPUs without VNNI."""
    if candidate.format != "onnx" or reference.steps > 1:
        return None
    from onnxport.validate.precision.onnx import read_unchecked

    if not holds_integer_products(candidate.path) or (model := read_unchecked(candidate.path)) is None:
        return None
    names = {spec.name: spec.dtype for spec in reference.outputs}
    if {spec.name for spec in model.outputs} != names.keys():
        return None
    ordinary = [each for each in reference.sets if each.is_usual]
    taken = {spec.name for spec in model.inputs}
    sets = [
        ({name: array for name, array in feeds.items() if name in taken}, answers)
        for feeds, answers in map(reference.answers, ordinary[:_SETS])
    ]
    try:
        return _saturation(model, sets, [name for name, dtype in names.items() if dtype.startswith("float")])
    except OnnxportError:
        return None  # a finding beside the verdict, which stands without it


def _saturation(
    candidate: Model, sets: Sequence[tuple[Feeds, Mapping[str, Array]]], outputs: Sequence[str]
) -> Saturation | None:
    """Return what a candidate loses where its sums saturate; None for less than 0.5 dB.

    Args:
        sets: inputs and the float reference's answers to them.
        outputs: the float outputs.
    """
    made = emulate(candidate)
    if made is None:
        return None
    model, found = made
    lost = measure_losses(model, found, [feeds for feeds, _ in sets])
    if not lost:
        return None
    exact, saturated = (_sqnr(each, sets, outputs) for each in (candidate, model))
    if exact - saturated < _REPORTED:
        return None
    return Saturation(exact_db=exact, saturated_db=saturated, nodes=tuple(lost))


def _sqnr(model: Model, sets: Sequence[tuple[Feeds, Mapping[str, Array]]], outputs: Sequence[str]) -> float:
    """Return the SQNR in dB of the worst output over all sets."""
    sums = {name: np.zeros(2) for name in outputs}
    with OrtRuntime.of_model(model) as runtime:
        for feeds, wanted in sets:
            given = runtime.run(feeds)
            for name, each in sums.items():
                ours, theirs = (side[name].astype(np.float64) for side in (wanted, given))
                each += np.square(ours).sum(), np.square(theirs - ours).sum()
    found = [10 * np.log10(signal / noise) for signal, noise in sums.values() if signal and noise]
    return float(min(found, default=np.inf))
