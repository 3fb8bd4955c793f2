"""`onnxport run --frozen`: what the lock says or nothing, and every difference by the user's own names."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from onnxport.cli.commands import cli
from tests.cli.projects import project_of
from tests.cli.sandbox import Sandbox

PIPELINE = """
version: 1
model: digits.onnx
validate: {inputs: samples}
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean}
  plain: {to: onnx, from: lean}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was run."""
    return project_of(PIPELINE, tmp_path_factory.mktemp("made") / "here")


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, without what was made; the current folder."""
    folder = shutil.copytree(made, tmp_path / "copy")
    shutil.rmtree(folder / "build")
    monkeypatch.chdir(folder)
    return Path(folder)


def frozen(*arguments: str) -> int:
    code: int = cli.main(["run", "pipeline.yaml", "--frozen", "-q", *arguments], standalone_mode=False)
    return code


def edit(file: str, old: str, new: str) -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def test_what_the_lock_says_is_made(here: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (here / "pipeline.lock").read_bytes()
    monkeypatch.setenv("ONNXPORT_CACHE", str(here / "empty"))
    assert frozen() == 0
    for file in ("server.ort", "server.required_operators.config", "plain.onnx"):
        ours, theirs = (folder / "build" / "digits" / file for folder in (here, made))
        assert ours.read_bytes() == theirs.read_bytes()
    assert (here / "pipeline.lock").read_bytes() == before


DIFFERENCES = {
    "an option of a target": (
        "{to: ort,",
        "{to: ort, level: basic,",
        "targets.server.level: all -> basic   build/digits/server.ort",
    ),
    "an option of a stage": (
        "{use: optimize}",
        "{use: optimize, opset: 19}",
        "stages.lean.opset: none -> 19   build/digits/server.ort, build/digits/plain.onnx",
    ),
    "an option of the proofs": (
        "inputs: samples",
        "inputs: samples, rtol: 0.01",
        "validate.rtol: none -> 0.01   build/digits/server.ort, build/digits/plain.onnx",
    ),
    "another chain": (
        "ort, from: lean",
        "ort",
        "targets.server: stages digits/lean > digits/server -> digits/server   build/digits/server.ort",
    ),
    "another place": (
        "{to: ort,",
        "{to: ort, output: other.ort,",
        "targets.server.output: build/digits/server.ort -> other.ort   other.ort",
    ),
    "a new target": (
        "  plain",
        "  more: {to: ort}\n  plain",
        "in pipeline.yaml, not in the lock   build/digits/more.ort",
    ),
    "a target that left": (
        "  plain: {to: onnx, from: lean}",
        "",
        "in the lock, not in pipeline.yaml   build/digits/plain.onnx",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_change_of_the_file_is_named(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, says = DIFFERENCES[name]
    edit("pipeline.yaml", old, new)
    refused(here, capsys, [says])


def test_a_change_of_what_it_reads_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "samples" / "3.npz").write_bytes((here / "samples" / "0.npz").read_bytes())
    import onnx

    model = onnx.load(here / "digits.onnx")
    model.doc_string = "another"
    onnx.save(model, here / "digits.onnx")
    says = [
        "digits.onnx: the model has changed, ",
        "validate.inputs: samples has changed, files 3 -> 4, sha256 ",
    ]
    refused(here, capsys, says)


def test_other_versions_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = yaml.safe_load((here / "pipeline.lock").read_text())["versions"]
    edit("pipeline.lock", f"onnxruntime: {now['onnxruntime']}", "onnxruntime: 1.2.3")
    edit("pipeline.lock", f"python: '{now['python']}'", "python: '2.7'")
    says = [
        f"onnxruntime 1.2.3 -> {now['onnxruntime']}   build/",
        f"python 2.7 -> {now['python']}   build/",
    ]
    refused(here, capsys, says)


def test_what_is_unproven_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit("pipeline.lock", "verdict: proven", "verdict: unproven")
    refused(here, capsys, ["verdict unproven: --frozen accepts only proven or measured artefacts   build/"])


def test_only_what_is_asked_for_is_compared(here: Path) -> None:
    edit("pipeline.yaml", "{to: ort,", "{to: ort, level: basic,")
    assert frozen("--target", "plain") == 0
    assert frozen("--target", "server") == 2


def test_without_a_lock_there_is_nothing_to_freeze(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pipeline.lock").unlink()
    refused(here, capsys, ["--frozen needs pipeline.lock, which does not exist; run without --frozen once"])
    assert not (here / "pipeline.lock").exists()


def refused(here: Path, capsys: pytest.CaptureFixture[str], says: list[str]) -> None:
    """Exit 2 with all that is said, and nothing made or written."""
    lock = here / "pipeline.lock"
    before = lock.read_bytes() if lock.exists() else None
    assert frozen() == 2
    message = capsys.readouterr().err
    for each in says:
        assert each in message
    if "differ" in message:
        rows = [line for line in message.splitlines() if line.startswith("  ")]
        assert len(rows) == len(says), message
    assert not (here / "build").exists()
    assert before is None or lock.read_bytes() == before


def test_each_line_says_when_it_was_judged(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines() -> list[str]:
        assert cli.main(["run", "pipeline.yaml", "--frozen"], standalone_mode=False) == 0
        return capsys.readouterr().out.splitlines()[:2]

    assert all(each.endswith("   from the cache, proven when it was made, locked bytes") for each in lines())
    monkeypatch.setenv("ONNXPORT_CACHE", str(here / "empty"))
    assert all(re.search(r"   made and proven in \d+\.\d s, locked bytes$", each) for each in lines())


def test_other_bytes_are_not_delivered(sandbox: Sandbox, made: Path) -> None:
    folder = Path(shutil.copytree(made, sandbox.folder / "here"))
    lock = folder / "pipeline.lock"
    digest = yaml.safe_load(lock.read_text())["artefacts"]["build/digits/server.ort"]["digest"]
    lock.write_text(lock.read_text().replace(f"    digest: {digest}", f"    digest: {'f' * 64}"))
    before = lock.read_bytes()
    shutil.rmtree(folder / "build")
    outcome = sandbox.run("run", folder / "pipeline.yaml", "--frozen", "--json")
    assert outcome.code == 1
    cells = {cell["target"]: cell for cell in outcome.document["cells"]}
    assert cells["server"]["path"] is None
    assert f"differ from the lock, ffffffffffff -> {digest[:12]}" in cells["server"]["reason"]
    assert not (folder / "build" / "digits" / "server.ort").exists()
    assert (folder / "build" / "digits" / "plain.onnx").exists(), "the others are made"
    assert lock.read_bytes() == before


def test_code_of_the_users_own_is_compared(sandbox: Sandbox) -> None:
    metric = "import onnxport\n\n@onnxport.metric(better='lower')\ndef worst(reference, candidate):\n    return 0.0\n"
    (sandbox.folder / "measures.py").write_text(metric)
    os.utime(sandbox.folder / "measures.py", (0, 0))  # not while it is read
    text = (
        "version: 1\nmodel: model.onnx\nvalidate: {metric: measures:worst}\ntargets:\n  server: {to: ort}\n"
    )
    (sandbox.folder / "pipeline.yaml").write_text(text)
    assert sandbox.run("run", "pipeline.yaml").code == 0
    assert sandbox.run("run", "pipeline.yaml", "--frozen").code == 0
    (sandbox.folder / "measures.py").write_text(metric.replace("0.0", "0.5"))
    outcome = sandbox.run("run", "pipeline.yaml", "--frozen")
    assert outcome.code == 2
    assert "targets.server: the module measures changed   build/model/server.ort" in outcome.stderr
    assert sandbox.run("verify", "build/model/server.ort").code == 1
