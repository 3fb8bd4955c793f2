"""What the converter's child process tells its parent of the package it made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Compiled:
    """One .mlpackage.

    Attributes:
        operators: MIL's name of each operator to how often it occurs, most frequent first; constants left out.
        notes: sentences for the user's report, the same from run to run.
    """

    operators: Mapping[str, int]
    notes: tuple[str, ...] = ()
