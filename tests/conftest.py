"""One warm compiler for all tests that convert to TFLite, one for those that convert to Core ML."""

from collections.abc import Iterator

import pytest

from tests.conformance.coreml import CoremlConformance
from tests.conformance.tflite import Conformance


@pytest.fixture(scope="session")
def conformance() -> Iterator[Conformance]:
    with Conformance() as running:
        yield running


@pytest.fixture(scope="session")
def coreml() -> Iterator[CoremlConformance]:
    with CoremlConformance() as running:
        yield running
