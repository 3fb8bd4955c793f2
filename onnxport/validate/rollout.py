"""Run a model with a state for several steps, each with the state of the step before.

One step cannot tell a model that forgets its state from one that keeps it. A rollout is run like a model: its inputs
are those of the first step, its outputs hold all steps along a new axis, the second (the first of a scalar), so that
rows of a batch stay rows and each step is a tolerance group where steps are fewer than the other sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import Runtime
from onnxport.samples.domain import Domain
from onnxport.samples.states import States, find_states, given_states, growing
from onnxport.validate.params import ValidateParams

# Factor per step for a value that has no axis to roll along: exact in binary.
_FADE = 0.75
# A step of integers: prime, so that it does not divide the sizes of tables.
_STRIDE = 7919


class Run(Protocol):
    """A loaded model in the axis order of the source."""

    runtime: Runtime

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def run(self, feeds: Feeds) -> dict[str, Array]: ...


class Rollout:
    """A model over several steps. Each side is rolled out alone and feeds back its *own* state, as deployed.

    Args:
        model: one step.
        states: input name to the output that is its next value.
        steps: how many runs make one.
        domains: the values that inputs may hold, in later steps too.
    """

    def __init__(self, model: Run, states: States, steps: int, domains: Mapping[str, Domain]) -> None:
        self._model, self._states, self._steps, self._domains = model, states, steps, domains
        self.runtime = model.runtime

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._model.outputs

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Return the outputs of all steps, [rows, steps, ...]; flat where their shapes change from step to step.

        Raises:
            UsageError: a state came back in another shape than it takes.
        """
        state: dict[str, Array] = {}
        answers = []
        for step in range(self._steps):
            fed = {name: advance(array, self._domains[name], step) for name, array in feeds.items()}
            answers.append(self._model.run({**fed, **state} if step else feeds))
            state = {name: answers[-1][output] for name, output in self._states.items()}
            if step + 1 < self._steps:
                self._check(feeds, state)
        return {name: _join([answer[name] for answer in answers]) for name in answers[0]}

    def _check(self, feeds: Feeds, state: Feeds) -> None:
        for name, array in state.items():
            if array.shape != feeds[name].shape:
                raise UsageError(
                    f"{self._states[name]!r} cannot be fed back to {name!r}",
                    why=f"it has shape {list(array.shape)}, {name!r} had {list(feeds[name].shape)}",
                    fix="name other pairs with --state INPUT=OUTPUT, or give --steps 1",
                )


def advance(first: Array, domain: Domain, step: int) -> Array:
    """Make an input's values at `step` from those at step 0, inside the same domain.

    Floats roll along their longest axis after the first, so a one-hot row stays one-hot; ids move on through their
    table; masks, lengths and switches stay.
    """
    if not step or not first.size:
        return first
    if domain.kind == "integer" and first.dtype.kind in "iu":
        span = domain.high - domain.low + 1
        moved = (first.astype(np.int64) - domain.low + step * _STRIDE) % span + domain.low
        # Values beyond the domain are the user's, and stay.
        inside = (first >= domain.low) & (first <= domain.high)
        return np.where(inside, moved.astype(first.dtype), first)
    if domain.kind != "real":
        return first
    sizes = first.shape[1:]
    if not sizes or max(sizes) < 2:
        return np.asarray(first * np.asarray(_FADE**step, first.dtype))
    axis = 1 + int(np.argmax(sizes))
    return np.roll(first, step * max(1, first.shape[axis] // 5), axis)


def _join(steps: Sequence[Array]) -> Array:
    if any(array.shape != steps[0].shape for array in steps):
        return np.concatenate([array.ravel() for array in steps])
    return np.stack(steps, axis=min(1, steps[0].ndim))


class RolloutPlan:
    """How to roll out a reference and everything that is compared with it.

    Attributes:
        states: input name to output name; empty for a model without a state.
        steps: 1 for such a model.
        domains: those given, states among them.
        notes: what the report is to say.

    Raises:
        UsageError: pairs in `params.state` that the model does not have or whose shapes do not fit.
    """

    def __init__(
        self, model: Run, graph: Model | None, domains: Mapping[str, Domain], params: ValidateParams
    ) -> None:
        if params.state:
            self.states = given_states(params.state, model.inputs, model.outputs)
        else:
            self.states = find_states(graph, model.inputs, model.outputs)
        self.steps = params.steps if self.states else 1
        floats = {spec.name for spec in model.inputs if spec.dtype.startswith("float")}
        self.domains = {
            name: Domain("state") if name in self.states and name in floats else domain
            for name, domain in domains.items()
        }
        self.notes = self._notes(model, bool(params.state))

    def roll_out(self, model: Run) -> Run:
        """Return `model` over all steps; itself for a single step."""
        return model if self.steps == 1 else Rollout(model, self.states, self.steps, self.domains)

    def _notes(self, model: Run, given: bool) -> tuple[str, ...]:
        notes = []
        if self.steps > 1:
            pairs = ", ".join(f"{name}={output}" for name, output in self.states.items())
            notes.append(f"{self.steps} steps with the state fed back: {pairs}")
        if not given and (caches := growing(model.inputs)):
            notes.append(
                f"one step only: the cache {caches[0]!r} grows with each step, so it was not fed back"
            )
        return tuple(notes)
