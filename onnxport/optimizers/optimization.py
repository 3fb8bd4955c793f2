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
from onnxport.optimizers.simplification.graph import PLAIN_ATTRIBUTES
from onnxport.optimizers.simplification.size import measure_size
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
    work = _Run(model.clone(), phase)
    if params.shape:
        with work.step("fix sizes"):
            work.notes += pin_shapes(work.model, params.shape)
    if params.opset is not None:
        with work.step("opset"):
            converted = convert_opset(work.model, params.opset)
            work.model = converted.model
            work.notes += converted.notes
    if params.simplify:
        work.simplify(params, folder, equivalence)
    if params.prune_unused:
        with work.step("prune unused"):
            removed = prune_inputs(work.model)
            work.notes += (f"the input {name!r} is removed: no output depends on it" for name in removed)
    if params.fp16:
        with work.step("float16"):
            work.convert_to_float16(folder, samples, io=params.io == "fp16")
    if params.drop_shapes:
        with work.step("drop shapes"):
            drop_value_info(work.model)
    return work.result(model, params)


class _Run:
    """The model under work, with the notes and report rows of the steps so far."""

    def __init__(self, model: Model, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        self.model, self._phase = model, phase
        self.notes: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run a step as a phase of the progress display and as a row of the report."""
        before, opset = measure_size(self.model), self.model.opset
        with self._phase(name):
            yield
        row = {"pass": name, **before.change(measure_size(self.model)), "skipped": None}
        if self.model.opset != opset:
            row["opset"] = [opset, self.model.opset]
        self._rows.append(row)

    def simplify(self, params: OptimizeParams, folder: Path, equivalence: Equivalence | None) -> None:
        from onnxport.optimizers.simplification import simplify

        with self._phase("simplify"):
            done = simplify(self.model, params, folder, equivalence=equivalence)
        self.model = done.model
        self.notes += done.notes
        self._rows += done.facts.get("passes", ())

    def convert_to_float16(self, folder: Path, samples: Sequence[Feeds], *, io: bool) -> None:
        from onnxport.optimizers.float16.conversion import to_float16

        names = {spec.name for spec in self.model.inputs}
        fed = [{name: array for name, array in feeds.items() if name in names} for feeds in samples]
        converted = to_float16(self.model, folder, fed, io=io)
        self.model = converted.model
        self.notes += converted.notes
        self._facts |= converted.facts

    def result(self, source: Model, params: OptimizeParams) -> Rewritten:
        if _structure(self.model) == _structure(source) and not params.drop_shapes:
            self.notes.append("nothing changed: the model already is as small and as new as requested")
        if not params.prune_unused:
            self.notes += (
                f"no output depends on the input {name!r}; --prune-unused removes it"
                for name in unread_inputs(self.model)
            )
        changed = measure_size(source).change(measure_size(self.model))
        changed["opset"] = [source.opset, self.model.opset]
        return Rewritten(
            self.model, tuple(self.notes), {"changed": changed, "passes": self._rows, **self._facts}
        )


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
