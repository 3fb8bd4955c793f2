"""`optimize`: fix sizes, convert the opset, simplify, prune, convert to float16; in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxport.core.arrays import Feeds
from onnxport.formats.model import Model
from onnxport.optimizers.fixed_shapes import pin_shapes
from onnxport.optimizers.opset import convert_opset
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.passes import Equivalence, Rewritten
from onnxport.optimizers.shape_inference import drop_value_info
from onnxport.optimizers.simplification.graph import PLAIN_ATTRIBUTES, measure_size
from onnxport.optimizers.unused_inputs import prune_inputs, unread_inputs


def optimize(
    model: Model,
    params: OptimizeParams,
    folder: Path,
    samples: Sequence[Feeds],
    *,
    equivalence: Equivalence | None,
    phase: Callable[[str], AbstractContextManager[None]],
) -> Rewritten:
    """Return an optimized copy of `model`; unchanged weights are shared.

    Its facts are pairs [before, after]. "changed": nodes, parameters, bytes and opset of the model. "passes": the
    same of each pass, without the opset, and "skipped", the reason or None.

    Args:
        folder: for temporary files.
        samples: the user's inputs, for measuring values for float16.
        equivalence: checks intermediate models; None for no check.

    Raises:
        UsageError: sizes that do not fit the model.
        CannotConvertError: nodes without a form at the opset, or nothing that can be float16.
    """
    from onnxport.optimizers.canonical_form import without_impossible_branches
    from onnxport.optimizers.float16.conversion import to_float16
    from onnxport.optimizers.simplification import simplify

    work, notes, rows, facts = model.clone(), list[str](), list[dict[str, Any]](), dict[str, Any]()

    @contextmanager
    def step(name: str) -> Iterator[None]:
        """Run a step as a phase of the progress display and as a row of the report."""
        before, opset = measure_size(work), work.opset
        with phase(name):
            yield
        row = {"pass": name, **before.change(measure_size(work)), "skipped": None}
        rows.append(row if work.opset == opset else row | {"opset": [opset, work.opset]})

    if params.shape:
        with step("fix sizes"):
            notes += pin_shapes(work, params.shape)
            # ONNX Runtime does not load an If with a branch that the sizes contradict.
            work, dropped = without_impossible_branches(work)
            if dropped:
                notes.append(f"{dropped} If replaced by the only branch that can run at these sizes")
    if params.opset is not None:
        with step("opset"):
            converted = convert_opset(work, params.opset)
            work, notes = converted.model, [*notes, *converted.notes]
    if params.simplify:
        with phase("simplify"):
            simpler = simplify(work, params, folder, equivalence=equivalence)
        work, notes = simpler.model, [*notes, *simpler.notes]
        rows += simpler.facts.get("passes", ())
    if params.prune_unused:
        with step("prune unused"):
            notes += (
                f"the input {name!r} is removed: no output depends on it" for name in prune_inputs(work)
            )
    if params.fp16:
        with step("float16"):
            names = {spec.name for spec in work.inputs}
            fed = [{name: array for name, array in feeds.items() if name in names} for feeds in samples]
            halved = to_float16(work, folder, fed, io=params.io == "fp16")
            work, notes, facts = halved.model, [*notes, *halved.notes], dict(halved.facts)
    if params.drop_shapes:
        with step("drop shapes"):
            drop_value_info(work)
    elif _structure(work) == _structure(model):
        notes.append("nothing changed: the model already is as small and as new as requested")
    if not params.prune_unused:
        unread = unread_inputs(work)
        notes += (f"no output depends on the input {name!r}; --prune-unused removes it" for name in unread)
    changed: dict[str, Any] = measure_size(model).change(measure_size(work))
    changed["opset"] = [model.opset, work.opset]
    return Rewritten(work, tuple(notes), {"changed": changed, "passes": rows, **facts})


def _structure(model: Model) -> tuple[object, ...]:
    """Return everything but the elements of weights: a step that changes these changes nodes, too."""

    def value_of(attribute: ir.Attr) -> object:
        if attribute.is_ref():
            return attribute.ref_attr_name
        if attribute.type == ir.AttributeType.TENSOR:
            return attribute.as_tensor().dtype, attribute.as_tensor().shape
        return attribute.value if attribute.type in PLAIN_ATTRIBUTES else attribute.type

    nodes = [
        (
            node.op_identifier(),
            [value and value.name for value in node.inputs],
            [value.name for value in node.outputs],
            {name: value_of(each) for name, each in node.attributes.items()},
        )
        for node in model.graph.all_nodes()
    ]
    constants = (value for graph in model.ir.graphs() for value in graph.initializers.values())
    stored = {value.name: (value.dtype, value.shape) for value in constants}
    return nodes, stored, dict(model.ir.opset_imports), model.inputs, model.outputs
