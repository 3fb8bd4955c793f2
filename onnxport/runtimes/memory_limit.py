"""How much memory the runs of models may take, and what is said where they need more.

The limit is on all processes of a command together. What this process and its libraries take is set aside, the rest is
for the process that runs a model; two of them do not compute at a time. Weights that are mapped from files count
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxport.core.arrays import Feeds
from onnxport.core.memory import bytes_of, machine_memory
from onnxport.formats.artifact import Referent
from onnxport.runtimes.base import MemoryFullError, OverLimitError

if TYPE_CHECKING:
    from onnxport.samples.footprint import Estimate

# Of this process with its libraries and of a runtime's process before it has loaded anything.
_LIBRARIES = 300_000_000
_SHARE = 4  # a quarter of the machine's memory, unless the user says how much
_MOST = 4_000_000_000
# What any model gets by default, however small the machine, and room for large weights: read, packed, in two sessions.
_LEAST = 750_000_000
_WEIGHTS = 4
_LARGE_PART = 4
# Times that inputs and answers lie in memory: as arrays and as messages in both processes, and the answers to the
# probes of noise beside each other. Counted in the code, not measured: too much costs a size, too little the limit.
_INPUT_COPIES = 5
_OUTPUT_COPIES = 8


@dataclass(frozen=True)
class MemoryLimit:
    """What the processes that run models may take together.

    Attributes:
        bytes: None for any number.
        given: the limit as the user wrote it; empty for the default.
    """

    bytes: int | None
    given: str = ""

    @classmethod
    def of(cls, given: str | None, model: Referent) -> MemoryLimit:
        """The user's limit, or the default for a model of this size."""
        if given is not None:
            return cls(bytes_of(given), given)
        machine = machine_memory()
        usual = _MOST if machine is None else min(machine // _SHARE, _MOST)
        return cls(max(usual, _LEAST + _WEIGHTS * model.size))

    def process(self, feeds: Feeds) -> int | None:
        """What the process that runs a model on `feeds` may hold."""
        if self.bytes is None:
            return None
        copies = _INPUT_COPIES * sum(array.nbytes for array in feeds.values())
        return max(self.bytes - _LIBRARIES - copies, 0)

    @property
    def answer(self) -> int | None:
        """Bytes that one answer may have: it lies in memory several times."""
        return None if self.bytes is None else (self.bytes - _LIBRARIES) // _OUTPUT_COPIES

    def allows(self, estimate: Estimate) -> bool:
        """Whether a run that takes so much is within the limit."""
        return self.bytes is None or needed(estimate) <= self.bytes

    def fills(self, estimate: Estimate) -> bool:
        """Whether a run that takes so much takes a large part of the limit."""
        return self.bytes is not None and needed(estimate) > self.bytes // _LARGE_PART

    def exceeded(self, what: str, why: str, least: int) -> MemoryFullError:
        """The error for a step that does not keep the limit.

        Args:
            what: which step, on what.
            why: what was seen.
            least: bytes that would do.
        """
        machine = machine_memory()
        more = f"allow more: --memory-limit {format_size(_rounded_up(least))} or above"
        if machine is not None and least > machine:
            more = "use a larger machine"
        ways = "give smaller sizes (--shape) or inputs (--inputs DIR)"
        if self.given:
            return OverLimitError(
                f"{what} does not keep --memory-limit {self.given}", why=why, fix=f"{ways}, or {more}"
            )
        there = f", of the machine's {format_size(machine)}" if machine is not None else ""
        return MemoryFullError(
            f"{what} takes too much memory",
            why=f"{why}; the limit is {format_size(self.bytes or 0)}{there}",
            fix=f"{ways}, or {more}",
        )


def needed(estimate: Estimate) -> int:
    """Bytes that a run takes at least, in all processes together."""
    copies = _INPUT_COPIES * estimate.inputs + _OUTPUT_COPIES * estimate.outputs
    return _LIBRARIES + estimate.graph + copies


def format_size(number: int) -> str:
    """A number of bytes as the user would write it: "750MB", "3.9GB"."""
    return f"{number / 1e9:.1f}GB" if number >= 1_000_000_000 else f"{number / 1e6:.0f}MB"


def _rounded_up(number: int) -> int:
    """To two digits of a size that `size_of` writes without a loss."""
    step = 100_000_000 if number >= 1_000_000_000 else 10_000_000
    return -(-number // step) * step
