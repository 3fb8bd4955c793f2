"""Digests of files: one read while a file is unchanged, and another where it may have changed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from onnxport.core import file_digests


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read."""
    found: list[str] = []
    digest = hashlib.file_digest

    def noted(stream: Any, name: str) -> Any:
        found.append(Path(stream.name).name)
        return digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    return found


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def settle() -> None:
    time.sleep(0.15)  # more than a tick of any file system here


def test_a_file_is_read_once_while_it_is_unchanged(tmp_path: Path, reads: list[str]) -> None:
    file = written(tmp_path / "a", b"one")
    settle()
    expected = hashlib.sha256(b"one").digest()
    assert [file_digests.sha256(file) for _ in range(3)] == [expected] * 3
    assert reads == ["a"]
    file_digests.forget()
    assert file_digests.sha256(file) == expected
    assert reads == ["a", "a"]


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    file = written(tmp_path / "a", b"one")
    for _ in range(2):
        file_digests.sha256(file)
    assert reads == ["a", "a"]


def test_another_content_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"one")
    settle()
    before = file_digests.sha256(file)
    times = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file_digests.sha256(file) == hashlib.sha256(b"two").digest() != before


def test_a_file_that_takes_the_place_of_another_is_read(tmp_path: Path) -> None:
    file, other = written(tmp_path / "a", b"one"), written(tmp_path / "b", b"two")
    settle()
    file_digests.sha256(file)
    other.replace(file)
    assert file_digests.sha256(file) == hashlib.sha256(b"two").digest()
