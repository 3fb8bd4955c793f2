"""`--attest` writes an in-toto statement, and `verify --attestation` finds whatever changed since."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxport.cli.commands import cli
from tests.cli.sandbox import DIGITS

STATEMENT = "digits.tflite.intoto.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(DIGITS, folder)
        for target in ("tflite", "ort", "coreml"):
            words = ["convert", "digits.onnx", "--to", target, "--attest", "--samples", "1"]
            assert cli.main(words, standalone_mode=False) == 0
        words = ["convert", "digits.onnx", "--to", "ort", "-o", "unproven.ort", "--no-validate", "--attest"]
        assert cli.main(words, standalone_mode=False) == 0
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    monkeypatch.chdir(folder)
    return folder


def verify(artefact: str, statement: str = "", *more: str) -> int:
    words = ["verify", artefact, "--attestation", statement or f"{artefact}.intoto.json", *more]
    return int(cli.main(words, standalone_mode=False))


@pytest.mark.parametrize("artefact", ["digits.tflite", "digits.ort", "digits.mlpackage"])
def test_an_untouched_artefact_holds(artefact: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(artefact, "", "--source", "digits.onnx") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{artefact}   verified\n")
    assert "proof       proven" in shown
    assert "which has no signature" in shown


def test_the_statement_has_the_form_of_in_toto_and_slsa(here: Path) -> None:
    """https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, https://slsa.dev/spec/v1.0/provenance"""
    statement = json.loads((here / "digits.ort.intoto.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {each["name"]: each["digest"] for each in statement["subject"]}
    assert set(subjects) == {"digits.ort", "digits.required_operators.config"}
    for name, digest in subjects.items():
        assert digest == {"sha256": hashlib.sha256((here / name).read_bytes()).hexdigest()}
    definition, run = (statement["predicate"][name] for name in ("buildDefinition", "runDetails"))
    assert {"buildType", "externalParameters", "resolvedDependencies"} <= definition.keys()
    source, *libraries = definition["resolvedDependencies"]
    inner = hashlib.sha256((here / "digits.onnx").read_bytes()).digest()
    assert source["digest"] == {"onnxportModel": hashlib.sha256(b"\0" + inner).hexdigest()}
    assert {"onnx", "onnxruntime"} <= {each["name"] for each in libraries}
    assert definition["internalParameters"]["options"]["ort"]["level"] == "all"
    assert run["builder"]["id"].startswith("urn:")
    assert run["byproducts"][0]["annotations"]["verdict"] == "proven"


def test_two_runs_write_the_same_statement(here: Path) -> None:
    before = (here / STATEMENT).read_bytes()
    words = ["convert", "digits.onnx", "--to", "tflite", "--attest", "--samples", "1"]
    assert cli.main(words, standalone_mode=False) == 0
    assert (here / STATEMENT).read_bytes() == before


def changed(change: Callable[[Any], None], seal: bool = False) -> Callable[[Path], None]:
    """An edit of the statement; with `seal` by one who also computes its checksum."""

    def edit(folder: Path) -> None:
        statement = json.loads((folder / STATEMENT).read_text())
        change(statement)
        if seal:
            metadata = statement["predicate"]["runDetails"]["metadata"]
            del metadata["invocationId"]
            text = json.dumps(statement, indent=2, sort_keys=True) + "\n"
            metadata["invocationId"] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        (folder / STATEMENT).write_text(json.dumps(statement))

    return edit


def source(statement: Any) -> None:
    statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["onnxportModel"] = "0" * 64


def option(statement: Any) -> None:
    statement["predicate"]["buildDefinition"]["internalParameters"]["options"]["tflite"]["layout"] = "nhwc"


def nameless_library(statement: Any) -> None:
    statement["predicate"]["buildDefinition"]["internalParameters"]["made_by"][""] = "1.0"


def reason(statement: Any) -> None:
    statement["predicate"]["runDetails"]["byproducts"][0]["annotations"]["reason"] = "because"


def command(statement: Any) -> None:
    statement["predicate"]["buildDefinition"]["externalParameters"]["command"] = "quantize"


def flip(folder: Path, place: int) -> None:
    file = folder / "digits.tflite"
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (lambda folder: flip(folder, 0), "bytes: digits.tflite has changed"),
        (lambda folder: flip(folder, 1000), "bytes: digits.tflite has changed"),
        (lambda folder: flip(folder, -1), "bytes: digits.tflite has changed"),
        (changed(source), "attestation: digits.tflite.intoto.json was changed after it was written"),
        (changed(reason), "was changed after it was written"),
        (changed(command), "was changed after it was written"),
        (changed(source, seal=True), "says other things than the artefact says of itself"),
        (changed(nameless_library, seal=True), "says other things than the artefact says of itself"),
        (changed(option, seal=True), "says other things than the artefact says of itself"),
        (changed(lambda each: each["subject"].clear()), "bytes: it names no files"),
        (changed(lambda each: each["subject"].append(dict(each["subject"][0], name="b"))), "b is missing"),
    ],
)
def test_what_was_tampered_with_is_said_in_one_sentence(
    tamper: Callable[[Path], None], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(here)
    assert verify("digits.tflite", STATEMENT) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: digits.tflite fails verification: ")
    assert says in error
    assert error.endswith("\nexit 1\n")
    assert error.count("\n") == 2


def test_the_statement_of_another_artefact_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("digits.ort", STATEMENT) == 1
    assert "has changed" in capsys.readouterr().err


def test_a_package_may_have_no_further_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "digits.mlpackage" / "Data" / "new").write_text("x")
    assert verify("digits.mlpackage") == 1
    assert "Data/new is none of its files" in capsys.readouterr().err


def test_an_artefact_without_a_proof_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("unproven.ort") == 1
    assert "proof: unproven" in capsys.readouterr().err


def test_a_renamed_artefact_holds(here: Path) -> None:
    (here / "digits.tflite").rename(here / "other.tflite")
    assert verify("other.tflite", STATEMENT) == 0


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"_type": 5}', "\x1b[2J", "[]"])
def test_what_is_no_statement_is_bad_input(text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / STATEMENT).write_text(text)
    assert verify("digits.tflite", STATEMENT) == 4
    assert f"{STATEMENT} is not an attestation of onnxport" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["subject", "predicate"])
@pytest.mark.parametrize("value", [None, 5, "text", [], {}, [5], {"a": 5}])
def test_a_statement_of_other_types_is_bad_input_or_fails(part: str, value: object, here: Path) -> None:
    statement = json.loads((here / STATEMENT).read_text())
    (here / STATEMENT).write_text(json.dumps(statement | {part: value}))
    assert verify("digits.tflite", STATEMENT) in (1, 4)


def test_a_missing_statement_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("digits.tflite", "absent.json") == 4
    assert "absent.json does not exist" in capsys.readouterr().err
