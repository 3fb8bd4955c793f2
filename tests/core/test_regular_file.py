"""Files are read through one descriptor, up to a limit that costs nothing."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pytest

from onnxport.core.regular_file import TooLargeError, read_regular


def test_a_high_limit_takes_no_memory(tmp_path: Path) -> None:
    """A reader that asks for as many bytes as are allowed gets a buffer of that size first."""
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    tracemalloc.start()
    try:
        assert read_regular(file, 2**31 - 1) == b"abc"
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_file_that_tells_no_size_is_read_up_to_the_limit() -> None:
    said = Path("/proc/self/limits")
    assert said.stat().st_size == 0
    content = said.read_bytes()
    assert read_regular(said, len(content)) == content
    with pytest.raises(TooLargeError):
        read_regular(said, len(content) - 1)
