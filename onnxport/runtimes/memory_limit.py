"""The memory limit of model runs, and the error where a run needs more.

The limit is for all processes of a command together: this one with its libraries, and one that runs a model. Weights
that are mapped from files do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxport.core.memory import bytes_of, machine_memory
from onnxport.formats.artifact import Referent
from onnxport.runtimes.base import MemoryFullError, OverLimitError

if TYPE_CHECKING:
    from onnxport.core.arrays import Feeds
    from onnxport.samples.footprint import Estimate

# Bytes of this process with its libraries and of a runtime's process without a model.
_LIBRARIES = 300_000_000
# The default: a quarter of the machine, at most 4 GB, and at least 750 MB plus four copies of the weights: read,
# packed, in two sessions.
_SHARE = 4
_MOST = 4_000_000_000
_LEAST = 750_000_000
_WEIGHTS = 4
_LARGE_PART = 4
# Copies of inputs and outputs in memory: as arrays and as messages in both processes, and the outputs of the noise
# probes. Counted in the code, not measured: too many cost a size, too few break the limit.
_INPUT_COPIES = 5
_OUTPUT_COPIES = 8


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that the processes of a command may take together."""

    bytes: int | None  # None for no limit
    given: str = ""  # the limit as the user wrote it; empty for the default

    @classmethod
    def of(cls, given: str | None, model: Referent) -> MemoryLimit:
        """Return the user's limit, or the default for a model of this size."""
        if given is not None:
            return cls(bytes_of(given), given)
        machine = machine_memory()
        usual = _MOST if machine is None else min(machine // _SHARE, _MOST)
        return cls(max(usual, _LEAST + _WEIGHTS * model.size))

    def process(self, feeds: Feeds) -> int | None:
        """Return the bytes that the process may hold while it runs a model on `feeds`."""
        if self.bytes is None:
            return None
        copies = _INPUT_COPIES * sum(array.nbytes for array in feeds.values())
        return max(self.bytes - _LIBRARIES - copies, 0)

    @property
    def answer(self) -> int | None:
        """Bytes that one answer may have; memory holds several copies of it."""
        return None if self.bytes is None else (self.bytes - _LIBRARIES) // _OUTPUT_COPIES

    def total(self, feeds: Feeds, taken: int, *, is_answer: bool) -> int:
        """Return the bytes of all processes together, of which one holds `taken` bytes, or gives an answer of them."""
        if is_answer:
            return _LIBRARIES + _OUTPUT_COPIES * taken
        return _LIBRARIES + _INPUT_COPIES * sum(array.nbytes for array in feeds.values()) + taken

    def allows(self, estimate: Estimate) -> bool:
        """Return whether a run of this estimate stays within the limit."""
        return self.bytes is None or needed_bytes(estimate) <= self.bytes

    def fills(self, estimate: Estimate) -> bool:
        """Return whether a run of this estimate takes a large part of the limit."""
        return self.bytes is not None and needed_bytes(estimate) > self.bytes // _LARGE_PART

    def exceeded(self, step: str, why: str, least: int) -> MemoryFullError:
        """Return the error for a step that exceeds the limit; `least` bytes would suffice."""
        machine = machine_memory()
        more = f"allow more: --memory-limit {format_size(_rounded_up(least))} or above"
        if machine is not None and least > machine:
            more = "use a larger machine"
        fix = f"give smaller sizes (--shape) or inputs (--inputs DIR), or {more}"
        if self.given:
            return OverLimitError(f"{step} exceeds --memory-limit {self.given}", why=why, fix=fix)
        of_machine = f", of the machine's {format_size(machine)}" if machine is not None else ""
        return MemoryFullError(
            f"{step} takes too much memory",
            why=f"{why}; the limit is {format_size(self.bytes or 0)}{of_machine}",
            fix=fix,
        )


def needed_bytes(estimate: Estimate) -> int:
    """Return the bytes that a run takes at least, in all processes together."""
    copies = _INPUT_COPIES * estimate.inputs + _OUTPUT_COPIES * estimate.outputs
    return _LIBRARIES + estimate.graph + copies


def format_size(number: int) -> str:
    """Write a number of bytes as the user would: "750MB", "3.9GB"."""
    return f"{number / 1e9:.1f}GB" if number >= 1_000_000_000 else f"{number / 1e6:.0f}MB"


def _rounded_up(number: int) -> int:
    """Round up to a size that `format_size` writes without loss."""
    step = 100_000_000 if number >= 1_000_000_000 else 10_000_000
    return -(-number // step) * step
