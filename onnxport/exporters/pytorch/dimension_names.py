"""Replace torch.export's symbols (s77) by the user's names of dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from onnxport.exporters.pytorch.capture import Dims, is_fixed
from onnxport.formats.artifact import Dim

_SYMBOL = re.compile(r"\b[A-Za-z_]\w*\b")
_LARGEST = 2**31  # an upper bound beyond says nothing


@dataclass
class DimensionNames:
    """The names of a program's open dimensions."""

    names: dict[str, str] = field(default_factory=dict)  # symbol to name
    notes: list[str] = field(default_factory=list)  # what the program demands of them

    @classmethod
    def of(
        cls, program: torch.export.ExportedProgram, inputs: Mapping[str, torch.Tensor], dynamic: Dims
    ) -> DimensionNames:
        """Read the user's names for the dimensions of `inputs`; the default is <input>_dim_<axis>."""
        made = cls()
        for name, tensor in inputs.items():
            for axis, size in enumerate(tensor.shape):
                given = dynamic[name][axis] if name in dynamic else None
                if not str(size).isidentifier():  # fixed, or made of others
                    continue
                known = made.names.setdefault(str(size), given or f"{name}_dim_{axis}")
                if given and given != known:
                    made.notes.append(
                        f"{given!r} of {name!r} is always as large as {known!r}, and is called so"
                    )
        for symbol, bounds in program.range_constraints.items():
            if str(symbol) in made.names and bounds.upper.is_Integer and int(bounds.upper) < _LARGEST:
                made.notes.append(f"{made.names[str(symbol)]!r} is at most {bounds.upper}")
        return made

    def dim(self, size: int | torch.SymInt) -> Dim:
        return int(size) if is_fixed(size) else self.renamed(str(size))

    def shape(self, sizes: Sequence[int | torch.SymInt]) -> tuple[Dim, ...]:
        return tuple(self.dim(size) for size in sizes)

    def renamed(self, expression: str) -> str:
        """Return an expression of symbols, such as "s77 // 2", in the user's names."""
        return _SYMBOL.sub(lambda match: self.names.get(match[0], match[0]), expression)


def unused_name(wanted: Iterable[str], taken: set[str]) -> list[str]:
    """Return `wanted`, numbered where a name is taken; the names are taken afterwards."""
    names = []
    for name in wanted:
        chosen, number = name, 1
        while chosen in taken:
            number += 1
            chosen = f"{name}_{number}"
        taken.add(chosen)
        names.append(chosen)
    return names
