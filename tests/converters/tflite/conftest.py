"""One warm compiler for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.converters.tflite.conformance import Conformance


@pytest.fixture(scope="session")
def conformance() -> Iterator[Conformance]:
    with Conformance() as running:
        yield running
