"""The passes of simplification by name; which run, and in which order, is data: passes.yaml.

A pass changes the editor's model in place and returns how often it did. It may not change what the model computes, its
inputs or its outputs. Its docstring says its rules, and in a last paragraph "Keeps: ..." what it leaves alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from onnxport.optimizers.passes import Pass
from onnxport.optimizers.simplification.graph import ModelEditor

Run = Callable[[ModelEditor], int]

PASSES: dict[str, Pass[ModelEditor]] = {}


def simplification(name: str, *, first: bool = False) -> Callable[[Run], Run]:
    """Register the decorated function as the pass `name`; see passes.Pass for `first`."""

    def register(run: Run) -> Run:
        if name in PASSES:
            raise ValueError(f"there is a pass {name} already: {PASSES[name].run}")
        rules, _, keeps = (
            " ".join(part.split()) for part in (inspect.getdoc(run) or "").partition("Keeps: ")
        )
        PASSES[name] = Pass(name, run, rules, keeps, first)
        return run

    return register
