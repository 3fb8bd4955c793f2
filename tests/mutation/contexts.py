"""A pytest plugin: label coverage data with the test that runs, in child processes as well."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

# The folder of the files with seconds per test; one file a process.
SECONDS = "ONNXPORT_MUTATION_SECONDS"
# The configuration of coverage reads it in every process.
TEST = "ONNXPORT_MUTATION_TEST"

_seconds: dict[str, float] = {}
_failed: set[str] = set()


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    os.environ[TEST] = item.nodeid
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(item.nodeid)
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.perf_counter() - started
        if measured is not None:
            measured.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:  # without a mutant: such a test would kill every one
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    passed = {name: seconds for name, seconds in _seconds.items() if name not in _failed}
    if passed:
        file = Path(os.environ[SECONDS]) / f"{os.getpid()}.json"
        file.write_text(json.dumps(passed), encoding="utf-8")
