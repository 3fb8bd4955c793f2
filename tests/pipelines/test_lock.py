"""`pipeline.lock`: the same from the same, small in its changes, and never half written."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from onnxport.cli.commands import cli
from onnxport.core.errors import UsageError
from onnxport.pipelines.config.reader import read
from onnxport.pipelines.lock.differences import changes
from onnxport.pipelines.lock.entries import LockedArtefact, LockedFiles, LockedStage
from onnxport.pipelines.lock.file import Lock, parse, schema, text_of, update, written

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean}
  plain: {to: onnx, from: lean}
"""


def project(folder: Path, text: str = PIPELINE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(DIGITS, folder)
    (folder / "pipeline.yaml").write_text(text)
    return folder


def run(folder: Path, *arguments: str) -> int:
    code: int = cli.main(["run", str(folder / "pipeline.yaml"), *arguments, "--quiet"], standalone_mode=False)
    return code


def lock(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "pipeline.lock").read_text())
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was run."""
    folder = project(tmp_path_factory.mktemp("made") / "here")
    assert run(folder) == 0
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """A copy of it with its cache."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_it_is_the_same_wherever_it_is_written(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path / "another" / "place")
    monkeypatch.setenv("ONNXPORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    assert cli.main(["run", "pipeline.yaml", "-q"], standalone_mode=False) == 0
    text = (folder / "pipeline.lock").read_text()
    assert text == (made / "pipeline.lock").read_text()
    assert str(folder) not in text
    assert not re.search(r"\d\d:\d\d|20\d\d-", text), "a time"


def test_it_says_what_each_artefact_was_made_from(made: Path) -> None:
    found = lock(made)
    server = found["artefacts"]["build/digits/server.ort"]
    assert (server["model"], server["target"], server["verdict"]) == ("digits", "server", "proven")
    assert server["source"] == "digits.onnx"
    assert server["stages"] == ["digits/lean", "digits/server"]
    assert set(server["files"]) == {"server.ort", "server.required_operators.config"}
    assert server["size"] == sum(
        (made / "build" / "digits" / name).stat().st_size for name in server["files"]
    )
    assert {"onnxruntime", "onnxport", "python"} <= found["versions"].keys()
    assert "sources" not in found["versions"], "changes with every commit of ours"


def test_differences_show_words_whole_and_digests_short() -> None:
    was, now = (
        {"sha256": digit * 64, "level": level} for digit, level in (("a", "everything-there-is"), ("b", "b"))
    )
    assert changes(was, now) == "level everything-there-is -> b, sha256 aaaaaaaaaaaa -> bbbbbbbbbbbb"


def test_it_keeps_its_published_schema(made: Path) -> None:
    published = (ROOT / "docs" / "schema" / "pipeline-lock.schema.json").read_text(encoding="utf-8")
    assert published == schema(), "write onnxport.pipelines.lock.file.schema() to docs/schema"
    jsonschema.Draft202012Validator(json.loads(published)).validate(lock(made))


def test_what_is_unchanged_is_not_written_again(here: Path) -> None:
    before = (here / "pipeline.lock").stat()
    assert run(here) == 0
    assert (here / "pipeline.lock").stat().st_mtime_ns == before.st_mtime_ns


def test_a_run_of_one_target_leaves_the_others_entries(here: Path) -> None:
    before = lock(here)["artefacts"]
    (here / "pipeline.yaml").write_text(PIPELINE.replace("to: ort,", "to: ort, level: basic,"))
    assert run(here, "--target", "server") == 0
    after = lock(here)
    assert after["artefacts"]["build/digits/plain.onnx"] == before["build/digits/plain.onnx"]
    assert after["stages"]["digits/server"]["options"] == {"level": "basic"}


def test_what_left_the_file_leaves_the_lock(here: Path) -> None:
    (here / "pipeline.yaml").write_text("\n".join(PIPELINE.splitlines()[:-1]))
    assert run(here) == 0
    assert list(lock(here)["artefacts"]) == ["build/digits/server.ort"]


def test_what_failed_keeps_its_former_entry(here: Path) -> None:
    before = lock(here)["artefacts"]
    changed = PIPELINE.replace("to: ort,", "to: ort, level: basic, max_size: 1KB,")
    (here / "pipeline.yaml").write_text(changed)
    assert run(here) == 1
    assert lock(here)["artefacts"] == before


def artefact(name: str, **stages: str) -> LockedArtefact:
    """One of two stages, whose products are called as given."""
    chain = tuple(
        LockedStage(
            f"m/{each}",
            {"stage": each, "source": "a" * 64, "options": {"level": product}, "proof": {}},
            {"onnx": "1.0", "numpy": product},
            product * 64,
        )
        for each, product in stages.items()
    )
    return LockedArtefact(
        "m", name, {}, "m.onnx", "proven", LockedFiles({f"{name}.ort": "b" * 64}, "c" * 64, 9), chain
    )


def test_states_of_a_stage_that_differ_are_kept_apart(tmp_path: Path) -> None:
    artefacts = {
        "a.ort": artefact("a", lean="1", ort="3"),
        "b.ort": artefact("b", lean="1"),
        "c.ort": artefact("c", lean="2"),
    }
    text = text_of("p.yaml", artefacts)
    assert parse(tmp_path, text) == artefacts
    stages = yaml.safe_load(text)["stages"]
    assert len(stages) == 3, "what two artefacts share is written once"
    assert "m/ort" in stages
    assert yaml.safe_load(text)["versions"] == {"onnx": "1.0"}, "what they disagree on stands with them"
    assert text_of("p.yaml", dict(reversed(artefacts.items()))) == text


DAMAGE = {
    "<<<<<<< ours\n": (
        r"p.lock:\d+ is damaged: it is not valid YAML",
        "artefacts:\n",
        "artefacts:\n<<<<<<< ours\n",
    ),
    "another version": (r"p.lock:2, onnxport_lock: the lock is of version 7", "lock: 1", "lock: 7"),
    "another program's": ("is not an onnxport lock", "onnxport_lock: 1\n", ""),
    "wrong type": (r"p.lock:\d+, artefacts > b.ort > size is damaged", "size: 9", "size: nine"),
    "no digest": (r"p.lock:\d+, artefacts > b.ort > digest is damaged", f"digest: {'c' * 64}", "digest: c"),
    "unknown key": (r"p.lock:\d+, artefacts > b.ort > sice is damaged", "size: 9", "sice: 9\n    size: 9"),
    "no such stage": (r"stages > 0 is damaged: it has no stage 'm/other'", "- m/lean", "- m/other"),
    "twice": (r"p.lock:\d+ is damaged: the key size occurs twice", "size: 9", "size: 9\n    size: 9"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_with_its_line(name: str) -> None:
    says, old, new = DAMAGE[name]
    text = text_of("p.yaml", {"b.ort": artefact("b", lean="1")})
    assert old in text
    with pytest.raises(UsageError, match=says):
        parse(Path("p.lock"), text.replace(old, new))


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML has no libyaml here")
@pytest.mark.parametrize(
    "text",
    [
        "a: b",
        "- x",
        "yes",
        "1e5",
        "",
        " a ",
        "\N{GRINNING FACE}",
        "\x85",
        "\u2028",
        "\xa0",
        "\udc80",
        "a\nb",
        "x" * 1500,
        "C:\\Ufo",
    ],
)
def test_libyaml_writes_the_same_bytes(text: str) -> None:
    """PyYAML's own dumper is the reference; locks were written by it."""
    content = {"artefacts": {text: {"options": {text: [text, None, 1.5e-7, {"k": text}]}}, "b": {}}}
    plain = yaml.dump(content, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=1000)
    assert written(content) == plain


def test_a_lock_of_deep_brackets_is_refused_at_once() -> None:
    """libyaml's binding ends the process at 100,000."""
    with pytest.raises(UsageError, match=r"p.lock:2 is damaged: it is nested too deeply"):
        parse(Path("p.lock"), "onnxport_lock: 1\nstages: " + "[" * 100_000)


def test_a_damaged_lock_is_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "pipeline.lock").write_bytes(b"\xff\xfe\0")
    assert run(folder) == 2
    assert not (folder / "build").exists()
    assert (folder / "pipeline.lock").read_bytes() == b"\xff\xfe\0"


def test_runs_that_end_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(8)]
    targets = "".join(f"  {name}: {{to: ort}}\n" for name in names)
    folder = project(tmp_path, f"version: 1\nmodel: digits.onnx\noutput: .\ntargets:\n{targets}")
    pipeline = read(folder / "pipeline.yaml")

    def end(name: str) -> None:
        update(pipeline, {f"digits/{name}.ort": artefact(name, lean="1")})

    threads = [threading.Thread(target=end, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Lock.read(folder / "pipeline.lock")
    assert found is not None
    assert set(found.artefacts) == {f"digits/{name}.ort" for name in names}
