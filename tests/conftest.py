"""One warm compiler for all tests that convert to TFLite, one for those that convert to Core ML."""

import signal
from collections.abc import Iterator

import pytest

from tests.conformance.coreml import CoremlConformance
from tests.conformance.tflite import Conformance

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what a shell starts with &
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
