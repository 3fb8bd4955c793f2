"""Dynamic quantization: 8-bit weights, and activations whose scale is computed at run time.

A product becomes DynamicQuantizeLinear, MatMulInteger, Cast and Mul, which ONNX Runtime fuses to
DynamicQuantizeMatMul or MatMulIntegerToFloat. LSTM becomes its DynamicQuantizeLSTM, tables are looked up in 8 bits.
Convolutions stay in float: ConvInteger is slower than the float convolution (nudenet with VNNI: 0.9 of its speed with
unsigned weights, 0.2 with signed). Weights are signed: MatMulInteger with unsigned ones takes 1.6 times as long. On
x86 without VNNI, pairs of products u8 * s8 are summed in 16 bits, where 255 * 127 * 2 does not fit; with 7 bits it
does (`reduce_range`).
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.opset import lift
from onnxport.quantize.contract import QuantizationInputs, Quantized
from onnxport.quantize.eligibility import check_float, excluded_nodes
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.weights import recurrent, rtn
from onnxport.quantize.weights.discovery import (
    Found,
    Use,
    Weight,
    count_reasons,
    find_weights,
    format_count,
    keep_outputs,
    no_weight_error,
    prepare_copy,
)
from onnxport.quantize.weights.encoding import Encoding, Grids
from onnxport.quantize.weights.graph_edits import Shelf, register, remove_unused, replace_node
from onnxport.quantize.weights.onnx_operators import store_table

_OPSET = 11  # DynamicQuantizeLinear
_BITS, _REDUCED = 8, 7


def quantize(model: Model, params: QuantizeParams, setting: QuantizationInputs) -> Quantized:
    """Quantize the products, LSTM layers and tables of `model` dynamically; inner shapes are inferred anew.

    Raises:
        CannotConvertError: the model is quantized already, nothing in it can be, or it cannot be lifted to opset 11.
        UsageError: --exclude names what the model does not have.
    """
    check_float(model)
    changed = prepare_copy(model)
    if changed.opset < _OPSET:
        lift(changed.ir, _OPSET)
    found = find_weights(changed, exclude=excluded_nodes(model, changed, params.exclude))
    layers = recurrent.find_layers(found.weights)
    in_layers = {weight.value for pair in layers.values() for weight in pair}
    plan = [each for each in found.weights if each.is_table or _is_product(each)]
    done = in_layers | {each.value for each in plan}
    found.left.update(_reason(each) for each in found.weights if each.value not in done)
    if not done:
        raise no_weight_error(
            model, found, "quantize dynamically", "--int8-weights stores weights of convolutions, too"
        )
    bits = _REDUCED if params.reduce_range else _BITS
    with setting.watch.phase("weights"):
        _Writer(bits, Shelf(setting.folder)).write(plan)
        for node, pair in layers.items():
            recurrent.replace(node, pair, bits, Shelf(setting.folder))
    if layers:
        changed.ir.opset_imports[recurrent.DOMAIN] = 1
    shape_inference.infer(changed)
    keep_outputs(changed, model)
    return Quantized(changed, _notes(plan, layers, found), {"weights_left": dict(found.left)})


def _is_product(weight: Weight) -> bool:
    return weight.dtype == ir.DataType.FLOAT and all(use.is_plain_product for use in weight.uses)


def _reason(weight: Weight) -> str:
    """Return why a weight that could be stored in fewer bits is not multiplied in fewer."""
    operators = sorted({use.node.op_type for use in weight.uses})
    if operators == ["Conv"]:
        return "of Conv, which is slower on integers"
    return f"of {', '.join(operators)} in a form that has no dynamic kernel"


def _notes(plan: list[Weight], layers: recurrent.Layers, found: Found) -> tuple[str, ...]:
    tables = sum(weight.is_table for weight in plan)
    kinds = {"product": len(plan) - tables, "LSTM layer": len(layers), "table": tables}
    notes = [f"{format_count(count, kind)} on 8 bits" for kind, count in kinds.items() if count]
    return (*notes, *([f"weights that stay as they are: {count_reasons(found)}"] if found.left else []))


class _Writer:
    """Writes integer products; shared operands are quantized once."""

    def __init__(self, bits: int, shelf: Shelf) -> None:
        self._bits, self._shelf = bits, shelf
        self._quantized: dict[ir.Value, ir.Node] = {}

    def write(self, plan: list[Weight]) -> None:
        for weight in plan:
            encoding = rtn.round_nearest(weight.rows(), Grids(self._bits, weight.layout.row, symmetric=True))
            if weight.is_table:
                store_table(weight, encoding, self._shelf)
            else:
                self._multiply(weight, encoding)

    def _multiply(self, weight: Weight, encoding: Encoding) -> None:
        """Write (Cast(x @ W) * (scale of x * scales of W)) + bias, the form that ONNX Runtime fuses."""
        tensors = [
            (f"{weight.name}/int8", self._shelf.tensor(encoding.numbers.T.copy())),
            (f"{weight.name}/scale", self._shelf.tensor(encoding.scales[:, 0])),
            (f"{weight.name}/zero_point", self._shelf.tensor(encoding.zero_points[:, 0])),
        ]
        numbers, scales, zero_points = register(weight.graph, tensors)
        for use in weight.uses:
            self._replace(use, numbers, scales, zero_points)
        remove_unused(weight)

    def _replace(self, use: Use, numbers: ir.Value, scales: ir.Value, zero_points: ir.Value) -> None:
        node, bias = use.node, use.bias
        x, x_scale, x_zero_point = self._quantize(node)
        product = ir.node(
            "MatMulInteger", [x, numbers, x_zero_point, zero_points], name=f"{node.name}/integer"
        )
        floats = ir.node(
            "Cast", [product.outputs[0]], {"to": int(ir.DataType.FLOAT)}, name=f"{node.name}/cast"
        )
        scale = ir.node("Mul", [x_scale, scales], name=f"{node.name}/scale")
        name = node.name if bias is None else f"{node.name}/product"
        made = [product, floats, scale, ir.node("Mul", [floats.outputs[0], scale.outputs[0]], name=name)]
        if bias is not None:
            made.append(ir.node("Add", [made[-1].outputs[0], bias], name=node.name))
        replace_node(node, made)

    def _quantize(self, node: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the integers, scale and zero point of the operand of `node`."""
        source = node.inputs[0]
        assert source is not None, "a product has operands"
        if source not in self._quantized:
            made = ir.node("DynamicQuantizeLinear", [source], name=f"{source.name}/quantize", num_outputs=3)
            for value, kind in zip(made.outputs, ("uint8", "scale", "zero_point"), strict=True):
                value.name = f"{source.name}/{kind}"
            assert node.graph is not None
            node.graph.insert_before(node, made)
            self._quantized[source] = made
        x, scale, zero_point = self._quantized[source].outputs
        return x, scale, zero_point
