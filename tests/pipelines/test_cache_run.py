"""Runs on a cache: what they deliver and say is the same whether it was made or found."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from onnxport.cli.commands import cli
from onnxport.formats.artifact import Artifact

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
validate: {samples: 1}
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(DIGITS, folder)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ONNXPORT_CACHE", raising=False)
    return folder


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["run", "pipeline.yaml", "--json", *arguments], standalone_mode=False) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def statuses(document: dict[str, Any]) -> list[str]:
    return [node["status"] for node in document["nodes"]]


def test_reports_name_what_was_delivered_and_nothing_in_the_cache(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ran(capsys)
    assert statuses(first) == ["made"] * 2
    moved = tmp_path / "moved"
    shutil.move(project, moved)
    monkeypatch.chdir(moved)
    (moved / "digits.onnx").rename(moved / "renamed.onnx")
    (moved / "pipeline.yaml").write_text(PIPELINE.replace("digits.onnx", "renamed.onnx"))
    second = ran(capsys)
    assert statuses(second) == ["cached"] * 2
    for document, name in ((first, "digits"), (second, "renamed")):
        lean, server = (node["run"] for node in document["nodes"])
        (artifact,) = server["artifacts"]
        assert artifact["path"] == artifact["report"]["candidate"]["path"] == f"build/{name}/server.ort"
        assert artifact["companions"][0]["path"] == f"build/{name}/server.required_operators.config"
        assert {os.path.getsize(each["path"]) for each in artifact["companions"]} == {
            each["size"] for each in artifact["companions"]
        } or name == "digits"
        assert server["source"]["path"] == artifact["report"]["reference"]["path"] == f"{name}.onnx"
        assert lean["artifacts"][0]["path"] is None
        assert lean["artifacts"][0]["report"]["candidate"]["path"] == f"{name}/lean.onnx"
        assert "stages/" not in json.dumps(document)


def test_what_is_there_and_the_same_is_not_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys)
    delivered = [
        project / "build" / "digits" / name for name in ("server.ort", "server.required_operators.config")
    ]
    for file in delivered:
        os.utime(file, (1000, 1000))
    ran(capsys)
    assert [file.stat().st_mtime for file in delivered] == [1000, 1000]
    bytes_before = delivered[0].read_bytes()
    delivered[0].write_bytes(b"others")
    ran(capsys)
    assert delivered[0].read_bytes() == bytes_before


def test_delivered_model_with_a_data_file_is_told_as_it_is(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxport.formats.model._APART", 0)
    import onnx

    onnx.save(
        onnx.load("digits.onnx"), "large.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    (project / "pipeline.yaml").write_text(
        PIPELINE.replace("digits.onnx", "large.onnx").replace(
            "{to: ort, from: lean}", "{to: onnx, from: lean}"
        )
    )
    for status in ("made", "cached"):
        document = ran(capsys)
        assert statuses(document) == [status]
        (artifact,) = document["nodes"][0]["run"]["artifacts"]
        made = Artifact(
            Path(artifact["path"]), "onnx", tuple(Path(each["path"]) for each in artifact["companions"])
        )
        assert [str(file) for file in made.files] == [
            "build/large/server.onnx",
            "build/large/server.onnx.data",
        ]
        assert artifact["digest"] == artifact["report"]["candidate"]["digest"] == made.digest()


def test_damaged_entry_is_made_again_with_the_same_bytes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys)
    artefact = project / "build" / "digits" / "server.ort"
    before = artefact.read_bytes()
    artefact.unlink()
    for kept in (project / ".onnxport" / "stages").glob("*/*/model.ort"):
        kept.write_bytes(before[:-1] + b"?")
    assert statuses(ran(capsys)) == ["cached", "made"]
    assert artefact.read_bytes() == before


def test_the_cache_keeps_itself_out_of_a_repository(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys)
    assert (project / ".onnxport" / ".gitignore").read_text() == "*\n"
