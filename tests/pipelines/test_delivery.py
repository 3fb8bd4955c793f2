"""Products come out of the cache whole: what is there already stays, what was changed there is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from onnxport.pipelines.cache.entries import Entry, Note
from onnxport.pipelines.execution.delivery import deliver
from onnxport.reports.run_report import RunReport

PACKAGE = ("Manifest.json", "Data/model.mlmodel", "Data/weights/weight.bin")


def entry_of(folder: Path, main: str, *names: str) -> Entry:
    """A cached product whose files hold their names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    note = Note(
        "key", "node", main, dict.fromkeys(names, ""), cast(RunReport, None), {}
    )  # nothing here reads the report
    return note.entry(folder, folder)


def contents(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def package(tmp_path: Path) -> Entry:
    main = "model.mlpackage"
    return entry_of(tmp_path / "cache", main, *(f"{main}/{name}" for name in PACKAGE))


def test_a_package_that_lacks_a_file_or_has_another_is_replaced(package: Entry, tmp_path: Path) -> None:
    output = tmp_path / "build" / "app.mlpackage"
    deliver(package, output)
    whole = {name: f"model.mlpackage/{name}" for name in PACKAGE}
    assert contents(output) == whole
    (output / PACKAGE[2]).unlink()
    deliver(package, output)
    assert contents(output) == whole
    (output / "Data" / "other.bin").write_text("of an earlier run")
    deliver(package, output)
    assert contents(output) == whole
    (output / PACKAGE[1]).write_text("model.mlpackage/Data/model.mlmodeL")
    deliver(package, output)
    assert contents(output) == whole


def test_a_package_that_is_there_stays_untouched(package: Entry, tmp_path: Path) -> None:
    output = tmp_path / "app.mlpackage"
    deliver(package, output)
    before = {file: file.stat().st_ino for file in output.rglob("*")}
    deliver(package, output)
    assert {file: file.stat().st_ino for file in output.rglob("*")} == before
