"""Passes over a model, and the manager that proves them: a pass that changes the answers is skipped.

Not onnx_ir's PassManager: it wraps every error in a PassError and proves nothing. Its passes (`onnx_ir.passes.common`)
run inside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model

Subject = TypeVar("Subject")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Rewritten:
    """A rewritten model, with notes and figures for the report."""

    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Equivalence(Protocol):
    """The check of a pass, injected by the pipeline: the optimizers do not import the judge."""

    def __call__(self, candidate: Model) -> str | None:
        """Return why `candidate` does not compute what the original does; None if it does."""
        ...


@dataclass(frozen=True)
class Pass(Generic[Subject]):
    """One rewriting of a model, in place.

    Attributes:
        run: applies it to a model, or to what wraps one, and returns a true value if it may have changed something.
        rules: what it does, one sentence; `keeps`: what it leaves alone, and why. Both stand in docs/guide/optimize.md.
        first: the other passes need its form: it runs before shapes are inferred, and --skip does not apply to it.
        optional: it is skipped where it changes the answers; otherwise that is an error.
    """

    name: str
    run: Callable[[Subject], object]
    rules: str = ""
    keeps: str = ""
    first: bool = False
    optional: bool = True


class CulpritError(Exception):
    """A pass changed what it must not."""

    def __init__(self, culprit: Pass[Subject], why: str) -> None:
        super().__init__(culprit.name)
        self.culprit, self.why = culprit, why


class _UnknownCulpritError(Exception):
    """One of several passes changed the answers."""


@dataclass
class PassManager:
    """Attempts a list of passes until every pass in it is proven.

    An attempt starts from the source again without the culprits found so far: no copies are kept to go back to.

    Attributes:
        proves_each: check after each pass; otherwise once after several, and after each only if that check fails.
        culprits: names of the passes that are skipped, and why.
    """

    equivalence: Equivalence | None
    proves_each: bool = False
    culprits: dict[str, str] = field(default_factory=dict)

    def run(self, attempt: Callable[[], Result]) -> Result:
        """Call `attempt` until no culprit is found; it runs passes that are no `culprits`, and calls `prove`.

        Raises:
            CannotConvertError: a pass that is not optional changes the answers.
        """
        while True:
            try:
                return attempt()
            except _UnknownCulpritError:
                self.proves_each = True
            except CulpritError as found:
                if not found.culprit.optional:
                    raise CannotConvertError(
                        f"the required step {found.culprit.name!r} changes the model's answers",
                        why=found.why,
                        fix="please report this model",
                    ) from None
                self.culprits[found.culprit.name] = found.why

    def prove(self, model: Model, last: Pass[Subject] | None = None) -> None:
        """Check `model` after the pass `last`, or after several if None."""
        if self.equivalence is None or (last is not None) != self.proves_each:
            return
        why = self.equivalence(model)
        if why is not None and last is None:
            raise _UnknownCulpritError
        if why is not None and last is not None:
            raise CulpritError(last, f"it changes the model's answers: {why}")

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"pass {name!r} was skipped: {why}" for name, why in self.culprits.items())
