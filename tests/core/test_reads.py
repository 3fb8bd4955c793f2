"""Notes of files vouch for nothing that a later write could leave unnoticed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxport.core import reads
from onnxport.core.reads import Reads, _wait_for_tick, has_settled, stamp_from

_LONG_AGO = 10**18 + 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "file"
    place.write_text("1")
    time.sleep(0.15)
    return place


def test_notes_are_stamps_of_files_and_folders(file: Path) -> None:
    notes = Reads()
    notes.note(file)
    notes.look(reads.tree, str(file.parent))
    found = notes.settle()
    assert found == {str(each): stamp_from(each.stat()) for each in (file, file.parent)}


def test_file_that_was_written_an_instant_before_it_is_read_is_in_doubt(file: Path) -> None:
    file.write_text("2")
    notes = Reads()
    notes.note(file)
    assert notes.settle() is None


@pytest.mark.parametrize("again", ["note", "settle"])
def test_file_that_changes_after_it_was_noted_is_in_doubt(again: str, file: Path) -> None:
    notes = Reads()
    notes.note(file)
    before = file.stat()
    file.write_text("2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    if again == "note":
        time.sleep(0.15)
        notes.note(file)
        assert any("changed" in doubt for doubt in notes.doubts)
    assert notes.settle() is None


def test_what_was_written_is_vouched_for_when_the_next_write_has_another_time(file: Path) -> None:
    for _ in range(20):
        file.write_text("2")
        notes = Reads()
        notes.wrote(file)
        found = notes.settle()
        assert found is not None
        assert time.time_ns() - file.stat().st_mtime_ns >= 3 * 10**7  # this kernel's clock may tick faster
        file.write_text("3")
        assert stamp_from(file.stat()) != found[str(file)]


def test_times_of_the_future_are_in_doubt(file: Path) -> None:
    later = time.time_ns() + 10**10 + 1
    os.utime(file, ns=(later, later))
    notes = Reads()
    notes.wrote(file)
    assert notes.settle() is None


def test_times_of_coarse_steps_are_in_doubt_beside_newer_ones_of_fine_steps() -> None:
    now = time.time_ns()
    second, newer = now // 10**9 * 10**9, now - 1 - (now % 10**6 == 1)
    assert _wait_for_tick([(1, 1, 1, newer, newer)])
    assert not _wait_for_tick([(1, 1, 1, second, second), (1, 1, 1, newer, newer)])


def test_clock_of_two_seconds_settles_later() -> None:
    assert not has_settled(10**18, 10**18 + 10**9)
    assert has_settled(10**18, 10**18 + 3 * 10**9)
    assert has_settled(_LONG_AGO, _LONG_AGO + 2 * 10**8)


def test_file_that_appears_in_a_folder_between_two_looks_is_in_doubt(file: Path) -> None:
    notes = Reads()
    notes.look(reads.tree, str(file.parent))
    (file.parent / "other").touch()
    assert notes.settle() is None


def test_look_that_fails_is_a_doubt(tmp_path: Path) -> None:
    notes = Reads()
    notes.look(reads.file, str(tmp_path / "missing"))
    assert notes.settle() is None


def test_file_that_is_missing_is_vouched_for_as_missing(tmp_path: Path) -> None:
    notes = Reads()
    notes.look(reads.distributions, (str(tmp_path / "missing"),))
    assert notes.settle() == {str(tmp_path / "missing"): None}


def _searched(pattern: Path) -> Iterator[str]:
    yield from sorted(Path(each).name for each in reads.matches(str(pattern)).folders)


def test_pattern_counts_with_each_folder_that_it_searches(tmp_path: Path) -> None:
    for name in ("nets/a/deep", "nets/b", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "nets/a/one.onnx").touch()
    assert [*_searched(tmp_path / "nets/a/*.onnx")] == ["a"]
    assert [*_searched(tmp_path / "nets/*/one.onnx")] == ["a", "b", "nets"]
    assert [*_searched(tmp_path / "nets/**/*.onnx")] == ["a", "b", "deep", "nets"]
    assert reads.matches(str(tmp_path / "nets/**/*.onnx")).facts == (str(tmp_path / "nets/a/one.onnx"),)


def test_program_is_looked_for_on_path_or_at_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{tmp_path / 'other'}")
    monkeypatch.delenv("PATHEXT", raising=False)
    monkeypatch.chdir(tmp_path)
    both = {str(tmp_path / "tool"): None, str(tmp_path / "other/tool"): None}
    assert reads.no_command("tool").files == both
    assert reads.no_command("tools/tool").files == {str(tmp_path / "tools/tool"): None}
    (tmp_path / "tool").touch(mode=0o755)
    notes = Reads()
    notes.look(reads.no_command, "tool")
    assert notes.settle() is None


def test_nothing_is_noted_outside_of_recording(file: Path) -> None:
    notes = Reads()
    with reads.recording(notes):
        reads.note_variable("NAME")
    reads.note(file)
    reads.doubt("why")
    assert (notes.settle(), notes.doubts, notes.variables) == ({}, set(), {"NAME"})
