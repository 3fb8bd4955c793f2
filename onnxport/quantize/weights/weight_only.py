"""Weight-only quantization: weights in 8 or 4 bits, arithmetic in floats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.opset import lift
from onnxport.quantize.contract import QuantizationInputs, Quantized
from onnxport.quantize.eligibility import check_float, excluded_nodes
from onnxport.quantize.float_graph import simplify_for_quantization
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.weights import nbits
from onnxport.quantize.weights.discovery import (
    Found,
    count_reasons,
    find_weights,
    format_count,
    keep_outputs,
    no_weight_error,
    prepare_copy,
)
from onnxport.quantize.weights.graph_edits import Shelf
from onnxport.quantize.weights.plan import PlannedWeight, plan_weight
from onnxport.quantize.weights.product_inputs import Batch, find_tap, split_into_batches


def quantize(model: Model, params: QuantizeParams, setting: QuantizationInputs) -> Quantized:
    """Store the weights of products, tables and recurrent layers in 8 or 4 bits.

    One weight at a time is in memory; finished ones of more than a megabyte wait in a file.

    Raises:
        CannotConvertError: the model is quantized already, no weight can be stored so, or the opset cannot be lifted.
        UsageError: --exclude names what the model does not have.
    """
    check_float(model)
    source = model
    if any(node.op_type == "BatchNormalization" for node in model.graph):
        with setting.watch.phase("simplify"):  # behind packed weights nothing can fold it
            source = simplify_for_quantization(model, setting.folder).model
    changed = prepare_copy(source)
    exclude = excluded_nodes(model, changed, params.exclude)
    found, plan = _plan(changed, params, exclude)
    oldest = max((each.opset for each in plan), default=0)
    if changed.opset < oldest:
        lift(changed.ir, oldest)
        found, plan = _plan(changed, params, exclude)
    if not plan:
        raise no_weight_error(model, found, "store in fewer bits")
    kinds = _store(changed, plan, params, setting)
    if any(each.form == "contrib" for each in plan):
        changed.ir.opset_imports[nbits.DOMAIN] = 1
    shape_inference.infer(changed)
    keep_outputs(changed, model)
    notes = [f"{format_count(count, 'weight')} as {kind}" for kind, count in kinds.most_common()]
    if model.opset < oldest:
        notes.insert(0, f"lifted from opset {model.opset} to {oldest}, which has the operators")
    if found.left:
        notes.append(f"weights that stay as they are: {count_reasons(found)}")
    return Quantized(changed, tuple(notes), {"weights": dict(kinds), "weights_left": dict(found.left)})


def _plan(model: Model, params: QuantizeParams, exclude: frozenset[str]) -> tuple[Found, list[PlannedWeight]]:
    found = find_weights(model, exclude=exclude)
    return found, [plan_weight(weight, params) for weight in found.weights]


def _store(
    model: Model, plan: Sequence[PlannedWeight], params: QuantizeParams, setting: QuantizationInputs
) -> Counter[str]:
    """Store all weights of the plan in place; return counts by kind."""
    kinds: Counter[str] = Counter()
    graph, shelf = model.graph, Shelf(setting.folder)
    source = setting.folder / "observed.onnx"
    by_samples = params.rounding == "gptq"
    if by_samples:
        model.hand_over(source)
    for batch in split_into_batches(plan, graph) if by_samples else [Batch(tuple(plan), frozenset())]:
        grams = batch.grams(source, params, setting)
        with setting.watch.phase("weights"):
            for number, each in enumerate(batch.plan):
                tap = find_tap(each, graph)
                encoding = each.encoding(params.rounding, grams.get(tap) if tap else None)
                group = "row" if encoding.scales.shape[1] == 1 else f"block of {encoding.grids.block}"
                sign = "" if encoding.grids.symmetric else "u"
                kinds[f"{sign}int{encoding.grids.bits} with a scale per {group}"] += 1
                each.store(encoding, shelf)
                setting.watch.progress(number + 1, len(batch.plan))
    return kinds
