"""Warm compilers that tests share, and the choice of tests that `make test` runs."""

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.conformance.coreml import CoremlConformance
from tests.conformance.tflite import Conformance

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what a shell starts with &
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Other programs may be at work on this machine: how long an example takes is no failure.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calibrations that earlier runs kept would stand in for those that a test asks for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXPORT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def conformance() -> Iterator[Conformance]:
    with Conformance() as running:
        yield running


@pytest.fixture(scope="session")
def coreml() -> Iterator[CoremlConformance]:
    with CoremlConformance() as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnxport")
    group.addoption(
        "--fast", action="store_true", help="of the tests in tests/slow.txt, run the cases it keeps"
    )
    group.addoption("--part", metavar="K/N", help="run the K-th of N parts of what --fast leaves out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast, part = config.getoption("--fast"), config.getoption("--part")
    if not (fast or part):
        return
    slow = slow_tests()
    skipped = left_out(items, slow)
    if fast:
        chosen = {item.nodeid for item in items} - skipped
    else:
        number, parts = map(int, part.split("/"))
        chosen = {name for name in skipped if draw(name) % parts == number - 1}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def slow_tests() -> dict[str, int]:
    """Read tests/slow.txt: test functions, each with the number of its cases that `make test` runs."""
    table = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in table.splitlines() if line and not line.startswith("#"))
    return {name: int(cases) for cases, name in rows}


def left_out(items: list[pytest.Item], slow: dict[str, int]) -> set[str]:
    """Choose the cases that `make test` leaves out: the same on every machine."""
    cases: dict[str, list[str]] = {}
    for item in items:
        function = item.nodeid.partition("[")[0]
        if function in slow:
            cases.setdefault(function, []).append(item.nodeid)
    return {name for function, names in cases.items() for name in sorted(names, key=draw)[slow[function] :]}


def draw(name: str) -> int:
    """A fixed random number for a test."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
