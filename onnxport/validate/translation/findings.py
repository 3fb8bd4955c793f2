"""What a proof finds where the artefact is not the source with quantization in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# A fault is what no quantizer does; a doubt is what this proof cannot explain, and a right file may have.
Kind = Literal["fault", "doubt"]


@dataclass(frozen=True)
class Finding:
    """One place that is not proven.

    Attributes:
        node: the artefact's operator and its name.
        text: the figures.
        kind: see Kind.
    """

    node: str
    text: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.node}: {self.text}"
