"""The contract of loaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    from onnxport.core.errors import OnnxportError

# Name or other key, type and shape as the runtime names them.
Port = tuple[str, str, tuple[Any, ...]]
Run = Callable[[], object]


class Chosen(TypedDict, total=False):
    """Settings as plain values; see report.Settings, and session.Subject for `optimized`."""

    provider: str | None
    threads: int | None
    level: str | None
    optimized: str | None


class Loaded(Protocol):
    """A model in memory."""

    ran_on: str  # name and version of the runtime for the report
    # inputs, outputs: in the model's order.
    inputs: Sequence[Port]
    outputs: Sequence[Port]

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        """Prepare the model for these arrays, by key; return a function that does one run, which is timed."""

    def answers(self) -> dict[str, Any]:
        """Run once more and return the outputs by key."""

    def refusal(self, error: Exception) -> OnnxportError:
        """Return the error that the user sees for an exception of these methods."""


class Loader(Protocol):
    """A module of this package, or an object of runtime.py."""

    def require(self) -> None:
        """Import the runtime (MissingDependencyError)."""

    def load(self, path: str, settings: Chosen) -> Loaded:
        """Load the model at `path`.

        Raises:
            MissingDependencyError: this build lacks what the settings ask for.
            InputError: the runtime refuses the model.
        """
