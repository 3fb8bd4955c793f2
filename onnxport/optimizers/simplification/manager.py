"""Runs a list of passes to a fixed point, and keeps what they make only while it is still the same model.

What a pass did wrong shows when it has changed the model: the run then starts anew from the source without it. That
costs a model with a culprit twice the time, and all others nothing: there are no copies to go back to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.canonical_form import Equivalence
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.simplification import catalog
from onnxport.optimizers.simplification.constants import sweep
from onnxport.optimizers.simplification.graph import Scene
from onnxport.optimizers.simplification.pass_lists import plan
from onnxport.optimizers.simplification.registry import Pass
from onnxport.optimizers.simplification.size import Size, size_of
from onnxport.optimizers.simplification.symbolic_dims import name_open_dimensions

assert catalog  # which fill the registry

# Real models need two or three.
_ROUNDS = 10
# With more weights the judge is asked once a round, and of each pass only where that went wrong: every question has
# ONNX Runtime read them all.
_ASKED_OFTEN = 256 * 2**20  # bytes


@dataclass(frozen=True)
class Simplified:
    """A model with fewer nodes, and what the report should say of its making.

    Attributes:
        facts: "passes": a row for each pass that changed something, in the order in which they first did, and for each
            that was skipped: {"pass", "nodes", "parameters", "bytes", "skipped"}; numbers are [before, after] of all
            its turns together, "skipped" says why, or is None. "size": the same of the whole.
    """

    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def simplified(
    model: Model, params: OptimizeParams, folder: Path, *, equivalence: Equivalence | None
) -> Simplified:
    """A simplified copy of `model`; its weights are shared where they stay.

    Args:
        folder: for files on the way.
        equivalence: checks what the passes make; None where nobody wants to know.

    Raises:
        UsageError: a pass that there is not.
        MissingDependencyError: a tool that the user's list names is not installed.
    """
    passes = plan(params)
    culprits: dict[str, str] = {}
    often = model.weight_bytes <= _ASKED_OFTEN
    while True:
        kept = [each for each in passes if each.name not in culprits]
        run = _Run(Scene(model.clone(), model, folder), kept, equivalence, often=often)
        try:
            run.to_the_end()
        except _AskOftenError:
            often = True
        except _CulpritError as found:
            culprits[found.name] = found.why
        else:
            return run.simplified(culprits)


class _CulpritError(Exception):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.name, self.why = name, why


class _AskOftenError(Exception):
    """One of several passes changed the answers, and it is not known which."""


@dataclass
class _Run:
    """One attempt at a list of passes.

    Attributes:
        often: whether the judge is asked after every pass that changed something; else after every round.
    """

    scene: Scene
    passes: Sequence[Pass]
    equivalence: Equivalence | None
    often: bool
    steps: dict[str, list[tuple[Size, Size]]] = field(default_factory=dict)

    def to_the_end(self) -> None:
        """Runs the list until nothing changes."""
        shape_inference.drop_declared(self.scene.model)
        self.first = self.size = size_of(self.scene.original)
        for _ in range(_ROUNDS):
            changed = [each for each in self.passes if each.required and self._changes(each)]
            shape_inference.infer(self.scene.model)
            name_open_dimensions(self.scene.model)
            changed += [each for each in self.passes if not each.required and self._changes(each)]
            self._check_size()
            if changed and not self.often and self._differs() is not None:
                raise _AskOftenError
            if not changed:
                break
        _restore_signature(self.scene.model, self.scene.original)

    def _changes(self, each: Pass) -> int:
        """Runs one pass; how often it changed something.

        Raises:
            _CulpritError: it changed what it may not.
        """
        changes = each.run(self.scene)
        if not changes:
            return 0
        sweep(self.scene.model)  # what it left unread counts as its own
        size = size_of(self.scene.model)
        if why := _other_signature(self.scene.model, self.scene.original):
            raise _CulpritError(each.name, why)
        if self.often and (why := self._differs()):
            raise _CulpritError(each.name, f"it changes the model's answers: {why}")
        self.steps.setdefault(each.name, []).append((self.size, size))
        self.size = size
        return changes

    def _check_size(self) -> None:
        """Raises _CulpritError of the pass that added most, if the model has become too large; asked at the end of a
        round, since one pass writes what another then shares."""
        if self.size.bytes <= self.first.bound:
            return
        grown = {name: sum(b.bytes - a.bytes for a, b in steps) for name, steps in self.steps.items()}
        name = max(grown, key=lambda each: grown[each])
        raise _CulpritError(name, f"it adds {grown[name]:,} bytes to the model's {self.first.bytes:,}")

    def _differs(self) -> str | None:
        return None if self.equivalence is None else self.equivalence(self.scene.model)

    def simplified(self, culprits: Mapping[str, str]) -> Simplified:
        rows = [_row(name, steps) for name, steps in self.steps.items()]
        rows += [{"pass": name, "skipped": why} for name, why in culprits.items()]
        notes = [f"pass {name!r} was skipped: {why}" for name, why in culprits.items()]
        facts = {"passes": rows, "size": _between(self.first, self.size)}
        return Simplified(self.scene.model, (*notes, *self.scene.notes), facts)


def _row(name: str, steps: Sequence[tuple[Size, Size]]) -> dict[str, Any]:
    """What a pass did in all its turns: as if they had followed on the first."""
    before = steps[0][0]
    totals = {
        key: [
            getattr(before, key),
            getattr(before, key) + sum(getattr(b, key) - getattr(a, key) for a, b in steps),
        ]
        for key in ("nodes", "parameters", "bytes")
    }
    return {"pass": name, **totals, "skipped": None}


def _between(before: Size, after: Size) -> dict[str, Any]:
    keys = ("nodes", "constants", "parameters", "bytes")
    return {key: [getattr(before, key), getattr(after, key)] for key in keys}


def _other_signature(model: Model, original: Model) -> str | None:
    """What of the inputs and outputs a pass changed; shapes are restored at the end, and do not count."""
    for what in ("inputs", "outputs"):
        now, then = getattr(model, what), getattr(original, what)
        if [(each.name, each.dtype) for each in now] != [(each.name, each.dtype) for each in then]:
            return f"it changes the {what}: {', '.join(each.name for each in now)}"
    return None


def _restore_signature(model: Model, original: Model) -> None:
    """Gives inputs and outputs the shapes that the original declares, and what lies between only if it declares any."""
    declared = {value.name: value for value in (*original.graph.inputs, *original.graph.outputs)}
    if not any(_declares(value) for node in original.graph for value in node.outputs):
        for value in (value for node in model.graph.all_nodes() for value in node.outputs):
            if not value.is_graph_output():
                value.type = value.shape = None
    for value in (*model.graph.inputs, *model.graph.outputs):
        theirs = declared[value.name]
        value.type, value.shape = theirs.type, None if theirs.shape is None else ir.Shape(theirs.shape)


def _declares(value: ir.Value) -> bool:
    return value.shape is not None and not value.is_graph_output()
