"""Each report made by hand after the other, and the official schemas."""

from __future__ import annotations

import pytest

from onnxport.reports.pipeline_report import PipelineReport
from tests.reports.pipeline.handmade import RUNS


@pytest.fixture(params=RUNS)
def handmade(request: pytest.FixtureRequest) -> PipelineReport:
    return RUNS[request.param]()


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may run in a service themselves."""
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY", "GITLAB_CI", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
