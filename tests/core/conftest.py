"""Children of both kinds: an interpreter of its own, and a copy of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from onnxport.core import child_process, memory, process_copies


@pytest.fixture(params=["interpreter", "copy"])
def kind_of_child(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What a child that shares modules is, during the test."""
    if request.param == "copy":
        if sys.platform != "linux":
            pytest.skip("only Linux makes copies")
        process_copies.allow(len(os.listdir("/proc/self/task")))  # a runner of tests has threads of its own
        monkeypatch.setattr(process_copies, "_MOST", sys.maxsize)  # other tests leave much in this process
        mapped = process_copies._mapped()
        monkeypatch.setattr(memory, "machine_memory", lambda: 4 * mapped + 2**34)
        monkeypatch.setattr(child_process, "_MOST_REUSED", sys.maxsize)
        monkeypatch.setattr(child_process, "_MOST_LEFT", process_copies._held() + 300 * 2**20)
    yield request.param
    process_copies._known.clear()
