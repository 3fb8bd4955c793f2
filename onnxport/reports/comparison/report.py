"""The report of `onnxport diff`, as data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from onnxport.inspection.comparison import Comparison
from onnxport.reports.run_report import RunReport


class DifferenceReport(BaseModel):
    """What differs between two models.

    Attributes:
        graph: of the files.
        run: of what they compute; None with --no-run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    graph: Comparison
    run: RunReport | None = None
