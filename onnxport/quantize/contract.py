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
        ...

    def progress(self, done: int, total: int) -> None:
        """Show the progress of the running phase."""
        ...


@dataclass(frozen=True)
class QuantizationInputs:
    """The inputs of a quantization beside the model and the params.

    Attributes:
        calibration: the samples to calibrate on, in the folder's order; each is read when it is needed.
        held_back: samples that calibration does not see: what choices are scored on. Empty where there are too few.
        folder: a private folder for files of its own; it is gone after the run.
        watch: see Watch.
        validation: the user's budgets and metrics, for a search; None where no proof was asked for.
    """

    calibration: Sequence[SampleFile]
    held_back: Sequence[SampleFile]
    folder: Path
    watch: Watch
    validation: ValidateParams | None = None


@dataclass(frozen=True)
class Quantized:
    """The result of a quantization.

    Attributes:
        model: of lower precision, with the source's inputs and outputs; it shares no graph with the source.
        notes: sentences for the user, the same from run to run.
        facts: figures for the report.
    """

    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


# A quantization; it leaves the model that it is given alone.
Quantization = Callable[["Model", "QuantizeParams", QuantizationInputs], Quantized]
