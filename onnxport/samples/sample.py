"""One set of inputs, whoever gave it; apart from readers.py, whose libraries generated inputs do without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from onnxport.core.arrays import Array


@dataclass(frozen=True)
class Sample:
    """One set of inputs.

    Attributes:
        label: its file's name, or "image, batch 3" for a generated one.
        adversarial: a companion (generator.py), which shows faults but not how the outputs vary.
        begun: states that the file lacks, which are zeros.
        first_row: number of the first row, for rows of a file.
    """

    label: str
    feeds: Mapping[str, Array]
    source: Literal["samples", "generated"]
    adversarial: bool = False
    begun: tuple[str, ...] = ()
    first_row: int = 0
