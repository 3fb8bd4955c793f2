"""A plugin of pytest: what each proof of `onnxport.testing` found, in the summary and in JUnit files.

It lies outside of the package: pytest loads it in every run, and nothing of onnxport with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_PROPERTY = "onnxport"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Take the proofs of a phase before its report copies the properties of the test."""
    testing = sys.modules.get("onnxport.testing")
    if testing is not None:
        item.user_properties.extend((_PROPERTY, line) for line in testing.taken_proofs())
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the proofs of all tests, those of other processes (pytest-xdist), too."""
    found: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                lines = [str(value) for name, value in report.user_properties if name == _PROPERTY]
                # A later phase has the proofs of the earlier ones, too.
                found[report.nodeid] = max(found.get(report.nodeid, []), lines, key=len)
    if any(found.values()):
        terminalreporter.section("onnxport proofs")
        for name, lines in found.items():
            for line in lines:
                terminalreporter.write_line(f"{name}: {line}")
