"""`onnxport verify`: where an artefact comes from, and whether that still holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxport
from onnxport.cli.commands import cli
from tests.cli.projects import project_of
from tests.cli.sandbox import Sandbox

PIPELINE = """
version: 1
model: digits.onnx
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean, validate: {inputs: samples}}
  plain: {to: onnx, from: lean}
"""
SERVER = Path("build/digits/server.ort")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was run."""
    return project_of(PIPELINE, tmp_path_factory.mktemp("made") / "here")


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it; the current folder."""
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code, document, and subject to status."""

    def verify(*arguments: str | Path) -> tuple[int, dict[str, Any], dict[str, str]]:
        code = cli.main(["verify", *map(str, arguments), "--json"], standalone_mode=False)
        document = json.loads(capsys.readouterr().out)
        return code, document, {each["subject"]: each["status"] for each in document.get("checks", ())}

    return verify


def flip(file: Path, place: int) -> None:
    """Changes one bit."""
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def test_an_untouched_artefact_holds(here: Path, verified: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, document, checks = verified(SERVER)
    assert code == 0
    assert set(checks.values()) == {"holds"}
    assert [each["name"] for each in document["stages"]] == ["digits/lean", "digits/server"]
    assert (document["source_name"], document["lock"]) == ("digits.onnx", "pipeline.lock")
    assert {"onnxruntime", "onnxport"} <= document["versions"].keys()
    monkeypatch.chdir(here / "build" / "digits")
    assert verified("server.ort")[0] == 0


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_change_of_one_byte_is_found(place: int, here: Path, verified: Any) -> None:
    flip(SERVER, place)
    code, _, checks = verified(SERVER)
    assert code == 1
    assert checks["bytes"] == "fails"


@pytest.mark.parametrize("way", ["changed", "missing"])
def test_companion_files_count(way: str, here: Path, verified: Any) -> None:
    beside = SERVER.with_name("server.required_operators.config")
    flip(beside, 0) if way == "changed" else beside.unlink()
    code, document, _ = verified(SERVER)
    assert code == 1
    assert f"server.required_operators.config {'has changed' if way == 'changed' else 'is missing'}" in str(
        document
    )


def test_a_copy_is_known_by_its_bytes_and_a_changed_copy_by_its_note(here: Path, verified: Any) -> None:
    copy = here / "elsewhere.onnx"
    shutil.copy("build/digits/plain.onnx", copy)
    assert verified(copy)[0] == 0
    model = onnx.load(copy)
    model.graph.initializer[0].raw_data = b"\1" + model.graph.initializer[0].raw_data[1:]
    onnx.save(model, copy)
    code, document, _ = verified(copy)
    assert code == 1
    assert "pipeline.lock has no artefact with these bytes" in str(document["checks"])


def test_what_it_was_made_from_is_compared(here: Path, verified: Any) -> None:
    (here / "samples" / "3.npz").write_bytes((here / "samples" / "0.npz").read_bytes())
    assert {name for name, status in verified(SERVER)[2].items() if status == "fails"} == {"files"}
    (here / "pipeline.yaml").write_text(PIPELINE.replace("{to: ort,", "{to: ort, level: basic,"))
    model = onnx.load(here / "digits.onnx")
    model.doc_string = "another"
    onnx.save(model, here / "digits.onnx")
    code, document, checks = verified(SERVER)
    assert code == 1
    failing = {name for name, status in checks.items() if status == "fails"}
    assert failing == {"files", "options", "source"}
    assert "targets.server.level: all -> basic" in str(document)


def test_other_versions_are_said_and_no_fault(here: Path, verified: Any) -> None:
    lock = here / "pipeline.lock"
    lock.write_text(lock.read_text().replace(f"onnxport: {onnxport.__version__}", "onnxport: 0.0.9"))
    code, document, checks = verified(SERVER)
    assert code == 0
    assert checks["versions"] == "later"
    assert f"onnxport 0.0.9 -> {onnxport.__version__}" in str(document)


def test_without_the_pipeline_it_says_what_is_not_checked(here: Path, verified: Any) -> None:
    (here / "pipeline.yaml").unlink()
    code, _, checks = verified(SERVER)
    assert code == 0
    assert {name for name, status in checks.items() if status == "unknown"} == {
        "source",
        "files",
        "options",
    }
    assert verified(SERVER, "--source", "digits.onnx")[2]["source"] == "holds"
    assert verified(SERVER, "--source", "build/digits/plain.onnx")[0] == 1


def test_without_a_lock_the_artefact_speaks_for_itself(here: Path, verified: Any) -> None:
    onnxport.convert_model("digits.onnx", to="ort", output="own.ort", level="basic")
    for beside in (True, False):
        if not beside:
            (here / "pipeline.lock").unlink()
        code, document, checks = verified("own.ort", "--source", "digits.onnx")
        assert (code, document["lock"]) == (0, None)
        assert document["stages"] == [{"name": "ort", "stage": "ort", "options": {"level": "basic"}}]
        unknown = {"bytes": "unknown", "files": "unknown"}
        assert checks == {"proof": "holds", "source": "holds", "versions": "holds", **unknown}


def test_what_is_unproven_is_refused(here: Path, verified: Any) -> None:
    onnxport.convert_model("digits.onnx", to="ort", output="own.ort", level="basic", validate=False)
    code, _, checks = verified("own.ort")
    assert code == 1
    assert checks["proof"] == "fails"
    lock = here / "pipeline.lock"
    lock.write_text(lock.read_text().replace("verdict: proven", "verdict: unproven"))
    assert verified(SERVER)[2]["proof"] == "fails"


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (4, ("digits.onnx",)),
        (4, ("nothing.ort",)),
        (2, (SERVER, "--lock", "nothing.lock")),
        (2, (SERVER, "--lock", "pipeline.yaml")),
        (2, (SERVER, "--unknown")),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_asked_is_refused(
    code: int, arguments: tuple[str | Path, ...], here: Path, verified: Any
) -> None:
    assert verified(*arguments)[0] == code


def test_the_command_says_what_does_not_hold(sandbox: Sandbox, made: Path) -> None:
    folder = Path(shutil.copytree(made, sandbox.folder / "here"))
    (folder / "dvc.lock").write_text("schema: '2.0'\n")  # another program's
    flip(folder / SERVER, 100)
    outcome = sandbox.run("verify", folder / SERVER)
    assert outcome.code == 1
    assert "fails verification: bytes: server.ort has changed" in outcome.stderr
