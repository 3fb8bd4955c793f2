"""Simplification: a list of passes run until nothing changes, each proven, within a bound on the model's size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.passes import CulpritError, Equivalence, Pass, PassManager, Rewritten
from onnxport.optimizers.simplification.constants import sweep
from onnxport.optimizers.simplification.graph import ModelEditor, Size, measure_size
from onnxport.optimizers.simplification.pass_lists import plan
from onnxport.optimizers.simplification.symbolic_dims import name_open_dimensions

# Real models need two or three.
_ROUNDS = 10
# A larger model is checked once a round, and after each pass only where that failed: every check has ONNX Runtime read
# all weights.
_CHECKED_OFTEN = 256 * 2**20  # bytes


def simplify(
    model: Model, params: OptimizeParams, folder: Path, *, equivalence: Equivalence | None
) -> Rewritten:
    """Return a simplified copy of `model`; unchanged weights are shared.

    Its facts are "passes": a row for each pass that changed something, in the order of their first change, then one
    for each that was skipped: {"pass", "nodes", "parameters", "bytes", "skipped"}. Figures are [before, after] over
    all runs of the pass; "skipped" is the reason or None.

    Args:
        folder: for temporary files.
        equivalence: checks the result of each pass; None for no check.

    Raises:
        UsageError: the list names an unknown pass.
        MissingDependencyError: a tool that the user's list names is not installed.
    """
    passes = plan(params)
    manager = PassManager(equivalence, proves_each=model.weight_bytes <= _CHECKED_OFTEN)

    def attempt() -> _Attempt:
        kept = [each for each in passes if each.name not in manager.culprits]
        tried = _Attempt(ModelEditor(model.clone(), model, folder), kept, manager)
        tried.run()
        return tried

    done = manager.run(attempt)
    rows: list[dict[str, Any]] = []
    for name, steps in done.steps.items():
        # The sum of all steps, as if they had followed on the first.
        changes = [before.change(after) for before, after in steps]
        totals = {
            key: [first, first + sum(change[key][1] - change[key][0] for change in changes)]
            for key, (first, _) in changes[0].items()
        }
        rows.append({"pass": name, **totals, "skipped": None})
    rows += [{"pass": name, "skipped": why} for name, why in manager.culprits.items()]
    return Rewritten(done.editor.model, (*manager.notes, *done.editor.notes), {"passes": rows})


class _Attempt:
    """One attempt at a list of passes, with the sizes before and after each step of each pass."""

    def __init__(self, editor: ModelEditor, passes: list[Pass[ModelEditor]], manager: PassManager) -> None:
        self.editor, self._passes, self._manager = editor, passes, manager
        self.steps: dict[str, list[tuple[Size, Size]]] = {}
        self.first = self.size = measure_size(editor.original)

    def run(self) -> None:
        """Run the list until nothing changes."""
        shape_inference.drop_declared(self.editor.model)
        for _ in range(_ROUNDS):
            changed = [each for each in self._passes if each.first and self._apply(each)]
            shape_inference.infer(self.editor.model)
            name_open_dimensions(self.editor.model)
            changed += [each for each in self._passes if not each.first and self._apply(each)]
            self._check_size()
            if not changed:
                break
            self._manager.prove(self.editor.model)
        _restore_signature(self.editor.model, self.editor.original)

    def _apply(self, each: Pass[ModelEditor]) -> bool:
        """Run one pass and return whether it changed something; raise CulpritError if it changed what it must not."""
        if not each.run(self.editor):
            return False
        sweep(self.editor.model)  # unused nodes that it left count as its own
        size = measure_size(self.editor.model)
        for ports in ("inputs", "outputs"):  # their shapes are restored at the end
            now, then = getattr(self.editor.model, ports), getattr(self.editor.original, ports)
            if [(one.name, one.dtype) for one in now] != [(one.name, one.dtype) for one in then]:
                raise CulpritError(each, f"it changes the {ports}: {', '.join(one.name for one in now)}")
        self._manager.prove(self.editor.model, each)
        self.steps.setdefault(each.name, []).append((self.size, size))
        self.size = size
        return True

    def _check_size(self) -> None:
        """Blame the pass that added most if the model is too large after a round: what one copies another may share."""
        if self.size.bytes <= self.first.bound:
            return
        grown = {name: sum(b.bytes - a.bytes for a, b in steps) for name, steps in self.steps.items()}
        name = max(grown, key=lambda each: grown[each])
        culprit = next(each for each in self._passes if each.name == name)
        raise CulpritError(culprit, f"it adds {grown[name]:,} bytes to the model's {self.first.bytes:,}")


def _restore_signature(model: Model, original: Model) -> None:
    """Restore the declared types and shapes of inputs and outputs; drop inner ones if the original declares none."""
    declared = {value.name: value for value in (*original.graph.inputs, *original.graph.outputs)}
    inner = (value for node in original.graph for value in node.outputs if not value.is_graph_output())
    if all(value.shape is None for value in inner):
        for value in (value for node in model.graph.all_nodes() for value in node.outputs):
            if not value.is_graph_output():
                value.type = value.shape = None
    for value in (*model.graph.inputs, *model.graph.outputs):
        theirs = declared[value.name]
        value.type, value.shape = theirs.type, None if theirs.shape is None else ir.Shape(theirs.shape)
