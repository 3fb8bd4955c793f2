"""A pytest plugin: tell `hook.reach`, in all processes, which test runs; note the seconds of those that pass."""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.mutation.hook import FOLDER, TEST

# Each process of xdist has a file of its own; set before the first import of the package.
_place = Path(os.environ[FOLDER]) / f"worker-{os.getpid()}"
_place.write_bytes(bytes(4))
os.environ[TEST] = str(_place)
with _place.open("r+b") as _file:
    _running = memoryview(mmap.mmap(_file.fileno(), 4)).cast("i")

# A test's number is its position. A shared fixture counts for all tests of its file: it has the file's name.
_names = [""]
_seconds: dict[str, float] = {}
_passed: set[str] = set()
_failed: set[str] = set()


def _set_running(name: str) -> None:
    _names.append(name)
    _running[0] = len(_names) - 1


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _set_running(item.nodeid)
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.perf_counter() - started
        _running[0] = 0


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    before = _running[0]
    if fixturedef.scope != "function":
        _set_running(_names[before].partition("::")[0])
    try:
        return (yield)
    finally:
        _running[0] = before


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)
    elif report.passed and report.when == "call":
        _passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    # Without a mutant: a test that fails now would kill every one, a skipped test none.
    passed = {name: _seconds[name] for name in _passed - _failed if name in _seconds}
    _place.with_name(f"{_place.name}.json").write_text(json.dumps([_names, passed]), encoding="utf-8")
