"""The count of ONNX's node tests on the GPU runtime can be taken in parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import gpu
from tests.conformance.page import read_rests
from tests.runtimes.test_litert_gpu import needs_device


@needs_device
def test_what_was_found_is_kept_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "KEPT", tmp_path / "kept.txt")
    found = gpu.measure(again=("test_abs", "test_isnan"))
    verdicts = {name: each.verdict for name, each in found.items()}
    assert verdicts["node/test_abs"] == "right"
    assert verdicts["node/test_isnan"] == "refused"
    assert read_rests(gpu.KEPT) == found
    assert gpu.measure(seconds=0) == found
