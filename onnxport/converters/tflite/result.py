"""What the compiler's child process tells its parent of the file it made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_CUSTOM = "custom "  # before the name of what is no operator of TFLite's


@dataclass(frozen=True)
class Compiled:
    """One .tflite.

    Attributes:
        operators: TFLite's name of each operator to how often it occurs, most frequent first.
        notes: sentences for the user's report, the same from run to run.
    """

    operators: Mapping[str, int]
    notes: tuple[str, ...] = ()


def custom_names(operators: Iterable[str]) -> list[str]:
    """The custom operators among a file's, by the names that a runtime has to know them by."""
    return [name.removeprefix(_CUSTOM) for name in operators if name.startswith(_CUSTOM)]
