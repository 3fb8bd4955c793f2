"""The passes of simplification by name: each says in one sentence what it does and what it leaves alone.

A pass changes the scene's model in place and returns how often it did; nothing it does may change what the model
computes, its inputs or its outputs. Which run, and in which order, is data: passes.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxport.optimizers.simplification.graph import Scene

Run = Callable[[Scene], int]


@dataclass(frozen=True)
class Pass:
    """One rewriting.

    Attributes:
        says: what it does, for `docs/optimize.md` and for whoever edits a list.
        keeps: what it leaves alone, and why.
        required: the others rely on its form: it runs before them and before shapes are inferred, and is never skipped.
    """

    name: str
    says: str
    keeps: str
    run: Run
    required: bool = False


PASSES: dict[str, Pass] = {}


def simplification(name: str, says: str, *, keeps: str = "", required: bool = False) -> Callable[[Run], Run]:
    """Registers the decorated function as the pass `name`."""

    def register(run: Run) -> Run:
        if name in PASSES:
            raise ValueError(f"there is a pass {name} already: {PASSES[name].run}")
        PASSES[name] = Pass(name, says, keeps, run, required)
        return run

    return register
