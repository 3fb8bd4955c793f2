"""The contract of loaders: what is timed, and what is asked of a model in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    from onnxport.core.errors import OnnxportError

# Name or other key, the runtime's own name of the type, the shape as the runtime tells it.
Port = tuple[str, str, tuple[Any, ...]]
Run = Callable[[], object]


class Chosen(TypedDict, total=False):
    """Settings as plain values; see record.Settings, and engine.Contestant for `optimized`."""

    provider: str | None
    threads: int | None
    level: str | None
    optimized: str | None


class Loaded(Protocol):
    """A model in memory.

    Attributes:
        ran_on: the runtime, as a report names it.
        inputs, outputs: in the model's order.
    """

    ran_on: str
    inputs: Sequence[Port]
    outputs: Sequence[Port]

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        """Makes the model ready for these arrays, by key; what it returns is one run, and all that is timed."""
        ...

    def answers(self) -> dict[str, Any]:
        """Runs once more and gives the outputs by key."""
        ...

    def refusal(self, error: Exception) -> OnnxportError:
        """What an exception of any of these is to the user."""
        ...


class Loader(Protocol):
    """A module of this package, or an object of runtime.py."""

    def require(self) -> None:
        """Imports the runtime (MissingDependencyError)."""
        ...

    def load(self, path: str, settings: Chosen) -> Loaded:
        """The model at `path`.

        Raises:
            MissingDependencyError: this build lacks what the settings ask for.
            InputError: the runtime refuses the model.
        """
        ...
