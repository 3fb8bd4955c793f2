"""The cache's promises: what is kept comes back as it was or not at all, whoever else uses the folder."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines import runner
from onnxport.pipelines.cache import Cache, Entry
from onnxport.pipelines.cache.workspace import sweep
from onnxport.pipelines.runner.jobs import Job, conversion
from onnxport.reports.run_report import RunReport

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
KEY, OTHER = "ab" * 32, "cd" * 32
INPUTS = {"source": "of the test"}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunReport]:
    """A folder with what a real conversion made, and its report."""
    room = tmp_path_factory.mktemp("room")
    job: Job = conversion(DIGITS, "ort", room / "model.ort", {"samples": 1})
    return room, runner.run(job, "run")


def put(cache: Cache, product: tuple[Path, RunReport], key: str = KEY) -> Entry:
    made, report = product
    room = cache.room("digits/server")
    shutil.copytree(made, room, dirs_exist_ok=True)
    moved = RunReport.model_validate_json(report.model_dump_json().replace(str(made), str(room)))
    return cache.put(key, room, moved, INPUTS, "digits/server")


def found(folder: Path, key: str = KEY) -> Entry | None:
    with Cache(folder) as cache:
        return cache.get(key)


@pytest.fixture
def folder(tmp_path: Path, product: tuple[Path, RunReport]) -> Path:
    """A cache with one entry."""
    with Cache(tmp_path / "stages") as cache:
        put(cache, product)
    return tmp_path / "stages"


def place_of(folder: Path, key: str = KEY) -> Path:
    return folder / key[:2] / key


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*")}


def test_what_is_kept_comes_back(folder: Path, product: tuple[Path, RunReport]) -> None:
    made = Artifact(product[0] / "model.ort", "ort", (product[0] / "model.required_operators.config",))
    with Cache(folder) as cache:
        entry = cache.get(KEY)
        assert entry is not None
        assert [file.name for file in entry.artifact.files] == [file.name for file in made.files]
        assert [f.read_bytes() for f in entry.artifact.files] == [f.read_bytes() for f in made.files]
        assert entry.digest == made.digest() == entry.artifact.digest()
        assert (entry.inputs, entry.node) == (INPUTS, "digits/server")
    assert entry.report.artifacts[0].report == product[1].artifacts[0].report.model_copy(
        update={"candidate": entry.report.artifacts[0].report.candidate}
    )
    assert entry.report.artifacts[0].path == entry.report.artifacts[0].report.candidate.path == "model.ort"
    assert str(folder) not in (place_of(folder) / "entry.json").read_text()


def test_nothing_else_is_left_in_the_folder(folder: Path) -> None:
    files = {"entry.json", "model.ort", "model.required_operators.config"}
    inside = {f"{KEY[:2]}/{KEY}/{name}" for name in files}
    assert names(folder) == {"new", KEY[:2], f"{KEY[:2]}/{KEY}"} | inside


def truncated(place: Path) -> None:
    os.truncate(place / "model.ort", 1000)


def flipped(place: Path) -> None:
    data = bytearray((place / "model.ort").read_bytes())
    data[len(data) // 2] ^= 1
    (place / "model.ort").write_bytes(data)


def missing(place: Path) -> None:
    (place / "model.required_operators.config").unlink()


def extra(place: Path) -> None:
    (place / "model.ort.data").write_bytes(b"")


def without_note(place: Path) -> None:
    (place / "entry.json").unlink()


def broken_note(place: Path) -> None:
    os.truncate(place / "entry.json", 200)


def note_of_no_json(place: Path) -> None:
    (place / "entry.json").write_bytes(b"\xff\x00")


def note_of_another_kind(place: Path) -> None:
    (place / "entry.json").write_text("[]")


def note_of_another_verdict(place: Path) -> None:
    text = (place / "entry.json").read_text()
    assert '"verdict": "proven"' in text
    (place / "entry.json").write_text(text.replace('"verdict": "proven"', '"verdict": "unproven"'))


DAMAGES = (
    *(truncated, flipped, missing, extra, without_note, broken_note, note_of_no_json, note_of_another_kind),
    note_of_another_verdict,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_damaged_entry_is_dropped_and_can_be_made_again(
    damage: Callable[[Path], None], folder: Path, product: tuple[Path, RunReport]
) -> None:
    damage(place_of(folder))
    with Cache(folder) as cache:
        assert cache.get(KEY) is None
        assert not place_of(folder).exists()
        put(cache, product)
    assert found(folder) is not None


def test_entry_of_another_key_is_none(folder: Path) -> None:
    moved = place_of(folder, OTHER)
    moved.parent.mkdir()
    place_of(folder).rename(moved)
    assert found(folder, OTHER) is None
    assert not moved.exists()


def test_entry_is_read_whatever_others_clear_meanwhile(folder: Path, product: tuple[Path, RunReport]) -> None:
    with Cache(folder) as cache:
        entry = cache.get(KEY)
        assert entry is not None
        with Cache(folder) as other:
            assert [each.key for each in other.prune(0)] == [KEY]
        assert not place_of(folder).exists()
        assert entry.artifact.digest() == entry.digest
        assert cache.get(KEY) is entry


def test_two_that_make_the_same_both_have_it(tmp_path: Path, product: tuple[Path, RunReport]) -> None:
    with Cache(tmp_path) as one, Cache(tmp_path) as other:
        first, second = put(one, product), put(other, product)
        assert first.digest == second.digest == second.artifact.digest()
    assert found(tmp_path) is not None


def test_least_recently_used_go_first_and_what_the_run_uses_stays(
    tmp_path: Path, product: tuple[Path, RunReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{number:02}" * 32 for number in range(4)]
    with Cache(tmp_path) as cache:
        for number, key in enumerate(keys):
            put(cache, product, key)
            os.utime(place_of(tmp_path, key), (1000 + number, 1000 + number))
        size = next(cache.kept()).size
    assert found(tmp_path, keys[0]) is not None  # which makes it the most recent
    with Cache(tmp_path) as cache:
        assert {each.key for each in cache.prune(2 * size)} == {keys[1], keys[2]}
    monkeypatch.setenv("ONNXPORT_CACHE_SIZE", "1KB")
    with Cache(tmp_path) as cache:
        assert cache.get(keys[3]) is not None
        put(cache, product)
    with Cache(tmp_path) as cache:
        assert {each.key for each in cache.kept()} == {keys[3], KEY}


def test_a_size_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPORT_CACHE_SIZE", "much")
    with pytest.raises(UsageError, match=r"\$ONNXPORT_CACHE_SIZE: 'much' is not a size"):
        Cache(tmp_path)


_KILLED = """
import os, signal, sys
from pathlib import Path
from onnxport.pipelines.cache import Cache
with Cache(Path(sys.argv[1])) as cache:
    (cache.room("node") / "half").write_bytes(b"half a product")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folder_of_a_killed_run_is_swept_and_that_of_a_living_one_is_not(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, folder], check=False)
    assert done.returncode == -signal.SIGKILL
    (forsaken,) = (folder / "new").iterdir()
    with Cache(folder) as cache:
        assert not forsaken.exists()
        room = cache.room("node")
        with Cache(folder):
            assert room.is_dir()
        assert room.is_dir()
    assert list((folder / "new").iterdir()) == []


def test_folder_of_a_living_run_stays_when_the_clock_jumps(folder: Path) -> None:
    with Cache(folder) as cache:
        room = cache.room("node")
        os.utime(room.parent, (0, 0))  # as if half a century had gone by
        with Cache(folder) as other:
            other.room("node")
            assert room.is_dir()


def test_folder_of_another_machine_is_swept_when_it_is_old(tmp_path: Path) -> None:
    for name, days in (("elsewhere-0a", 8), ("elsewhere-0b", 6)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 86400,) * 2)
    sweep(tmp_path)
    assert names(tmp_path) == {"elsewhere-0b"}


def test_cache_of_one_run_leaves_nothing(
    tmp_path: Path, product: tuple[Path, RunReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Cache.apart() as cache:
        entry = put(cache, product)
        assert cache.get(KEY) is entry
        assert names(tmp_path)
    assert not names(tmp_path)


def _race(folder: Path, made: Path, report: str, seed: int, rounds: int) -> None:
    product = made, RunReport.model_validate_json(report)
    for number in range(rounds):
        with Cache(folder) as cache:
            entry = cache.get(KEY) or put(cache, product)
            if (seed + number) % 3 == 0:
                with Cache(folder) as other:
                    other.prune(0)
            assert entry.artifact.digest() == entry.digest


@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_runs_that_make_read_and_clear_at_once_meet_no_error(
    rounds: int, tmp_path: Path, product: tuple[Path, RunReport]
) -> None:
    made, report = product
    start = multiprocessing.get_context("fork")
    racers = [
        start.Process(target=_race, args=(tmp_path, made, report.model_dump_json(), seed, rounds))
        for seed in range(4)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0] * 4
    assert not list((tmp_path / "new").iterdir())
