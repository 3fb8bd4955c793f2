"""The contract between quantizations and the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.quantize.params import QuantizeParams
    from onnxport.samples.readers import SampleFile
    from onnxport.validate.params import ValidateParams


class Watch(Protocol):
    """Receives the progress of a quantization."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Show a step in the progress and the timings."""

    def progress(self, done: int, total: int) -> None:
        """Show the progress of the running phase."""


@dataclass(frozen=True)
class QuantizationInputs:
    """The inputs of a quantization beside the model and the params."""

    # The samples to calibrate on, in the folder's order; each is read when it is needed.
    calibration: Sequence[SampleFile]
    # Samples that calibration does not see: what choices are scored on. Empty where there are too few.
    held_back: Sequence[SampleFile]
    folder: Path  # a private folder for files of its own; it is gone after the run
    watch: Watch  # see Watch
    # The user's budgets and metrics, for a search; None where no proof was asked for.
    validation: ValidateParams | None = None


@dataclass(frozen=True)
class Quantized:
    """The result of a quantization."""

    # Of lower precision, with the source's inputs and outputs; it shares no graph with the source.
    model: Model
    notes: tuple[str, ...] = ()  # sentences for the user, the same from run to run
    facts: Mapping[str, Any] = field(default_factory=dict)  # figures for the report


# A quantization; it leaves the model that it is given alone.
Quantization = Callable[["Model", "QuantizeParams", QuantizationInputs], Quantized]
