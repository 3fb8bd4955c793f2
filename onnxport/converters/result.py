"""The result that a converter's child process returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_CUSTOM = "custom "  # prefix of TFLite's custom operators


@dataclass(frozen=True)
class Compiled:
    """A written artefact.

    Attributes:
        operators: the target's name of each operator to its count, most frequent first; constants left out.
        notes: sentences for the user's report, the same from run to run.
    """

    operators: Mapping[str, int]
    notes: tuple[str, ...] = ()


def custom_names(operators: Iterable[str]) -> list[str]:
    """Return the custom operators of a file, by the names that a runtime registers them by."""
    return [name.removeprefix(_CUSTOM) for name in operators if name.startswith(_CUSTOM)]
